"""Choices that Inductor makes by timing on a GPU, and CUDA graphs: the prediction holds what each choice takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F

from memlint.accelerator.private.compilation import Lowering
from memlint.base.patching import patched
from memlint.compile import requests
from memlint.memory.devices import device_named
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from tests.compile.programs import Compiled

if TYPE_CHECKING:
    from memlint.memory.records import Trace

GPU = device_named("a100-80gb")


class Words(Compiled):
    """A step of a model whose number of words is no multiple of 8."""

    def __init__(self, dtype: torch.dtype, num_words: int = 5025, **options: Any) -> None:
        super().__init__("cuda", **options)
        self.dtype = dtype
        self.num_words = num_words

    def setup(self) -> None:
        self.model = torch.nn.Linear(256, self.num_words, bias=False).to(self.device, self.dtype)
        self.inputs = {"x": torch.zeros(2048, 256, device=self.device, dtype=self.dtype)}
        self.words = torch.zeros(2048, device=self.device, dtype=torch.int64)
        self.called = torch.compile(lambda x, words: F.cross_entropy(self.model(x), words), **self.options)

    def step(self) -> None:
        self.called(self.inputs["x"], self.words).backward()
        self.model.zero_grad()


def traced(program: Any) -> Trace:
    return trace_program(program, GPU).trace


def estimated(trace: Trace) -> Estimate:
    return estimate(Timeline.of(trace), GPU, trace.nodes)


def test_products_in_half_precision_are_padded_as_a_gpu_does() -> None:
    """An H200 padded those of gpt2-b8-compiled-bf16amp (fixtures/measurements)."""
    padded = estimated(traced(Words(torch.bfloat16, options={"force_shape_pad": True}))).requested
    assert estimated(traced(Words(torch.bfloat16))).requested.low == padded.low


@pytest.mark.parametrize(("num_words", "padded"), [(5025, 2), (5026, 1)])
def test_rows_of_a_result_are_padded_if_their_number_is_odd(num_words: int, padded: int) -> None:
    """An H200 padded so for 50257 words and for 30522: the weight in forward, and its gradient's operand."""
    born = [buffer for buffer in traced(Words(torch.bfloat16, num_words)).buffers if buffer.step == 1]
    assert sum(buffer.op == "aten.constant_pad_nd.default" for buffer in born) == padded


def test_the_bounds_hold_a_step_with_padded_products_in_float32_and_one_without() -> None:
    both = estimated(traced(Words(torch.float32))).requested
    padded = estimated(traced(Words(torch.float32, options={"force_shape_pad": True}))).requested
    without = estimated(traced(Words(torch.float32, options={"shape_padding": False}))).requested
    assert both.low == without.low
    assert both.low <= padded.low <= both.high


def test_to_time_a_product_takes_its_operands_padded_ones_a_result_and_a_buffer_for_the_cache() -> None:
    x, weight, out = (2 * n for n in (2048 * 256, 5025 * 256, 2048 * 5025))
    more = 2 * 7 * (256 + 2048)  # 5025 words are filled up to 5032
    timed = [doubt.high for doubt in traced(Words(torch.bfloat16)).doubts]
    assert x + 2 * weight + out + more + (40 << 20) in timed


class Sum(Compiled):
    """A kernel that reads x and y and writes their sum, and in the second step once more."""

    def setup(self) -> None:
        self.inputs = {"x": torch.zeros(1 << 20, device=self.device)}
        self.called = torch.compile(lambda x: x.sin() + x.cos(), **self.options)

    def step(self) -> None:
        self.called(self.inputs["x"])


def test_the_first_call_of_a_kernel_clears_the_cache_to_time_it() -> None:
    taken = estimated(traced(Sum("cuda"))).requested
    assert taken.low == 2 * (4 << 20)
    assert taken.estimate == taken.high == taken.low + (40 << 20)
    untimed = estimated(traced(Sum("cuda", options={"triton.autotune_pointwise": False}))).requested
    assert untimed.estimate == taken.low


def test_products_of_aligned_sizes_are_not_padded() -> None:
    trace = traced(Compiled("cuda"))
    assert {doubt.high for doubt in trace.doubts} == {40 << 20}


def test_what_autotuning_takes_is_between_nothing_and_the_operands_of_a_product_with_its_result() -> None:
    plain = estimated(traced(Compiled("cuda"))).requested
    tuned = estimated(traced(Compiled("cuda", mode="max-autotune-no-cudagraphs"))).requested
    assert (tuned.low, tuned.estimate) == (plain.low, plain.estimate)
    assert tuned.high > plain.high


def test_compiled_code_in_cuda_graphs_takes_its_memory_from_a_pool_of_its_own() -> None:
    plain, graphs = traced(Compiled("cuda")), traced(Compiled("cuda", mode="reduce-overhead"))
    assert not plain.streams.own
    pooled = {graphs.buffers[number].op for number in graphs.streams.own}
    assert "aten.addmm.default" in pooled
    assert estimated(graphs).reserved.estimate > estimated(plain).reserved.estimate


def test_a_graph_is_recorded_with_copies_of_inputs_but_not_of_parameters() -> None:
    # torch/_inductor/cudagraph_trees.py, `CUDAGraphNode.__init__`: from the second call on.
    graphs = traced(Compiled("cuda", mode="reduce-overhead"))
    copies = [b for n, b in enumerate(graphs.buffers) if n in graphs.streams.own and b.op == "aten._copy_from.default"]
    assert [(b.step, b.shape) for b in copies] == 2 * [(1, (512, 64))]  # the input, and the gradient of the output


def test_what_takes_longer_to_compile_than_it_may_fails_with_the_reason() -> None:
    real = Lowering.run_node

    def slow(*args: Any) -> Any:
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        return real(*args)

    with (
        patched([(requests.Patience, "seconds", 0.02), (Lowering, "run_node", slow)]),
        pytest.raises(
            Exception, match="compiling takes more than 0 s of processor time; allow more with --timeout SECONDS"
        ),
    ):
        traced(Compiled("cuda"))
