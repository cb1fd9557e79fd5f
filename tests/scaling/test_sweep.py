"""`memlint sweep` as a user runs it, and the tables it makes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from click.testing import CliRunner

from memlint.base.errors import UsageError
from memlint.cli import main
from memlint.commands.sweep.sweep import order_of, sizes_of
from memlint.commands.sweep.tables_text import render
from memlint.config import Settings
from memlint.report.model import Interval, Sweep, SweepRow
from memlint.report.tables import Order, Tables
from memlint.report.text_style import TextStyle
from memlint.worker.protocol import Request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("copied_pythons")

pytest.importorskip("torch")

FILE = """
import torch
from torch import nn

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4096, 4096)

    def forward(self, x):
        return self.layer(x).tanh()

class Norm(Plain):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4096)

    def forward(self, x):
        return self.norm(self.layer(x))

class Halved(Plain):
    def forward(self, x):
        return self.layer(x[: (len(x) + 1) // 2])

class Short(Plain):
    def forward(self, x):
        assert len(x) < 20, "at most 19 at a time"
        return self.layer(x)

def fixed():
    return Plain()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(FILE)
    return tmp_path


def swept(folder: Path, name: str, *batches: int, **asked: object):
    from memlint.session.tables import sweep
    from memlint.session.target import Target

    order = Order.model_validate({"batches": batches, "dtypes": (), "gpus": (), **asked})
    request = Request(
        target=f"model.py::{name}",
        path=str(folder / "model.py"),
        qualname=name,
        root=str(folder),
        settings=Settings(),
    )
    return sweep(Target(request), order).sweeps


def checked(folder: Path, name: str, batch: int, **options: object):
    from tests.in_process import analyse

    settings = Settings.model_validate({"select": ["MEM010"], "batch": batch, **options})
    path = str(folder / "model.py")
    request = Request(target=name, path=path, qualname=name, root=str(folder), settings=settings)
    (workload,) = analyse(request).workloads
    assert workload.estimate is not None
    return workload


def test_all_dtypes_are_those_that_train():
    assert order_of("1", "all", None, []).dtypes == ("float32", "bfloat16", "float16", "bf16-amp", "fp16-amp")
    assert order_of("1", "bf16,4bit", None, []).dtypes == ("bfloat16", "nf4")


def test_every_row_says_what_check_says(folder: Path) -> None:
    (sweep,) = swept(folder, "Plain", 1, 2, 6, 1000)
    assert [row.evidence for row in sweep.rows] == ["traced", "traced", "computed", "computed"]
    assert sweep.largest is not None
    assert sweep.largest.evidence == "traced"
    for row in sweep.rows:
        workload = checked(folder, "Plain", row.batch)
        for name in ("requested", "allocated", "reserved", "device"):
            assert getattr(row, name).model_dump() == getattr(workload.estimate.peak, name).model_dump(), row.batch
        assert workload.verdict is not None
        assert row.outcome == workload.verdict.outcome
    assert sweep.note is None
    assert sweep.traced == [1, 2, 3, 4, sweep.largest.batch]


def test_one_more_than_the_largest_does_not_surely_fit(folder: Path) -> None:
    (sweep,) = swept(folder, "Plain", 8, gpus=("t4",))
    assert sweep.is_limit
    assert sweep.largest is not None
    assert sweep.largest.evidence == "traced"
    assert sweep.largest.batch in sweep.traced
    for more, outcomes in ((0, {"fits"}), (1, {"uncertain", "does not fit"})):
        verdict = checked(folder, "Plain", sweep.largest.batch + more, gpu="t4").verdict
        assert verdict is not None
        assert verdict.outcome in outcomes


def test_each_dtype_on_each_gpu_is_a_table(folder: Path) -> None:
    sweeps = swept(folder, "Plain", 4, 64, dtypes=("float32", "bf16-amp"), gpus=("t4", "h100-80gb"))
    assert [(each.gpu, each.dtype) for each in sweeps] == [
        ("t4", "float32"), ("t4", "bf16-amp"), ("h100-80gb", "float32"), ("h100-80gb", "bf16-amp"),
    ]  # fmt: skip
    peaks = {(each.gpu, each.dtype): each.rows[1].requested for each in sweeps}
    assert len(set(map(str, peaks.values()))) == 4


def test_the_host_has_no_limit_that_a_batch_could_exceed(folder: Path) -> None:
    (sweep,) = swept(folder, "Plain", 4, 64, gpus=("cpu",))
    assert [row.outcome for row in sweep.rows] == [None, None]
    assert sweep.largest is None
    for color in (False, True):
        text = render(Tables(tool="memlint 0", torch="2", sweeps=[sweep]), "text", TextStyle(color=color))
        assert "Plain on the host: " in text
        assert "fit" not in text


def test_a_batch_that_the_model_rejects_is_said_and_the_others_are_there(folder: Path) -> None:
    (sweep,) = swept(folder, "Norm", 1, 16)
    assert sweep.rows[0].error is not None
    assert "more than 1 value per channel" in sweep.rows[0].error
    assert sweep.rows[1].outcome == "fits"
    (short,) = swept(folder, "Short", 8, 64)
    assert "at most 19 at a time" in (short.rows[1].error or "")
    assert short.rows[0].outcome == "fits"
    assert short.largest is not None
    assert (short.largest.batch, short.is_limit) == (19, True)


def test_what_does_not_follow_is_traced(folder: Path) -> None:
    (sweep,) = swept(folder, "Halved", 5, 9, 64)
    assert {row.evidence for row in sweep.rows} == {"traced"}
    assert sweep.note
    for row in sweep.rows:
        peak = checked(folder, "Halved", row.batch).estimate.peak
        assert row.requested is not None
        assert row.requested.estimate == peak.requested.estimate
    assert not sweep.is_limit


SEQUENCE = """
import torch
from torch import nn

class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.layer(x).view(*x.shape[:2], 3, 4, 16).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

def memlint_workload(batch, seq=32):
    assert seq < 5000, "at most 4999 long"
    return Attends(), {"x": torch.randn(batch, seq, 64)}

def single(batch):
    return nn.Linear(8, 8), {"input": torch.randn(batch, 8)}
"""


@pytest.mark.parametrize("lengths", [(32, 96), (32, 96, 128, 480, 1024)])
def test_every_sequence_length_says_what_check_says(folder: Path, lengths: tuple[int, ...]) -> None:
    (folder / "model.py").write_text(SEQUENCE)
    sweeps = swept(folder, "memlint_workload", 2, 6, 100, dimensions={"seq": lengths}, gpus=("t4",))
    assert [each.dimensions for each in sweeps] == [{"seq": length} for length in lengths]
    evidence = {(sweep.dimensions["seq"], row.batch): row.evidence for sweep in sweeps for row in sweep.rows}
    assert evidence[96, 6] == "computed"
    for sweep in sweeps:
        for row in sweep.rows:
            workload = checked(folder, "memlint_workload", row.batch, dimensions=sweep.dimensions, gpu="t4")
            for name in ("requested", "allocated", "reserved", "device"):
                assert getattr(row, name).model_dump() == getattr(workload.estimate.peak, name).model_dump()
    largest = [each.largest.batch for each in sweeps if each.largest is not None and each.is_limit]
    assert len(largest) == len(lengths)
    assert largest == sorted(largest, reverse=True)


def test_a_length_that_the_model_rejects_is_said_and_the_others_are_there(folder: Path) -> None:
    (folder / "model.py").write_text(SEQUENCE)
    sweeps = swept(folder, "memlint_workload", 4, dimensions={"seq": (64, 8192)})
    assert sweeps[0].rows[0].outcome == "fits"
    assert "at most 4999 long" in (sweeps[1].rows[0].error or "")


def test_an_unknown_dimension_is_named_with_those_there_are(folder: Path) -> None:
    (folder / "model.py").write_text(SEQUENCE)
    (known,) = swept(folder, "memlint_workload", 4, dimensions={"width": (64,)})
    assert "no dimension width" in (known.error or "")
    assert "seq" in known.hint
    (single,) = swept(folder, "single", 4, dimensions={"width": (64,)})
    assert "def memlint_workload(batch, width=1024)" in single.hint


def test_lengths_stand_in_one_table(folder: Path) -> None:
    (folder / "model.py").write_text(SEQUENCE)
    command = ["sweep", "model.py", "--batch", "8", "--seq", "64,256", "--gpu", "t4"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[2].split() == ["seq", "batch", "requested", "allocated", "reserved", "device"]
    assert [line.split()[:2] for line in lines[3:5]] == [["64", "8"], ["256", "8"]]
    (largest,) = [line for line in lines if "The largest batch that fits: " in line]
    assert largest.count(" tokens) at seq 64") == largest.count(" tokens) at seq 256") == 1


def test_inputs_that_never_change_are_an_error(folder: Path) -> None:
    (folder / "model.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def memlint_workload():\n    return nn.Linear(8, 8), {'input': torch.randn(4, 8)}\n"
    )
    result = CliRunner().invoke(main, ["sweep", "model.py"])
    assert result.exit_code == 2
    assert "does not depend on the batch size" in result.stderr
    assert "def memlint_workload(batch)" in result.stderr


@pytest.mark.parametrize(
    ("text", "batches"),
    [
        ("8", (8,)),
        ("32,1, 8,8", (1, 8, 32)),
        ("1:512", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
        ("3:20", (3, 6, 12, 20)),
        ("7:7", (7,)),
        ("2147483647", (2**31 - 1,)),
    ],
)
def test_batches_are_read(text: str, batches: tuple[int, ...]) -> None:
    assert sizes_of(text, "--batch") == batches


@pytest.mark.parametrize(
    "text", ["0", "-1", "x", "", " , ", "1:", ":4", "8:4", "1:2:3", "0:4", "1.5", "2147483648", "9" * 5000, "²", "1e3"]
)
def test_sizes_that_make_no_sense_are_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="--batch") as caught:
        sizes_of(text, "--batch")
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", ["seq", "seq=", "=8", "seq=0", "seq=x", "1a=4", "batch=4", "seq=4294967296", "seq=8:4"]
)
def test_dimensions_that_make_no_sense_are_an_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        order_of("1", None, None, [text])
    assert caught.value.hint


def test_a_dimension_is_given_once() -> None:
    assert order_of("1", None, None, ["seq=512:2048", "height=64"]).dimensions == {
        "seq": (512, 1024, 2048),
        "height": (64,),
    }
    with pytest.raises(UsageError, match="twice"):
        order_of("1", None, None, ["seq=1", "seq=2"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "0"], "'0' is no size"),
        (["--dtype", "float8"], "'float8' is unknown"),
        (["--gpu", "a101"], "a101"),
    ],
)
def test_a_wrong_option_is_one_message(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(main, ["sweep", "model.py", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_a_broken_file_is_one_message(folder: Path) -> None:
    (folder / "broken.py").write_text("import no_such_package\n")
    result = CliRunner().invoke(main, ["sweep", "broken.py"])
    assert result.exit_code == 2
    assert "no_such_package" in result.stderr
    assert "Traceback" not in result.stderr


RANGE = Interval(low=3 << 30, estimate=4 << 30, high=5 << 30)
ROWS = (
    SweepRow(batch=1, error="no single one"),
    SweepRow(
        batch=8, requested=RANGE, allocated=RANGE, reserved=RANGE, device=RANGE, outcome="fits", evidence="computed"
    ),
    SweepRow(batch=16, requested=RANGE, allocated=RANGE, reserved=RANGE, device=RANGE, outcome="does not fit"),
)
SWEEP = Sweep(
    name="Net", target="net.py::Net", mode="train", optimizer="adamw", dtype="bf16-amp", gpu="t4", gpu_title="NVIDIA T4",
    gpu_nbytes=15 << 30, rows=list(ROWS), largest=ROWS[1], is_limit=True, traced=[2, 3, 4, 16],
)  # fmt: skip
TABLE = Tables(tool="memlint 0", sweeps=(SWEEP,))


def test_a_table_as_text() -> None:
    assert render(TABLE, "text", TextStyle()) == (
        "Net on NVIDIA T4 (15.0 GiB): train step, bf16-amp, adamw\n\n"
        "  batch  requested  allocated  reserved    device\n"
        "      1                                            no single one\n"
        "      8   4.00 GiB   4.00 GiB  4.00 GiB  4.00 GiB  fits\n"
        "     16   4.00 GiB   4.00 GiB  4.00 GiB  4.00 GiB  does not fit\n\n"
        "  The largest batch that fits is 8, with 4.00 GiB (3.00 GiB to 5.00 GiB).\n"
        "  Traced at 2, 3, 4, 16; the others follow from these, kernel by kernel.\n"
    )


def test_a_table_as_markdown_csv_and_json() -> None:
    markdown = render(TABLE, "markdown", TextStyle())
    assert markdown.startswith("### Net on NVIDIA T4")
    assert "|       8 |    4.00 GiB |" in markdown
    rows = list(csv.DictReader(io.StringIO(render(TABLE, "csv", TextStyle()))))
    assert [row["batch"] for row in rows] == ["1", "8", "16"]
    assert rows[1]["device_high"] == str(5 << 30)
    assert rows[0]["error"] == "no single one"
    assert Tables.model_validate_json(render(TABLE, "json", TextStyle())) == TABLE


def test_a_dimension_that_is_called_as_a_column_has_one_of_its_own() -> None:
    table = Tables(tool="memlint 0", sweeps=(SWEEP.model_copy(update={"dimensions": {"mode": 2, "largest": 3}}),))
    row = next(csv.DictReader(io.StringIO(render(table, "csv", TextStyle()))))
    assert (row["mode"], row["largest"], row["dim_mode"], row["dim_largest"]) == ("train", "8", "2", "3")


def test_sizes_of_dimensions_are_columns() -> None:
    sweeps = [SWEEP.model_copy(update={"dimensions": {"seq": length}}) for length in (64, 256)]
    table = Tables(tool="memlint 0", sweeps=tuple(sweeps))
    assert [row["seq"] for row in csv.DictReader(io.StringIO(render(table, "csv", TextStyle())))] == ["64"] * 3 + [
        "256"
    ] * 3
    text = render(table, "text", TextStyle())
    assert "The largest batch that fits: 8 (512 tokens) at seq 64; 8 (2,048 tokens) at seq 256." in text
    assert text.count("Traced: ") == 1


def test_nothing_fits_and_nothing_can_be_computed() -> None:
    sweep = SWEEP.model_copy(update={"largest": None, "note": "it is odd"})
    text = render(Tables(tool="memlint 0", sweeps=(sweep,)), "text", TextStyle())
    assert "None of these surely fits." in text
    assert "Every batch was traced: it is odd." in text


def test_a_sweep_from_the_command_line(folder: Path) -> None:
    command = [sys.executable, "-m", "memlint", "sweep", "model.py::Plain", "--batch", "1:8", "--output-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (sweep,) = json.loads(done.stdout)["sweeps"]
    assert [row["batch"] for row in sweep["rows"]] == [1, 2, 4, 8]
    assert str(folder) not in done.stdout


@pytest.mark.usefixtures("executed_pythons")
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_sweep_leaves_no_process(folder: Path) -> None:
    (folder / "model.py").write_text(FILE + "\nimport time\ntime.sleep(60)\n")
    command = [sys.executable, "-m", "memlint", "sweep", "model.py::Plain"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    this = psutil.Process(running.pid)
    deadline = time.monotonic() + 60
    while not (children := this.children(recursive=True)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert children
    os.kill(running.pid, signal.SIGINT)
    _stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in stderr
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


@pytest.mark.usefixtures("executed_pythons")
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_an_interrupted_sweep_prints_the_rows_that_it_had(folder: Path) -> None:
    (folder / "model.py").write_text(
        FILE
        + "\n\ndef memlint_workload(batch):\n"
        + "    import pathlib, time\n"
        + "    if batch == 7:\n"
        + "        pathlib.Path('at_seven').touch()\n"
        + "        time.sleep(60)\n"
        + "    model = Plain() if batch % 2 else Norm()\n"  # other kernels at every other size: all are traced
        + "    return model, {'x': torch.randn(batch, 4096)}\n"
    )
    command = [sys.executable, "-m", "memlint", "sweep", "model.py", "--batch", "3,5,7,9", "--gpu", "t4"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (folder / "at_seven").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(running.pid, signal.SIGINT)
    stdout, stderr = running.communicate(timeout=30)
    assert running.returncode == 130
    assert [line.split()[0] for line in stdout.splitlines() if line.endswith("fits")] == ["3", "5"]
    assert "Stopped before the end" in stdout
    assert "interrupted" in stderr


@pytest.mark.slow
def test_a_sweep_that_takes_too_long_keeps_the_rows_that_it_had(folder: Path) -> None:
    (folder / "model.py").write_text(
        "import time\n" + FILE + "\n\ndef memlint_workload(batch):\n"
        "    time.sleep(60 if batch == 7 else 0)\n"
        "    return Plain() if batch % 2 else Norm(), {'x': torch.randn(batch, 4096)}\n"
    )
    result = CliRunner().invoke(main, ["sweep", "model.py", "--batch", "3,7", "--timeout", "4"])
    assert result.exit_code == 2
    assert "no answer within 12 s" in result.stderr
    assert "      3 " in result.stdout
    assert "Stopped before the end" in result.stdout


def test_in_a_directory_only_what_is_declared_is_swept(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.memlint]\ngpu = "t4"\n\n[[tool.memlint.workload]]\nname = "plain"\ntarget = "model.py::Plain"\n'
        'inputs = { x = { shape = ["batch", 4096] } }\n'
    )
    result = CliRunner().invoke(main, ["sweep", ".", "--batch", "4", "--output-format", "json"])
    assert result.exit_code == 0, result.stderr
    (sweep,) = Tables.model_validate_json(result.stdout).sweeps
    assert (sweep.name, sweep.gpu) == ("plain", "t4")
