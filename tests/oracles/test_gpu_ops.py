"""Single ops on memlint's H200 against what a real one took: `fixtures/ops`."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch

from memlint.memory.devices import device_named
from memlint.memory.estimate import peaks
from memlint.tracing.recorder import trace_program
from tests.cuda.versions import simulated_torch
from tests.oracles.gpu_cases import Line, measured
from tests.oracles.single_ops import Difference, OpProgram, database, mapped, programs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

pytestmark = pytest.mark.filterwarnings("ignore")
DATABASE = Path(__file__).parents[2] / "fixtures" / "ops" / "database.json.gz"
MEASURED_WITH = (2, 11)
EVERY = 10
KNOWN = Path(__file__).with_name("known_gpu_differences.toml")


def difference(program: Any, real: Iterable[int]) -> Difference:
    """Bytes that a program took on the real GPU, and that it takes on memlint's."""
    torch.manual_seed(0)
    random.seed(0)
    device = device_named("h200")
    try:
        trace = trace_program(program, device, num_steps=2).trace
    except Exception as error:
        return Difference(max(real), None, f"{type(error).__name__}: {error}".split("\n")[0])
    finally:
        program.made = None
    sizes = [buffer.nbytes for buffer in trace.buffers]
    return Difference(max(real), peaks(sizes, trace.events, trace.doubts, device).requested)


def wrong(measured_programs: Iterable[tuple[str, Any, Iterable[int]]]) -> list[tuple[str, Difference]]:
    """The programs that are neither right to some bytes nor held by the interval."""
    with simulated_torch(MEASURED_WITH):
        answers = [(name, difference(program, real)) for name, program, real in measured_programs]
    return [(name, answer) for name, answer in answers if not answer.is_right]


def lines(every: int) -> Iterator[tuple[str, Any, Iterable[int]]]:
    for text, real in list(measured().items())[::every]:
        yield text, Line(text), real


def unexplained(found: Iterable[tuple[str, Difference]], kind: str) -> list[tuple[str, Difference]]:
    """Those of no known cause, and those above the number that a cause may have."""
    left = list(found)
    for cause in tomllib.loads(KNOWN.read_text())[kind]:
        assert cause["because"]
        belong = [each for each in left if any(part in each[0] for part in cause["programs"])]
        left = [each for each in left if each not in belong] + belong[cause["most"] :]
    return left


def test_a_tenth_of_the_cases_takes_what_it_took() -> None:
    assert unexplained(wrong(lines(EVERY)), "case") == []


@pytest.mark.slow
def test_cases_take_what_they_took() -> None:
    assert unexplained(wrong(lines(1)), "case") == []


class OnGpu(OpProgram):
    """An op of the database whose operands are on the GPU."""

    virtual = True

    def setup(self) -> None:
        """Make operands of the same geometry."""
        with torch.device("cuda"):
            self.made = self.operands.make(virtual=True)
        arguments, options = self.made
        self.made = arguments, {name: "cuda" if str(value) == "cpu" else value for name, value in options.items()}


def of_database(dtype: str) -> Iterator[tuple[str, Any, Iterable[int]]]:
    real = json.loads(gzip.decompress(DATABASE.read_bytes()))[dtype]
    for op in database():
        for name, program in programs(op):
            if name in real:
                program.operands.values = mapped(
                    program.operands.values, _in_bfloat16 if dtype == "bf16" else _as_it_is
                )
                yield name, OnGpu(program.name, program.function, program.operands), real[name]


def _as_it_is(x: torch.Tensor) -> torch.Tensor:
    return x


def _in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    is_cast = x.dtype is torch.float32
    return x.detach().to(torch.bfloat16).requires_grad_(x.requires_grad) if is_cast else x


@pytest.mark.slow
@pytest.mark.skipif(torch.__version__[:5] != "2.11.", reason="operands are those of PyTorch 2.11's database")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@patch("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)  # asks the device's module
def test_ops_of_the_database_take_what_they_took(dtype: str) -> None:
    pytest.importorskip("expecttest", reason="OpInfo's database needs it")
    assert unexplained(wrong(of_database(dtype)), dtype) == []
