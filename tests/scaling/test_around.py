"""`memlint check` shows the batch sizes around the one it was asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from memlint.cli import main
from memlint.config import Settings
from memlint.report.model import Interval, Sweep, SweepRow
from memlint.report.text_style import TextStyle
from memlint.report.what_if_text import sweep_lines
from memlint.worker.protocol import Request

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("copied_pythons")

pytest.importorskip("torch")

FILE = """
import torch
from torch import nn

def memlint_workload(batch):
    return nn.Sequential(nn.Linear(4096, 4096), nn.GELU()), {"input": torch.randn(batch, 4096)}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(FILE)
    return tmp_path


def around(folder: Path, **options: object) -> list[Sweep]:
    from memlint.session.tables import around
    from memlint.session.target import Target

    settings = Settings.model_validate({"select": ["MEM010"], **options})
    request = Request(target="model.py", path=str(folder / "model.py"), root=str(folder), settings=settings)
    target = Target(request)
    return [sweep for number in range(len(target.workloads)) for sweep in around(target, number).sweeps]


def test_half_twice_and_four_times_the_batch_with_its_dtype_and_another(folder: Path) -> None:
    own, other = around(folder, batch=6, dtype="bfloat16", gpu="t4")
    assert [row.batch for row in own.rows] == [row.batch for row in other.rows] == [3, 6, 12, 24]
    assert (own.dtype, other.dtype) == ("bfloat16", "bf16-amp")
    assert own.is_limit
    assert own.largest is not None
    assert own.largest.batch > 24


def test_the_other_dtype_of_a_program_that_compiles_is_tried_without_compiling(folder: Path) -> None:
    from memlint.accelerator.lazy_imports import Compilation
    from memlint.session.tables import ahead
    from memlint.session.target import Target

    (folder / "model.py").write_text(FILE.replace("return nn.Sequential", "return torch.compile(nn.Sequential").replace(
        "nn.GELU()),", "nn.GELU())),"))  # fmt: skip
    target = Target(Request(target="model.py", path="model.py", root=str(folder), settings=Settings()))
    text, tables = ahead(target.workloads[0], folder)
    assert text
    assert tables[-1].largest is not None
    assert Compilation.is_requested
    assert Compilation.seconds == 0.0


OWN_STEP = FILE.replace("import torch\n", "import torch\nimport memlint\n").replace(
    'return nn.Sequential(nn.Linear(4096, 4096), nn.GELU()), {"input": torch.randn(batch, 4096)}',
    """model = nn.Linear(4096, 4096)
    def step(model, inputs, optimizer):
        model(inputs["0"]).sum().backward()
    return memlint.Declaration(model, torch.randn(batch, 4096), step=step)""",
)


def test_a_step_that_enters_autocast_itself_has_no_column_for_it(folder: Path) -> None:
    (folder / "model.py").write_text(OWN_STEP)
    assert [each.dtype for each in around(folder)] == ["float32"]
    assert [each.dtype for each in around(folder, dtype="bf16-amp")] == ["bf16-amp", "bfloat16"]


def test_on_the_host_there_is_no_limit_and_no_table(folder: Path) -> None:
    assert around(folder, gpu="cpu") == []


def test_a_step_of_very_many_kernels_gets_no_table_but_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlint.session.tables.MOST_CALLS", 10)
    (own,) = around(folder)
    assert "too many" in (own.error or "")
    assert own.rows == []
    (line,) = sweep_lines([own], TextStyle())
    assert line.endswith("See memlint sweep.")


def test_a_step_of_many_kernels_has_its_own_column_and_not_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlint.session.tables.MOST_CALLS_OF_OTHER", 10)
    own, other = around(folder)
    assert (own.dtype, own.error, len(own.rows)) == ("float32", None, 4)
    assert (other.dtype, other.rows) == ("bf16-amp", [])
    assert "too many" in (other.error or "")


@pytest.mark.slow
def test_llama_7b_has_batch_sizes() -> None:
    pytest.importorskip("transformers")
    arguments = ["check", "transformers::LlamaConfig", "--dtype", "bfloat16", "--select", "MEM010", "--timeout", "600"]
    result = CliRunner().invoke(main, [*arguments, "--batch", "1", "--output-format", "json"])
    (workload,) = json.loads(result.stdout)["workloads"]
    assert [row["batch"] for row in workload["sweep"][0]["rows"]] == [1, 2, 4]
    assert workload["sweep"][0]["rows"][0]["requested"] == workload["estimate"]["peak"]["requested"]


def test_check_shows_the_table_and_its_numbers_are_those_of_the_estimate(folder: Path) -> None:
    arguments = ["check", "model.py", "--batch", "4", "--gpu", "t4", "--select", "MEM010"]
    result = CliRunner().invoke(main, [*arguments, "--output-format", "json"])
    assert result.exit_code == 0, result.stderr
    (workload,) = json.loads(result.stdout)["workloads"]
    assert [sweep["dtype"] for sweep in workload["sweep"]] == ["float32", "bf16-amp"]
    row = next(row for row in workload["sweep"][0]["rows"] if row["batch"] == 4)
    for name in ("requested", "allocated", "reserved", "device"):
        assert row[name] == workload["estimate"]["peak"][name]
    shown = CliRunner().invoke(main, arguments).stdout
    assert "  Batch sizes, device memory\n" in shown
    assert f"  largest that fits  {workload['sweep'][0]['largest']['batch']} " in shown


def test_without_it_nothing_is_swept(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.memlint]\nsweep = false\n")
    shown = CliRunner().invoke(main, ["check", "model.py", "--select", "MEM010"]).stdout
    assert "needs" in shown
    assert "Batch sizes" not in shown


def interval(nbytes: int) -> Interval:
    return Interval(low=nbytes, estimate=nbytes, high=nbytes)


def test_batches_stand_below_one_another_and_dtypes_side_by_side() -> None:
    sweep = Sweep(
        name="Net", target="net.py::Net", mode="train", optimizer="adamw", dtype="float32", gpu="t4",
        gpu_title="NVIDIA T4", gpu_nbytes=15 << 30,
        rows=[
            SweepRow(batch=4, device=interval(4 << 30), outcome="fits"),
            SweepRow(batch=8, device=interval(15 << 30), outcome="uncertain"),
            SweepRow(batch=16, error="no sixteen"),
        ],
        largest=SweepRow(batch=7), is_limit=True,
    )  # fmt: skip
    other = sweep.model_copy(
        update={
            "dtype": "bf16-amp",
            "rows": [SweepRow(batch=4, device=interval(20 << 30), outcome="does not fit")],
            "largest": None,
            "note": "it is odd",
        }
    )
    assert list(sweep_lines([sweep, other], TextStyle())) == [
        "  Batch sizes, device memory",
        "              batch  float32            bf16-amp",
        "                  4  4.00 GiB           20.0 GiB, too much",
        "                  8  15.0 GiB, perhaps",
        "                 16  rejected",
        "  largest that fits  7                  none",
        "  Batch sizes with bf16-amp: every batch was traced: it is odd.",
    ]


QUADRATIC = FILE.replace(
    "return nn.Sequential(nn.Linear(4096, 4096), nn.GELU()), ",
    """class Pairs(nn.Sequential):
        def forward(self, input):
            out = super().forward(input)
            return (out @ out.T).flatten().exp()
    return Pairs(nn.Linear(4096, 4096), nn.GELU()), """,
)
IN_PAIRS = FILE.replace("torch.randn(batch, 4096)", "torch.randn(max(1, batch // 2), 4096)")


@pytest.mark.parametrize(
    ("file", "own", "other"),
    [(FILE, [6, 7], [2, 3]), (QUADRATIC, [2, 3, 4, 6, 7], [2, 3, 4]), (IN_PAIRS, [2, 3, 4, 6, 7], [2, 3, 4])],
    ids=["linear", "quadratic", "in pairs"],
)
def test_two_samples_do_where_a_line_is_proved_and_three_elsewhere_with_the_same_rows(
    folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, own: list[int], other: list[int]
) -> None:
    from memlint.scaling import sizes

    (folder / "model.py").write_text(file)
    few = around(folder, batch=6, gpu="t4")
    for sweep, samples in zip(few, (own, other), strict=True):
        assert sweep.largest is not None
        assert sweep.traced[: len(samples)] == samples
        assert sweep.largest.batch in sweep.traced[len(samples) :]
    learn = sizes.Sizes.learn

    def with_three(self: sizes.Sizes, *asked: object) -> str | None:
        self.line_first = False
        self.lives, self.samples = {}, {}
        return learn(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(sizes.Sizes, "learn", with_three)
    for sweep, careful in zip(few, around(folder, batch=6, gpu="t4"), strict=True):
        without = {"rows": {"__all__": {"evidence"}}, "traced": True}
        assert sweep.model_dump(exclude=without) == careful.model_dump(exclude=without)
        assert sweep.note == careful.note


def test_the_trace_of_the_check_is_one_of_two_samples_and_one_proof_for_each_dtype_is_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memlint.scaling import sizes

    traced: list[int] = []
    storages = sizes.storages_of_workload

    def counted(*arguments: object) -> object:
        traced.append(1)
        return storages(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(sizes, "storages_of_workload", counted)
    own, other = around(folder, batch=6, dtype="bfloat16", gpu="t4")
    assert len(traced) == 5
    assert own.largest is not None
    assert other.largest is not None
    assert own.traced == [6, 7, own.largest.batch]
    assert other.traced == [2, 3, other.largest.batch]
