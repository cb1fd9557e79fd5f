from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.base.errors import UsageError
from memlint.memory.records import Assumption
from memlint.targets.workload import DTYPES, InputSpec, Workload
from memlint.targets.workload_tables import render_declaration, toml
from tests.workloads.tables import read_workloads

names = st.text(min_size=1, max_size=12)
dimensions = st.dictionaries(st.sampled_from(["seq", "_side", "höhe"]), st.integers(1, 2**31 - 1))
sizes = st.integers(0, 10**6) | st.sampled_from(["batch", "seq", "_side", "12*batch", "3*_side"])
bounds = st.none() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
tensors = st.builds(
    InputSpec,
    names,
    st.lists(sizes, max_size=4).map(tuple),
    st.sampled_from(DTYPES[:-1]),
    bounds,
    bounds,
    st.lists(st.tuples(st.integers(-99, 10**6), st.integers(1, 999)), max_size=3).map(tuple),
)
counted = st.builds(
    InputSpec,
    names,
    st.lists(sizes, min_size=1, max_size=4).map(tuple),
    st.just("int64"),
    bounds,
    counted=st.just(True),
)
constants = st.builds(InputSpec.constant, names, st.booleans() | st.integers(-99, 99) | st.text(max_size=5))
workloads = st.builds(
    lambda dimensions, **settings: Workload(
        **settings,
        # The names in the shapes have sizes.
        dimensions=dimensions | {name: 3 for spec in settings["inputs"] or () for name in spec.dimensions},
    ),
    name=names,
    target=st.just("model.py::Net"),
    mode=st.sampled_from(["train", "inference"]),
    batch=st.integers(1, 512),
    dtype=st.sampled_from(["float32", "bfloat16", "bf16-amp"]),
    optimizer=st.sampled_from(["adamw", "none"]),
    inputs=st.none() | st.lists(tensors | counted | constants, max_size=3, unique_by=lambda spec: spec.name).map(tuple),
    arguments=st.dictionaries(names, st.integers() | st.booleans() | names | st.lists(names, max_size=2), max_size=3),
    adapter=st.dictionaries(names, st.integers() | names | st.lists(names, max_size=2), max_size=2),
    dimensions=dimensions,
    origin=st.just("config"),
)


def read(text: str, folder: Path) -> tuple[Workload, ...]:
    (folder / "model.py").touch()
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return read_workloads(folder / "pyproject.toml")


@given(workloads, names)
def test_what_init_prints_reads_back_as_the_same_workload(workload, text):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        workload = replace(workload, path=str(folder / "model.py"), qualname="Net", loss=f"{folder}/model.py::loss")
        printed = render_declaration(workload, [Assumption(text, None)], folder)
        assert str(folder) not in printed
        assert read(printed, folder) == (workload,)


def test_a_table_reads_as_the_design_writes_it(tmp_path):
    (workload,) = read(
        """
[[tool.memlint.workload]]
name = "gpt-small"
target = "model.py::build"
inputs = { tokens = { shape = ["batch", 1024], dtype = "int64", high = 50257 }, return_loss = true }
mode = "inference"
loss = "model.py::loss"
batch = 4
dtype = "bf16-amp"
gpu = "h100-80gb"
""",
        tmp_path,
    )
    assert workload == Workload(
        "gpt-small",
        "model.py::build",
        str(tmp_path / "model.py"),
        "build",
        "inference",
        4,
        "bf16-amp",
        gpu="h100-80gb",
        loss=f"{tmp_path}/model.py::loss",
        inputs=(
            InputSpec("tokens", ("batch", 1024), "int64", high=50257),
            InputSpec.constant("return_loss", value=True),
        ),
        origin="config",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("batchsize = 3", "unknown key batchsize"),
        ("batch = 0", "batch is 0"),
        ("batch = true", "batch is True"),
        ('mode = "eval"', "mode 'eval' is unknown"),
        ('dtype = "fp8"', "dtype 'fp8' is unknown"),
        ("optimizer = 3", "optimizer is 3"),
        ('inputs = { x = { dtype = "int64" } }', "input x has no shape"),
        ('inputs = { x = { shape = ["seq"] } }', "'seq' is not a size"),
        ('inputs = { x = { shape = ["no name"] } }', "'no name' is not a size"),
        ("dimensions = 3", "dimensions is 3"),
        ("adapter = 3", "adapter is 3"),
        ("dimensions = { seq = 0 }", "dimension seq is 0"),
        ("dimensions = { seq = 2147483648 }", "dimension seq is 2147483648"),
        ("dimensions = { seq = true }", "dimension seq is True"),
        ("dimensions = { seq = 1.5 }", "dimension seq is 1.5"),
        ('dimensions = { seq = "long" }', "dimension seq is 'long'"),
        ("dimensions = { batch = 3 }", "'batch' cannot be the name of a dimension"),
        ('dimensions = { "2x" = 3 }', "'2x' cannot be the name of a dimension"),
        ("dimensions = { seq = 3 }\narguments = { seq = 3 }", "seq is one of its arguments and one of its dimensions"),
        ('inputs = { x = { shape = [1], dtype = "int65" } }', "'int65' is not a dtype"),
        ('inputs = { x = { shape = ["0*batch"] } }', "'0.batch' is not a size"),
        ('inputs = { x = { shape = [4], dtype = "int64", runs = [7] } }', "input x: runs is"),
        ('inputs = { x = { shape = [4], dtype = "int64", runs = [[7, 1.5]] } }', "input x: runs is"),
        ('inputs = { x = { shape = [], dtype = "int64", counted = true } }', "input x: it has no dimension"),
        ('inputs = { x = { shape = [4], dtype = "int64", counted = "yes" } }', "input x: counted is 'yes'"),
        ("inputs = [1]", "inputs is not a table"),
    ],
)
def test_tables_that_make_no_sense_say_what_is_wrong(tmp_path, line, said):
    with pytest.raises(UsageError, match=said):
        read(f'[[tool.memlint.workload]]\ntarget = "model.py::Net"\n{line}\n', tmp_path)


def test_a_target_that_is_a_whole_file_says_what_is_missing(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "vit.py").write_text("")
    with pytest.raises(UsageError, match="does not say what in the file gives the model") as caught:
        read('[[tool.memlint.workload]]\ntarget = "models/vit.py"\n', tmp_path)
    assert 'target = "models/vit.py::Name"' in caught.value.hint


def test_an_unknown_name_in_a_shape_says_which_there_are(tmp_path):
    table = '[[tool.memlint.workload]]\ntarget = "model.py::Net"\ndimensions = {{ seq = 8 }}\ninputs.x.shape = ["{}"]\n'
    for name, hint in (("sec", 'Did you mean "seq"?'), ("width", 'Write a whole number or one of "batch", "seq".')):
        with pytest.raises(UsageError, match=f"workload Net: input x: '{name}' is not a size") as caught:
            read(table.format(name), tmp_path)
        assert caught.value.hint == f"{hint} A dimension is declared as dimensions = {{ {name} = 1024 }}."
    assert read(table.format("seq"), tmp_path)[0].inputs[0].sizes(3, {"seq": 8}) == (8,)


def test_two_workloads_of_one_name_are_refused(tmp_path):
    table = '[[tool.memlint.workload]]\nname = "a"\ntarget = "model.py::Net"\n'
    with pytest.raises(UsageError, match="two workloads are named a"):
        read(table + table, tmp_path)


def test_declaring_and_reading_workloads_does_not_import_torch():
    code = "import sys, memlint.targets.declare, memlint.targets.workload_tables; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_numbers_of_numpy_are_written_as_numbers():
    assert toml({"dims": [np.int64(4), np.float32(0.5)], "n": True}) == "{ dims = [4, 0.5], n = true }"
