"""What follows from three small traces is, event by event and byte by byte, what a trace at another size gives."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("torch")

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.memory.estimate import peaks
from memlint.memory.records import Storages
from memlint.scaling.polynomials import Grid
from memlint.scaling.recorded_calls import can_be_made_alone, recorded
from memlint.scaling.scaled import Lives, NotScalableError, Sample, Scaled, lives_of
from memlint.tracing.workload_errors import storages_of_workload, trace_of_workload
from memlint.workloads.construction.construct import complete, completed_program
from memlint.workloads.discover import find_workloads

if TYPE_CHECKING:
    from memlint.memory.records import Trace

ROOT = Path(__file__).parents[2]
GPU = "a100-80gb"
GRID = Grid((range(2, 5),))
UNSEEN = (5, 7, 16, 33, 64, 100, 127, 255, 256, 512)
"""A batch of one may take other kernels, and is always traced."""
MODELS = ("gpt2", "bert", "clip", "resnet50", "unet", "moe")


def sampler(file: Path, **options: object):
    (workload,) = find_workloads(str(file), ROOT, [], {"gpu": GPU, **options}).workloads
    completed, _assumptions = complete(workload, ROOT)

    def sample(batch: int) -> Sample:
        with recorded() as calls:
            storages = storages_of_workload(completed_program(replace(completed, batch=batch), ROOT), device_named(GPU))
        return Sample((batch,), storages, tuple(calls))

    def trace(batch: int) -> Trace:
        return trace_of_workload(completed_program(replace(completed, batch=batch), ROOT), device_named(GPU))

    return sample, trace


def lives_in(trace: Trace) -> Lives:
    sizes = tuple(buffer.nbytes for buffer in trace.buffers)
    return lives_of(Storages(sizes, trace.events, trace.doubts, frozenset(), trace.streams))


def assert_follows(sampler, sizes: tuple[int, ...]) -> Scaled:
    sample, trace_at = sampler
    device = device_named(GPU)
    samples = [sample(batch) for batch in (2, 3, 4)]
    with virtual_device(device):
        scaled = Scaled.of(GRID, samples)
    for size in sizes:
        with virtual_device(device):
            lives = scaled.lives((size,))
        trace = trace_at(size)
        assert lives == lives_in(trace), size
        assert peaks(lives.sizes, lives.events, lives.doubts, device, streams=lives.streams) == peaks(
            [buffer.nbytes for buffer in trace.buffers], trace.events, trace.doubts, device, streams=trace.streams
        )
    return scaled


def test_unseen_batch_sizes_are_those_of_a_trace_to_the_byte() -> None:
    assert_follows(sampler(ROOT / "fixtures" / "models" / "gpt2.py"), (1, 7, 512))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bf16-amp"])
@pytest.mark.parametrize("model", MODELS)
def test_ten_unseen_batch_sizes_are_those_of_a_trace_to_the_byte(model: str, dtype: str) -> None:
    assert_follows(sampler(ROOT / "fixtures" / "models" / f"{model}.py", dtype=dtype), UNSEEN)


MODULES = {
    "contrastive": "y = self.layer(x); return F.cross_entropy(y @ y.t(), torch.arange(len(y), device=y.device))",
    "attention": (
        "y = self.layer(x).view(len(x), 4, 16, 16); "
        "return F.scaled_dot_product_attention(y, y, y, attn_mask=torch.ones(16, 16, device=x.device).tril().bool())"
    ),
    "mask": "y = self.layer(x); return y[y > 0].sum()",
    "loop": "y = x\nfor _ in range(3):\n    y = self.layer(y[:, :1024]).tanh() * y\nreturn y",
    "in-place": "y = self.layer(x); y[:, 0] = 1; y.relu_(); return y.cumsum(1)",
    "host": "y = self.layer(x); return y * torch.ones(len(x), 1).to(x.device)",
    "split": "a, b = self.layer(x).chunk(2, 1); return torch.cat([a.sigmoid() * b, b], 1).sort(1)[0]",
    "grouped": "return F.group_norm(self.layer(x).view(len(x), 16, 8, 8), 4).topk(3, -1)[0]",
}
FILE = """
import torch
import torch.nn.functional as F
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1024, 1024)

    def forward(self, x):
{body}

def memlint_workload(batch):
    return Model(), {{"x": torch.randn(batch, 1024)}}
"""


def module(folder: Path, body: str) -> Path:
    lines = "\n".join(f"        {line}" for line in body.replace("; ", "\n").splitlines())
    (folder / "model.py").write_text(FILE.format(body=lines))
    return folder / "model.py"


@pytest.mark.parametrize("name", MODULES)
def test_whatever_a_module_does_with_its_batch(name: str, tmp_path: Path) -> None:
    assert_follows(sampler(module(tmp_path, MODULES[name])), (1, 6, 31, 257))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return self.layer(x).relu() if len(x) < 4 else self.layer(x).tanh()", "tanh"),
        ("y = x\nfor _ in range(len(x)):\n    y = self.layer(y)\nreturn y", "addmm|kernels run"),
    ],
)
def test_a_program_of_its_own_for_every_size_is_named(body: str, reason: str, tmp_path: Path) -> None:
    sample, _trace = sampler(module(tmp_path, body))
    samples = [sample(batch) for batch in (2, 3, 4)]
    with virtual_device(device_named(GPU)), pytest.raises(NotScalableError, match=reason):
        Scaled.of(GRID, samples)


@pytest.mark.parametrize(
    "body", ["return self.layer(x[: (len(x) + 1) // 2])", "return self.layer(x.repeat(len(x) ** 2, 1))"]
)
def test_what_is_no_polynomial_is_not_what_a_trace_gives(body: str, tmp_path: Path) -> None:
    sample, trace = sampler(module(tmp_path, body))
    samples = [sample(batch) for batch in (2, 3, 4)]
    other = lives_in(trace(31))
    with virtual_device(device_named(GPU)), contextlib.suppress(NotScalableError):
        assert Scaled.of(GRID, samples).lives((31,)) != other


def test_a_result_that_is_no_polynomial_is_asked_for_once_it_was_seen_to_be_none(tmp_path: Path) -> None:
    body = "ids = torch.arange(0, len(x), 2, device=x.device); return self.layer(x)"
    sample, trace = sampler(module(tmp_path, body))
    samples = [sample(batch) for batch in (2, 3, 4)]
    traced_lives = {batch: lives_in(trace(batch)) for batch in (257, 31, 1000)}
    with virtual_device(device_named(GPU)):
        scaled = Scaled.of(GRID, samples)
        assert scaled.lives((257,)) != traced_lives[257]
        scaled.settle((257,))
        for batch, lives in traced_lives.items():
            assert scaled.lives((batch,)) == lives


def test_sizes_of_any_magnitude_are_computed_exactly(tmp_path: Path) -> None:
    sample, _trace = sampler(module(tmp_path, MODULES["contrastive"]))
    samples = [sample(batch) for batch in (2, 3, 4)]
    batch = 10**6
    with virtual_device(device_named(GPU)):
        lives = Scaled.of(GRID, samples).lives((batch,))
    assert max(lives.sizes) == 4 * batch * batch


def test_recording_changes_nothing(tmp_path: Path) -> None:
    sample_at, trace_at = sampler(module(tmp_path, MODULES["attention"]))
    sample, trace = sample_at(3), trace_at(3)
    assert sample.storages.events == trace.events
    assert sample.storages.sizes == tuple(buffer.nbytes for buffer in trace.buffers)
    assert sum(can_be_made_alone(made.call) for made in sample.calls) > 0.9 * len(sample.calls)
    assert [made.first for made in sample.calls] == sorted(made.first for made in sample.calls)
