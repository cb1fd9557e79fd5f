"""Workloads as a script has built them: whole models before parts, inputs as they were given, settings of its step."""

from __future__ import annotations

import argparse
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from memlint.memory.records import Frame
from memlint.targets.built import Asked, Built, BuiltClass, BuiltInput, BuiltModel, BuiltOptimizer, Setting
from memlint.targets.script import Ending
from memlint.targets.workload import Workload
from memlint.workloads.as_built import with_inputs
from memlint.workloads.construction.construct import completed_program
from memlint.workloads.construction.recorded_arguments import dump_arguments, load_arguments
from memlint.workloads.discover import find_workloads
from memlint.workloads.placeholders.objects import placeholder_for

NETS = """
class Part(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x):
        return self.layer(x)

class Net(nn.Module):
    def __init__(self, args, part):
        super().__init__()
        self.part, self.head = part, Part(args.width)
    def forward(self, x, boxes=None):
        return self.head(self.part(x)) + sum(each["box"].sum() for each in boxes or ())
"""
OTHERS = "\nclass Other(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n        self.layer = nn.Linear(n, 1)\n    def forward(self, x):\n        return self.layer(x)\n"


def kind(path: Path, name: str, *arguments: object, **named: object) -> dict[str, object]:
    """Fields of a class that was built with these arguments."""
    frame = Frame("/project/train.py", 7, "main")
    fields = {"module": "model", "qualname": name, "path": str(path), "num_parameters": 9, "frame": frame}
    return {**fields, "arguments": dump_arguments(arguments, named), "shown": f"{name}(...)"}


def asked(*models: BuiltModel, **fields: object) -> Asked:
    built = Built("train.py --lr 1", Ending("no data"), tuple(models), **fields)  # type: ignore[arg-type]
    return Asked(built, "train.py --lr 1", ("finetune.py",))


def found(path: Path, told: Asked, name: str = "", **overrides: object) -> list:
    return list(find_workloads(f"{path}{name}", path.parent, overrides=overrides, asked=told).workloads)


def test_arguments_of_a_missing_package_cannot_be_repeated():
    space = placeholder_for("gym.make().observation_space")
    assert dump_arguments((space,), {}) is None
    assert dump_arguments((64,), {"sizes": [space]}) is None
    assert dump_arguments((64,), {}) is not None


def test_settings_are_repeated_without_what_else_a_script_keeps_in_them():
    lock = threading.Lock()
    settings = argparse.Namespace(width=4, data=argparse.Namespace(size=32, lock=lock), lock=lock)
    data = dump_arguments((settings,), {})
    assert data is not None
    assert load_arguments(data)[0] == (argparse.Namespace(width=4, data=argparse.Namespace(size=32)),)
    assert dump_arguments((threading.Lock(),), {}) is None


def test_modules_among_the_arguments_have_their_classes_and_shapes_again_and_what_was_one_tensor_is_one():
    layer = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5))
    layer[1].weight.requires_grad_(False)
    layer[1].bias = layer[0].bias
    data = dump_arguments((layer,), {"scale": torch.zeros(4, dtype=torch.float16)})
    assert data is not None
    assert len(data) < 4000
    (again,), named = load_arguments(data)
    assert [tuple(each.shape) for each in again.state_dict().values()] == [(5, 3), (5,), (5, 5), (5,)]
    assert again[1].bias is again[0].bias
    assert not again[1].weight.requires_grad
    assert named["scale"].dtype is torch.float16


def test_a_model_is_built_with_the_arguments_and_inputs_of_the_script(write):
    path = write(NETS)
    inputs = (
        BuiltInput("x", (6, 4), "float32"),
        *(BuiltInput(f"boxes.{i}.box", (i, 4), "float32") for i in range(6)),
    )
    arguments = kind(path, "Net", argparse.Namespace(width=4), nn.Linear(4, 4))
    told = asked(
        BuiltModel(**arguments, is_called=True, has_optimizer=True, inputs=inputs),
        BuiltModel(**kind(path, "Net"), is_copy=True),
        optimizers=(BuiltOptimizer("SGD", {"momentum": 0.9}, 9), BuiltOptimizer("Adam", {}, 2)),
        batch=Setting(6, "DataLoader(batch_size=6)"),
        dtype=Setting("bf16-amp", "autocast"),
        accumulation=Setting(8, "accum = 8"),
        criteria=("MSELoss",),
    )
    (workload,) = found(path, told)
    assert (workload.target, workload.batch, workload.dtype) == (f"{path}::Net", 6, "bf16-amp")
    assert (workload.optimizer, workload.loss, workload.accumulation, workload.copies) == (
        "sgd-momentum",
        "MSELoss",
        8,
        1,
    )
    assert workload.built_by == "as train.py --lr 1 builds it"
    assert not workload.assumed
    assert [(each.name, each.shape) for each in workload.inputs] == [("x", ("batch", 4)), ("boxes[].box", (5, 4))]
    program = completed_program(workload, path.parent, "cpu")
    program.setup()
    assert program.accumulation_steps == 2
    assert not any(each.requires_grad for each in program.copies[0].parameters())
    program.step()
    (typed,) = found(path, told, batch=3, dtype="float32", optimizer="adam")
    assert (typed.batch, typed.dtype, typed.optimizer) == (3, "float32", "adam")
    assert typed.inputs[0].shape == ("batch", 4)


@pytest.mark.parametrize(("made_up", "is_said"), [("the file a.pkl is not there", True), ("", False)])
def test_a_script_that_made_up_data_ended_before_the_first_call_says_so(write, made_up, is_said):
    path = write(NETS)
    model = BuiltModel(**kind(path, "Net", argparse.Namespace(width=4), nn.Linear(4, 4)))
    told = asked(model, made_up=made_up)
    failed = replace(told.built, ending=Ending("the script raised TypeError: got Record", is_failure=True))
    (workload,) = found(path, replace(told, built=failed))
    assert (", which ended on made-up data before it called it" in workload.built_by) is is_said


def test_a_batch_that_is_divided_among_gpus_is_said_to_be_so(write):
    path = write(NETS)
    model = BuiltModel(**kind(path, "Net", argparse.Namespace(width=4), nn.Linear(4, 4)), num_gpus=4)
    (workload,) = found(path, asked(model))
    assert workload.built_by.endswith("the first of 4 GPUs, among which DataParallel divides the batch")
    assert workload.num_gpus == 4


@pytest.mark.parametrize(
    ("shape", "batch", "named"),
    [
        ((8, 5), 4, (4, "2*batch", 5)),
        ((5, 4, 3), 4, (4, 5, "batch", 3)),
        ((2, 3), 4, (2, "batch", 3)),
    ],
)
def test_the_batch_is_where_the_inputs_have_it(write, shape, batch, named):
    path = write(OTHERS)
    model = BuiltModel(**kind(path, "Other", shape[-1]), is_called=True, inputs=(BuiltInput("x", shape, "float32"),))
    (workload,) = found(path, asked(model, batch=Setting(batch, "DataLoader", None)))
    assert (workload.batch, *workload.inputs[0].shape) == named


@pytest.mark.parametrize(("width", "added"), [(5, None), (4, ["x", "flag"])], ids=["others", "one is lacking"])
def test_inputs_that_the_model_does_not_take_alone_are_looked_for_unless_it_takes_them_with_another(
    write, width, added
):
    path = write(OTHERS.replace("self, x", "self, x, flag"))
    model = BuiltModel(**kind(path, "Other", 4), is_called=True, inputs=(BuiltInput("x", (2, width), "float32"),))
    (workload,) = found(path, asked(model))
    assert (workload.inputs and [each.name for each in workload.inputs]) == added


def test_both_models_of_a_script_that_trains_two_are_found_and_one_that_it_only_uses_is_not(write):
    path = write(NETS + OTHERS + OTHERS.replace("Other", "Judge"))
    trained = [BuiltModel(**kind(path, name, 3), has_optimizer=True) for name in ("Other", "Judge")]
    workloads = found(path, asked(*trained, BuiltModel(**kind(path, "Part", 64))))
    assert {each.name for each in workloads} == {"Other", "Judge"}


def test_a_part_is_offered_only_without_the_whole_and_called_one(write):
    path, elsewhere = write(NETS), "/project/system.py"
    part, inner = BuiltClass(**kind(path, "Part", 4)), nn.Linear(4, 4)
    whole = BuiltModel(**kind(path, "Net", argparse.Namespace(width=4), inner), parts=(part,))
    system = BuiltModel(
        **{**kind(path, "System"), "path": elsewhere}, parts=(BuiltClass(**kind(path, "Part", 8)), part)
    )
    assert [(each.name, each.built_by[:7]) for each in found(path, asked(whole, system))] == [("Net", "as trai")]
    (workload,) = found(path, asked(system))
    assert workload.built_by == "part of System, built by train.py --lr 1"
    named = replace(whole, qualname="Net")
    assert [each.name for each in found(path, asked(named), "::Part")] == ["Part"]


def test_a_part_that_the_script_calls_by_itself_has_the_inputs_of_that_call(write):
    path, inputs = write(NETS), (BuiltInput("x", (6, 5, 4), "float32"),)
    part = BuiltClass(**kind(path, "Part", 4), inputs=inputs)
    averages = BuiltModel("ema", "EMA", "/site-packages/ema.py", 99, is_called=True, has_optimizer=True, parts=(part,))
    (workload,) = found(path, asked(averages, dtype=Setting("float32", "the parameters")))
    assert [each.shape for each in workload.inputs] == [("batch", 5, 4)]
    assert (workload.batch, "dtype" in workload.assumed) == (6, False)


def test_of_several_parts_the_large_one_that_comes_first_is_offered(write):
    path = write(NETS + OTHERS)
    names = {"Other": (1, 5), "Part": (6, 60), "Net": (7, 90)}
    parts = [BuiltClass(**{**kind(path, name, n), "num_parameters": size}) for name, (n, size) in names.items()]
    model = BuiltModel("wrap", "Wrap", "/elsewhere/wrap.py", 99, is_called=True, has_optimizer=True, parts=tuple(parts))
    (workload,) = found(path, asked(model))
    assert (workload.name, workload.built_by) == ("Part", "part of Wrap, built by train.py --lr 1")


def test_data_that_was_made_up_for_the_script_is_said(write):
    path = write(NETS)
    model = BuiltModel(**kind(path, "Part", 4), is_called=True, inputs=(BuiltInput("x", (6, 4), "float32"),))
    (workload,) = found(path, asked(model, made_up="words.txt is not there: replaced by 64 lines"))
    texts = [each.text for each in workload.found if not each.found]
    told = (
        "sizes that come from the script's data are those of made-up data: words.txt is not there: replaced by 64 lines"
    )
    assert told in texts


@pytest.mark.parametrize(
    ("made_up", "items", "batch"),
    [("the folder data is not there", 3, 32), ("the folder data is not there", 640, 4), ("", 3, 4)],
    ids=["fewer than a batch", "the script takes parts of a batch", "the project's own data"],
)
def test_data_that_was_made_up_has_a_whole_batch(write, made_up, items, batch):
    path = write(NETS + OTHERS)
    size = Setting(32, "DataLoader(batch_size=32)")
    inputs = (BuiltInput("x", (3 if items == 3 else 4, 8), "float32"),)
    inputs = inputs if made_up else (BuiltInput("x", (4, 8), "float32"),)
    model = BuiltModel(**kind(path, "Other", 8), inputs=inputs, is_called=True)
    (workload,) = found(path, asked(model, batch=size, made_up=made_up, fewest_items=items))
    assert workload.batch == batch


def test_a_file_of_functions_has_the_model_that_one_of_them_has_built(write, tmp_path):
    (tmp_path / "layers_of_test.py").write_text("import torch\nfrom torch import nn\n" + OTHERS)
    path = write(
        "import sys; sys.path.insert(0, str(__file__).rpartition('/')[0])\nfrom layers_of_test import Other\ndef small(n):\n    return Other(n)\n"
    )
    fields = kind(tmp_path / "layers_of_test.py", "Other", 8) | {"frame": Frame(str(path), 5, "small")}
    (workload,) = found(path, asked(BuiltModel(**fields, has_optimizer=True), batch=Setting(16, "DataLoader")))
    assert (workload.name, workload.batch, workload.built_by) == ("Other", 16, "as train.py --lr 1 builds it")


def test_models_of_the_file_that_the_script_does_not_build_are_named(write):
    path = write(NETS + OTHERS)
    model = BuiltModel(**kind(path, "Other", 8), is_called=True)
    (workload,) = found(path, asked(model))
    said = "the file has models that this script does not build: Net; name one with ::Net"
    assert said in [each.text for each in workload.found]
    (named,) = found(path, asked(model), "::Other")
    assert said not in [each.text for each in named.found]


def test_a_script_that_only_evaluates_says_so(write):
    path = write(OTHERS)
    model = BuiltModel(
        **kind(path, "Other", 4), is_called=True, is_training=False, inputs=(BuiltInput("x", (1, 4), "float32"),)
    )
    (workload,) = found(path, asked(model))
    assert (workload.mode, workload.batch) == ("inference", 1)


def test_a_script_that_ends_before_it_calls_a_model_in_evaluation_does_not_train_it_nor_keep_its_average(write):
    path = write(OTHERS)
    model = BuiltModel(**kind(path, "Other", 4), is_training=False)
    rest = BuiltModel(**{**kind(path, "Rest"), "path": "", "num_parameters": 2})
    copy = replace(model, is_copy=True)
    (workload,) = found(path, asked(rest, model, copy))
    assert (workload.mode, workload.copies) == ("inference", 0)
    assert "mode inference: train.py --lr 1 does not train it" in [each.text for each in workload.found]
    (workload,) = found(path, asked(rest, model, copy, stated_optimizer=Setting("adam", "Adam")))
    assert (workload.mode, workload.copies) == ("train", 1)


def test_an_optimizer_that_memlint_does_not_know_is_named(write):
    path = write(OTHERS)
    told = asked(BuiltModel(**kind(path, "Other", 4), has_optimizer=True), optimizers=(BuiltOptimizer("Lion"),))
    (workload,) = found(path, told)
    assert "optimizer adamw: for Lion" in [each.text for each in workload.found]
    assert "optimizer" not in workload.assumed


def test_what_cannot_be_built_so_is_guessed_as_ever(write):
    path = write(OTHERS.replace("self, n)", "self, n=6)"))
    told = asked(BuiltModel(**kind(path, "Other", "no number")))
    (workload,) = found(path, told)
    assert not workload.built_by


def test_another_script_that_builds_the_model_says_nothing_of_the_one_that_trains_it(write):
    path = write(NETS)
    (path.parent / "count.py").write_text("from model import Part\ntext_length = 150\nprint(Part(8))\n")
    (workload,) = found(path, asked(BuiltModel(**kind(path, "Part", 4))))
    assert "length" not in workload.sizes


@pytest.mark.parametrize(
    ("shapes", "named"),
    [
        ([(2, 3, 64, 80), (2, 8, 5)], [("x.0", ("batch", 3, 64, 80)), ("x.1", ("batch", 8, 5))]),
        ([(2, 3, 64, 64), (2, 3, 64, 64)], [("x.0", ("batch", 3, 64, 64)), ("x.1", ("batch", 3, 64, 64))]),
        ([(3, 64, 80), (3, 48, 60)], [("x[]", (3, 64, 80))]),
    ],
    ids=["an image and its labels", "two views", "images of the batch"],
)
def test_a_list_is_of_the_items_of_a_batch_if_its_entries_are(shapes, named):
    given = [BuiltInput(f"x.{number}", shape, "float32") for number, shape in enumerate(shapes)]
    workload = with_inputs(Workload("net", "net"), given, Setting(2, "batch_size=2"))
    assert [(each.name, each.shape) for each in workload.inputs] == named


def test_the_size_of_images_is_the_one_that_the_script_had_and_no_other_of_its_project(write):
    net = "class Conv(nn.Conv2d):\n    def __init__(self, n):\n        super().__init__(3, n, 3)\n"
    path = write(
        f"{net}\ndef main():\n    size = 64\n    transform = Resize(size)\n    model = Conv(4)\n    model(x).backward()\n"
    )
    model = BuiltModel(**kind(path, "Conv", 4))
    (workload,) = found(path, asked(model, sizes={"image_size": 96}))
    assert workload.sizes["image_size"] == 96
    assert not any(each.text.startswith("image size") for each in workload.found)


def test_indices_of_a_recorded_part_are_some_that_every_table_has():
    part = torch.nn.Linear(2, 2)
    part.register_buffer("index", torch.full((1000,), 7))
    data = dump_arguments((part,), {})
    assert data is not None
    (built,), _named = load_arguments(data)
    assert (built.index.tolist(), built.weight.shape) == ([0] * 1000, (2, 2))
