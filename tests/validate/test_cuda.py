"""Measuring on a GPU, against a fake of PyTorch's interface to its memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memlint.base.errors import UsageError
from memlint.config import Settings
from memlint.memory.records import Phase
from memlint.session import measuring as run
from memlint.session.real import cuda as module
from memlint.session.real.cuda import driver_version, limit_reserved, measure_cuda_step, require_cuda
from memlint.session.real.real_run import watched_phases
from memlint.validate.measurement import Measurement, MeasureRequest, Subject
from memlint.worker.protocol import Request
from tests.validate.fakes import GPU_NBYTES, FakeCuda, FakeNvml, FakeProgram

MIB = 2**20


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    fake.install(monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    return fake


def nvml(monkeypatch: pytest.MonkeyPatch, **facts: object) -> FakeNvml:
    fake = FakeNvml(**facts)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "pynvml", fake.module())
    return fake


def test_peaks_belong_to_the_phase_and_step_they_happen_in(cuda: FakeCuda) -> None:
    measured = measure_cuda_step(FakeProgram(cuda), 2, watched=watched_phases)
    assert {phase: peaks.requested for phase, peaks in measured.phases.items()} == {
        Phase.OTHER: 1000,
        Phase.FORWARD: 30 * MIB + 1000,
        Phase.BACKWARD: 42 * MIB + 1000,
    }
    assert measured.peaks.requested == 42 * MIB + 1000
    assert measured.peaks.reserved == 2 * MIB + 30 * MIB + 12 * MIB
    assert measured.peak_phase is Phase.BACKWARD
    assert [step.requested for step in measured.steps] == [42 * MIB + 1000] * 2
    assert measured.num_retries == 3
    assert measured.peaks.device is None


def test_a_phase_in_which_nothing_is_allocated_has_no_peak(cuda: FakeCuda) -> None:
    measured = measure_cuda_step(FakeProgram(cuda), 1, watched=watched_phases)
    assert Phase.OPTIMIZER not in measured.phases


def test_reentrant_backward_stays_backward(cuda: FakeCuda) -> None:
    seen: list[Phase] = []

    class Inner(torch.autograd.Function):
        @staticmethod
        def forward(context: object, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.ones(1, requires_grad=True).sum().backward()
            return gradient

    backward = torch.autograd.backward
    with watched_phases(seen.append):
        Inner.apply(torch.ones(1, requires_grad=True)).sum().backward()
    assert seen == [Phase.BACKWARD, Phase.FORWARD]
    assert torch.autograd.backward is backward


def test_the_limit_is_neither_a_byte_less_nor_a_page_more_than_asked_for(cuda: FakeCuda) -> None:
    for nbytes in (2 * MIB, 123_456_789, 7_777_777_777, 79 * 2**30 + 511):
        limit_reserved(nbytes)
        assert nbytes <= cuda.limit < nbytes + 512
    limit_reserved(2 * GPU_NBYTES)
    assert cuda.limit == GPU_NBYTES


def test_without_a_gpu_it_says_so() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match="--device cuda"):
        require_cuda()


def test_nvml_gives_the_bytes_of_this_process(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = SimpleNamespace(pid=os.getpid(), usedGpuMemory=512 * MIB)
    nvml(monkeypatch, processes=[SimpleNamespace(pid=1, usedGpuMemory=9), mine])
    assert measure_cuda_step(FakeProgram(cuda), 1, watched=watched_phases).peaks.device == 512 * MIB
    assert driver_version() == "595.10"


@pytest.mark.parametrize("permitted", [True, False])
def test_where_nvml_does_not_know_the_process_the_growth_of_the_gpu_is_taken(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, permitted: bool
) -> None:
    fake = nvml(monkeypatch, used=1000, permitted=permitted)

    class Uses(FakeProgram):
        def step(self) -> None:
            fake.used = 900_000

    assert measure_cuda_step(Uses(cuda), 1, watched=watched_phases).peaks.device == 899_000


def test_the_history_is_kept_as_in_the_fixtures(cuda: FakeCuda) -> None:
    class Named(FakeProgram):
        def setup(self) -> None:
            cuda.frames = [
                {"name": "c10::cuda::CUDACachingAllocator::Native::malloc", "filename": "??", "line": 0},
                {"name": "at::_ops::empty_strided::redispatch(c10::DispatchKeySet)", "filename": "??", "line": 0},
                {"name": "at::_ops::addmm::call(at::Tensor const&)", "filename": "??", "line": 0},
                {"name": "torch::autograd::Engine::evaluate_function(...)", "filename": "??", "line": 0},
            ]
            super().setup()
            cuda.frames = [{"name": "step", "filename": "/x/torch/optim/adamw.py", "line": 3}]

    measured = measure_cuda_step(Named(cuda), 1, watched=watched_phases, history=True)
    assert measured.history is not None
    events = measured.history["events"]
    assert events[1] == ["alloc", events[1][1], 1000, 0, "empty_strided", "backward"]
    assert events[3][4:] == ["", "optimizer"]
    assert [event[0] for event in events] == [
        "segment_alloc", "alloc", "segment_alloc", "alloc", "segment_alloc", "alloc", "free", "free",
    ]  # fmt: skip
    assert measured.history["peaks"] == {"requested": 42 * MIB + 1000, "reserved": 44 * MIB}
    assert measured.history["segments_at_end"] == [[0, 2**21, 0, "small", False, [[2**21, 512, "active_allocated"]]]]
    assert cuda.recording is None


REAL_STACKS = """
import torch
from torch._C._profiler import gather_traceback, symbolize_tracebacks
from torch.utils._python_dispatch import TorchDispatchMode
from memlint.validate.history import _operator, _phase

class Stacks(TorchDispatchMode):
    seen = []
    def __torch_dispatch__(self, operator, types, arguments=(), named=None):
        self.seen.append((operator, gather_traceback(True, False, True)))
        return operator(*arguments, **(named or {}))

weight = torch.nn.Parameter(torch.ones(3, 3))
optimizer = torch.optim.SGD([weight], lr=0.1)
with Stacks():
    torch.addmm(weight, weight, weight).sum().backward()
    optimizer.step()
stacks = symbolize_tracebacks([stack for _, stack in Stacks.seen])
for (operator, _), frames in zip(Stacks.seen, stacks):
    print(operator, _operator(frames), _phase(frames))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch unwinds C++ stacks on Linux only")
def test_operators_and_phases_are_read_from_pytorch_s_own_stacks() -> None:
    environment = os.environ | {"TORCH_SYMBOLIZE_MODE": "dladdr", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", REAL_STACKS], env=environment, capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["aten.addmm.default", "addmm", "forward"] in rows
    assert ["aten.mm.default", "mm", "backward"] in rows
    assert {row[2] for row in rows if "_foreach_" in row[0] or row[0].startswith("aten.add_")} == {"optimizer"}


def request(**changes: object) -> Request:
    subject = Subject(name="fake", family="none", table={"target": "x.py::y"})
    asked = MeasureRequest(subject=subject, device="cuda", num_steps=2, num_warmup=1).model_copy(update=changes)
    return Request(target="fake", path=None, root="/", settings=Settings(), detail=asked.model_dump(mode="json"))


def measured(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, program: object = None, **changes: object
) -> dict[str, object]:
    monkeypatch.setattr(Subject, "workload", lambda *_: None)
    monkeypatch.setattr(run, "completed_program", lambda *_: program or FakeProgram(cuda))
    return dict(run.measure(request(**changes)).detail)


def test_a_measurement_says_where_and_how_it_was_made(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Measurement.model_validate(measured(cuda, monkeypatch)["measurement"])
    assert found.machine.gpu == "a100-80gb"
    assert found.machine.capability == (8, 0)
    assert found.machine.torch == torch.__version__
    assert (found.num_warmup, found.num_steps, len(found.steps)) == (1, 2, 3)
    assert found.flags.cudnn_enabled
    assert found.group == ("a100-80gb", torch.__version__.partition("+")[0])


def test_the_history_is_written_where_it_was_asked_for(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "fake.history.json.gz"
    found = Measurement.model_validate(measured(cuda, monkeypatch, history=str(file))["measurement"])
    assert found.history == file.name
    history = json.loads(gzip.decompress(file.read_bytes()))
    assert history["name"] == "fake"
    assert history["peaks"]["allocated"] == found.peaks.allocated


def test_running_out_of_memory_is_a_named_skip(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured(cuda, monkeypatch, limit=40 * MIB) == {"skipped": "too big for this GPU"}
    cuda.__init__()  # type: ignore[misc]
    assert "measurement" in measured(cuda, monkeypatch, limit=44 * MIB)


def test_a_missing_package_is_a_named_skip(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    class Imports(FakeProgram):
        def setup(self) -> None:
            import a_package_nobody_has  # type: ignore[import-not-found]  # noqa: F401

    assert measured(cuda, monkeypatch, Imports(cuda)) == {
        "skipped": "the package a_package_nobody_has is not installed"
    }


@pytest.mark.gpu
def test_the_counters_are_read_under_the_names_pytorch_gives_them() -> None:
    assert module._STATS.values() <= torch.cuda.memory_stats().keys()
