"""Real `generate` of transformers on the CPU, by the profiler's memory events, against what is predicted for `cpu`."""

import functools
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from memlint.libraries import installation
from memlint.memory.decoding import kept_tokens
from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, live
from memlint.session.real.cpu import measure_cpu_step
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.construct import complete, completed_program

FILE = Path(__file__).parents[2] / "fixtures" / "models" / "generating.py"


class Case(NamedTuple):
    model: str
    prompt: int = 40
    new_tokens: int = 6
    num_beams: int = 1
    cache: str = ""
    dtype: str = "float32"

    def __str__(self):
        beams = f"{self.num_beams} beams" if self.num_beams > 1 else ""
        sizes = f"{self.prompt} and {self.new_tokens} tokens"
        return ", ".join(filter(None, (self.model, self.cache, beams, self.dtype, sizes)))

    @property
    def workload(self):
        sizes = {"prompt": self.prompt, "new_tokens": self.new_tokens, "num_beams": self.num_beams}
        settings = {"batch": 2, "gpu": "cpu", "dimensions": sizes, "cache": self.cache, "dtype": self.dtype}
        return complete(
            Workload(self.model, f"{FILE}::{self.model}", str(FILE), self.model, mode="generate", **settings)
        )[0]


FAST = (
    Case("llama", 3, 24),  # where decoding takes more than the prefill
    Case("bart", num_beams=3),
    Case("gemma3", cache="static"),
)
SLOW = (
    *(
        Case(name)
        for name in ("gpt2", "mistral", "mamba", "jamba", "mixtral", "deepseek", "qwen3_next", "t5", "whisper")
    ),
    *(Case("llava"), Case("llama", cache="static"), Case("llama", num_beams=3), Case("llama", cache="none")),
    *(Case("llama", dtype="bfloat16"), Case("llama", 3, 24, num_beams=3), Case("gemma3", 5, 30)),
    *(Case("deepseek", 3, 24), Case("t5", 3, 24), Case("jamba", 3, 12), Case("mamba", 3, 12)),
)


class RealCache:
    """Bytes of the storages that the caches of the last call hold, read off the Cache that transformers returns."""

    def __init__(self, program):
        self.storages, self._setup = {}, program.setup
        self._program, program.setup = program, self._watched

    @property
    def nbytes(self):
        return sum(self.storages.values())

    def _watched(self):
        self._setup()
        model = self._program.model
        forward = model.forward

        @functools.wraps(forward)
        def watched(*args, **kwargs):
            output = forward(*args, **kwargs)
            self.storages = {}
            self._read(output.get("past_key_values", output.get("cache_params", kwargs.get("cache_params"))))
            return output

        model.forward = watched

    def _read(self, value):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            self.storages[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, list | tuple | dict):
            for each in value.values() if isinstance(value, dict) else value:
                self._read(each)
        elif hasattr(value, "__dict__") and type(value).__module__ == "transformers.cache_utils":
            self._read(vars(value))


@pytest.mark.parametrize("case", [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)], ids=str)
def test_the_peak_and_the_cache_of_a_real_generation_are_predicted(case):
    installation.install()
    program = completed_program(case.workload, device="cpu")
    cache = RealCache(program)
    torch.manual_seed(0)
    real = measure_cpu_step(program)
    trace = trace_program(completed_program(case.workload), device_named("cpu")).trace
    assert abs(max(live(Timeline.of(trace))) - real.peak_nbytes) <= 64
    kept = kept_tokens(trace)
    assert kept is not None
    assert kept.nbytes == cache.nbytes
    assert len(kept.after_rounds) == case.new_tokens
