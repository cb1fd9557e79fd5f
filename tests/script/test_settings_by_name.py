"""Batch sizes, accumulation and autocast by the names that settings have."""

from __future__ import annotations

import importlib
import math
import sys
from argparse import Namespace
from collections import UserList
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from memlint.script.settings_by_name import (
    ACCUMULATION,
    BATCH,
    LENGTH,
    Value,
    batch_of_frames,
    lengths_in,
    named_autocast,
    named_optimizer,
    named_setting,
    sizes_of,
    values_in,
    with_typed,
)

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Training:
    batch_size: int = 12
    accum_iter: int = 2


@dataclass
class TrainConfig:
    eval_batch_size: int = 99
    training: Training = field(default_factory=Training)


class Trainer:
    def __init__(self) -> None:
        self.args = Namespace(batch_size=5)


@pytest.mark.parametrize(
    ("variables", "batch"),
    [
        ({"args": Namespace(batch_size=7, val_batch_size=3)}, 7),
        ({"config": {"val": {"batch_size": 3}, "data": {"train": {"batch_size": 9}}}}, 9),
        ({"cfg": SimpleNamespace(DATA=SimpleNamespace(BATCH_SIZE=24))}, 24),
        ({"config": TrainConfig()}, 12),
        ({"self": Trainer()}, 5),
        ({"args": Namespace(batch_size=8, per_device_train_batch_size=4)}, 4),
        ({"args": Namespace(global_batch_size=64, per_device_batch_size=4)}, 4),
        ({"batch_size": 1 << 20}, None),
        ({"args": Namespace(batch_size=True)}, None),
        ({}, None),
        ({"batch_size_per_gpu": 38400}, None),  # of frames
    ],
)
def test_the_batch_size_is_that_of_training(variables: dict[str, Any], batch: int | None) -> None:
    setting = named_setting(values_in((), [variables]), BATCH)
    assert (setting and setting.value) == batch


def test_a_setting_that_is_typed_comes_before_those_that_the_script_has() -> None:
    typed = ["task=train", "task.data.batch_size=8", "--accum_iter", "4", "--lr", "1e-3", "model=v9-c"]
    values = with_typed(typed, values_in((), [{"batch_size": 32, "args": Namespace(accum_iter=1)}]))
    assert [named_setting(values, names).value for names in (BATCH, ACCUMULATION)] == [8, 4]  # type: ignore[union-attr]


def test_a_batch_of_frames_is_divided_into_items() -> None:
    counted = {"cfg": {"batch_size_per_gpu": 38400, "batch_size_type": "frame"}}
    by_length = [batch_of_frames(values_in((), [{**counted, **length}])) for length in ({}, {"seq_len": 1024})]
    assert [each and each.value for each in by_length] == [75, 37]
    assert batch_of_frames(values_in((), [{"batch_size": 8, "batch_size_type": "sample"}])) is None


def test_a_part_of_a_batch_that_is_taken_at_once_counts_more_than_the_batch() -> None:
    values = values_in(
        (), [{"config": {"global_batch_size": 1024, "batch_size": 256, "device_train_microbatch_size": 16}}]
    )
    setting = named_setting(values, BATCH)
    assert setting is not None
    assert setting.value == 16


def test_a_microbatch_counts_more_than_the_batch_unless_it_is_switched_off() -> None:
    for microbatch, batch in ((2, 2), (-1, 256)):
        setting = named_setting(values_in((), [{"opt": {"batch_size": 256, "microbatch": microbatch}}]), BATCH)
        assert setting is not None
        assert setting.value == batch


def test_a_setting_says_where_it_is() -> None:
    values = values_in((), [{"config": TrainConfig()}])
    setting = named_setting(values, ACCUMULATION)
    assert setting is not None
    assert (setting.source, setting.is_sure) == ("config.training.accum_iter = 2", False)


@pytest.mark.parametrize(
    ("variables", "dtype"),
    [
        ({"args": Namespace(mixed_precision="bf16")}, "bf16-amp"),
        ({"trainer": {"precision": "16-mixed"}}, "fp16-amp"),
        ({"config": {"precision": "amp_bf16"}}, "bf16-amp"),
        ({"args": Namespace(use_amp=False, bf16=False)}, None),
        ({"args": Namespace(use_amp=True)}, "fp16-amp"),
        ({"config": {"AMP_OPT_LEVEL": "O1"}}, None),
        ({"config": {"AMP_OPT_LEVEL": "O0"}}, None),
        ({"meta": {"use_bfloat16": True}}, "bf16-amp"),
        ({"trainer": {"precision": "bf16-true"}}, None),
        ({"mixed_precision": True, "meta": {"dtype": "bfloat16"}}, "bf16-amp"),
        ({"mixed_precision": False, "meta": {"dtype": "bfloat16"}}, None),
    ],
)
def test_autocast_by_name(variables: dict[str, Any], dtype: str | None, mixing: None) -> None:
    setting = named_autocast(values_in((), [variables]))
    assert (setting and setting.value) == dtype


@pytest.fixture
def mixing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded module of the user's that uses autocast."""
    (tmp_path / "mixing.py").write_text("import torch\nautocast = torch.autocast\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "mixing", importlib.import_module("mixing"))


def test_the_first_level_of_apex_is_autocast_where_a_file_imports_it(tmp_path, monkeypatch, mixing) -> None:
    (tmp_path / "with_apex.py").write_text("try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    values = values_in((), [{"config": {"AMP_OPT_LEVEL": "O1"}}])
    assert named_autocast(values) is None
    importlib.import_module("with_apex")
    monkeypatch.delitem(sys.modules, "with_apex", raising=False)
    assert named_autocast(values) is None
    sys.modules["with_apex"] = importlib.import_module("with_apex")
    setting = named_autocast(values)
    assert setting is not None
    assert setting.value == "fp16-amp"


def test_sizes_are_whole_numbers_and_a_config_that_holds_itself_ends() -> None:
    config: dict[str, Any] = {"img_size": 224, "lr": 0.1, "name": "net", "layers": [1, 2]}
    config["itself"] = config
    assert sizes_of(values_in((), [{"config": config}])) == {"img_size": 224}


class Exp:
    def __init__(self) -> None:
        self.input_size = (640, 640)
        self.hidden = (1, 2)


def test_the_sides_of_images_are_read_wherever_settings_are() -> None:
    assert sizes_of(values_in((), [{"exp": Exp()}])) == {"input_size": 640}
    assert sizes_of(values_in((), [{"args": Namespace(image_size=[368, 496])}])) == {
        "image_height": 368,
        "image_width": 496,
    }
    assert sizes_of(values_in((), [{"cfg": {"IMG_SIZE": 48}}])) == {"IMG_SIZE": 48, "img_size": 48}
    assert sizes_of(values_in((), [{"cfg": {"image_size": UserList([640, 640])}}])) == {"image_size": 640}


def test_a_module_of_the_project_that_is_named_like_a_config_has_its_constants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constants_of_test.py").write_text("import math\nbatch_size = 6\nmax_length = 200\n_hidden = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("constants_of_test")
    monkeypatch.delitem(sys.modules, "constants_of_test")
    values = values_in((), [{"CFG": module, "other": module, "math_config": math}])
    assert sizes_of(values) == {"batch_size": 6, "max_length": 200}


class Config:
    optimizer = "sgd"
    momentum = 0.9


class Unfinished(dict[str, Any]):
    """A config of OmegaConf's kind, one value of which is yet to be given."""

    def __getitem__(self, key: str) -> Any:
        if key == "name":
            raise KeyError(key)
        return super().__getitem__(key)


def test_one_value_that_cannot_be_had_hides_no_other() -> None:
    assert sizes_of(values_in((), [{"cfg": Unfinished(name="???", batch_size=64)}])) == {"batch_size": 64}


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"config": {"optimizer": "RMSprop"}}, "rmsprop"),
        ({"optimizer_type": "adamw"}, "adamw"),
        ({"opt": Config()}, "sgd-momentum"),
        ({"args": Namespace(optim="sgd", momentum=0.0)}, "sgd"),
        ({"cfg": {"task": {"optimizer": {"type": "SGD", "args": {"momentum": 0.9}}}}}, "sgd-momentum"),
        ({"cfg": {"optimizer": {"class_path": "torch.optim.AdamW"}, "model": {"type": "adam"}}}, "adamw"),
        ({"args": Namespace(optimizer="lamb")}, None),
        ({"args": Namespace(note="adam")}, None),
    ],
)
def test_a_setting_names_the_optimizer(variables: dict[str, Any], name: str | None) -> None:
    setting = named_optimizer(values_in((), [variables]))
    assert (setting and setting.value) == name


def test_a_setting_that_names_a_data_set_says_the_size_of_its_images_unless_another_does() -> None:
    assert sizes_of(values_in((), [{"args": Namespace(dataset="CIFAR-10")}])) == {"image_size": 32}
    assert sizes_of(values_in((), [{"args": Namespace(dataset="cifar10", img_size=96)}])) == {"img_size": 96}
    assert sizes_of(values_in((), [{"args": Namespace(dataset="imagenet", logger="mnist")}])) == {}


class Defaults:
    train_batch_size = 16
    input_shape = (1, 128, 128)


class ModelConfig(Defaults):
    test_batch_size = 60

    def __init__(self) -> None:
        self.max_length = 200


class CFG:
    image_size = 384


def test_a_class_of_settings_has_what_it_states_for_all_its_objects() -> None:
    values = values_in((), [{"opt": ModelConfig()}])
    assert sizes_of(values) == {"max_length": 200, "train_batch_size": 16, "input_shape": 128}
    assert sizes_of(values_in((), [{"CFG": CFG}])) == {"image_size": 384}


def test_the_limit_of_a_language_model_in_its_config_is_no_length_of_its_training():
    config = {"model": {"vocab_size": 151_936, "context_length": 40_960}, "data": {"max_length": 16_384}}
    values = values_in([], [config])
    assert named_setting(lengths_in(values), LENGTH).value == 16_384
    config["model"]["context_length"] = 4096
    assert named_setting(lengths_in(values_in([], [config])), LENGTH).value == 4096


def test_the_sides_of_images_have_one_name_whatever_a_script_calls_them() -> None:
    sizes = sizes_of(values_in((), [{"config": {"input_h": 512, "input_w": 384}}]))
    assert (sizes["image_height"], sizes["image_width"]) == (512, 384)


@pytest.mark.parametrize(("scale", "side"), [(4, 64), (1, 256)])
def test_images_are_as_many_times_smaller_than_what_a_model_makes_of_them_as_its_scale_says(scale, side):
    values = [Value(("opt", "scale"), scale), Value(("opt", "datasets", "train", "gt_size"), 256)]
    assert sizes_of(values)["image_size"] == side
    assert sizes_of([*values, Value(("opt", "img_size"), 48)]).get("image_size") is None


def test_what_the_program_makes_of_a_typed_number_counts() -> None:
    halved = [Value(("args", "batch_size"), 256), Value(("args", "epochs"), 3)]
    assert with_typed(["--batch_size", "512", "--epochs", "3"], halved) == [Value(("epochs",), 3), *halved]
    assert with_typed(["--batch_size", "512"], halved[1:]) == [Value(("batch_size",), 512), *halved[1:]]
