"""Programs for hydra before 1.0: the path of a config, and classes with their params."""

import sys
from types import SimpleNamespace

import pytest

from memlint.targets.script import Amendment
from memlint.workloads.older_versions.hydra_files import with_paths_of_configs
from memlint.workloads.older_versions.learning import amendment_of


@pytest.fixture
def hydra(monkeypatch):
    def main(config_path, config_name):
        if config_path.endswith(".yaml"):
            raise ValueError("Using config_path to specify the config name is not supported, specify ...")
        return lambda _function: (config_path, config_name)

    utils = SimpleNamespace(instantiate=lambda config, **_named: config)
    is_config = SimpleNamespace(is_config=lambda _value: False)
    monkeypatch.setitem(sys.modules, "hydra.utils", utils)
    monkeypatch.setitem(sys.modules, "omegaconf", SimpleNamespace(OmegaConf=is_config))
    return SimpleNamespace(main=main, utils=utils)


def test_a_path_of_a_config_is_its_folder_and_its_name(hydra):
    with pytest.raises(ValueError, match="not supported") as caught:
        hydra.main("conf/train.yaml", None)
    assert amendment_of(caught.value) == Amendment("config", "hydra")
    with_paths_of_configs("", hydra)
    assert hydra.main(config_path="conf/train.yaml")(print) == ("conf", "train")
    assert hydra.main(config_path="conf", config_name="train")(print) == ("conf", "train")


def test_a_class_is_made_with_its_params(hydra):
    with_paths_of_configs("", hydra)
    made = hydra.utils.instantiate({"class": "nets.Net", "params": {"width": 4}})
    assert made == {"_target_": "nets.Net", "width": 4}
    assert hydra.utils.instantiate({"_target_": "nets.Net", "class": "a"}) == {"_target_": "nets.Net", "class": "a"}
