"""Configs that choose a plugin of hydra's which is not installed are composed all the same."""

import sys

import pytest

from memlint.accelerator import state
from memlint.script import hydra_plugins

STORE = """
class ConfigStore:
    repo = {}
    one = None

    @classmethod
    def instance(cls):
        cls.one = cls.one or cls()
        return cls.one

    def store(self, name, node, group=None, package=None, provider=None):
        self.repo[f"{group}/{name}.yaml"] = node

    def load(self, config_path):
        return self.repo[config_path]
"""
"""As hydra 1.3 has it: `hydra.core.config_store`, without copies."""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The store of a hydra that is imported after memlint has stood in for its plugins."""
    for folder in ("hydra", "hydra/core"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "hydra/core/config_store.py").write_text(STORE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [each for each in sys.modules if each.partition(".")[0] == "hydra"]:
        monkeypatch.delitem(sys.modules, name)
    hydra_plugins.stand_in_for_plugins()
    import hydra.core.config_store as module

    yield module.ConfigStore.instance()
    for name in [each for each in sys.modules if each.partition(".")[0] == "hydra"]:
        del sys.modules[name]


def test_a_missing_plugin_is_replaced_by_what_hydra_itself_has_and_that_is_said(store, monkeypatch):
    assumed = []
    monkeypatch.setattr(state, "assume", assumed.append)
    assert store.load("hydra/launcher/submitit_slurm.yaml")["_target_"].endswith("BasicLauncher")
    assert store.load("hydra/job_logging/colorlog.yaml")["root"] == {"level": "INFO", "handlers": ["console"]}
    assert "file" not in store.load("hydra/hydra_logging/colorlog.yaml")["handlers"], "no folder is known yet"
    assert assumed == [
        "hydra-submitit-launcher is not installed: hydra's own is used in its place",
        *["hydra-colorlog is not installed: hydra's own is used in its place"] * 2,
    ]


def test_an_installed_plugin_keeps_its_config(tmp_path, monkeypatch, request):
    folder = tmp_path / "hydra_colorlog-1.2.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: hydra-colorlog\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    repo = request.getfixturevalue("store").repo
    assert "hydra/job_logging/colorlog.yaml" not in repo
    assert "hydra/sweeper/optuna.yaml" in repo
