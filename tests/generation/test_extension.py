"""A long generation from its first and last rounds, against a trace of every token."""

from dataclasses import replace
from pathlib import Path

import pytest

from memlint.capture.capture import Capture
from memlint.capture.codec import decode, encode
from memlint.capture.looks import estimate_of
from memlint.generation.extension import Extension, NotExtendableError, extended
from memlint.generation.traces import trace_of
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.decoding import kept_tokens
from memlint.memory.estimate import peaks
from memlint.memory.records import Category
from memlint.targets.workload import Workload
from memlint.tracing.recorder import trace_program
from memlint.workloads.construction.construct import complete, completed_program

FILE = Path(__file__).parents[2] / "fixtures" / "models" / "generating.py"
SETTINGS = AllocatorSettings()

pytestmark = pytest.mark.usefixtures("armed")


def workload(model, new_tokens, prompt=40, num_beams=1, dtype="float32", gpu="a100-80gb"):
    sizes = {"prompt": prompt, "new_tokens": new_tokens, "num_beams": num_beams}
    settings = {"batch": 2, "gpu": gpu, "dtype": dtype, "dimensions": sizes}
    return complete(Workload(model, f"{FILE}::{model}", str(FILE), model, mode="generate", **settings))[0]


def every_token(own):
    """Sizes and events of a trace of all tokens, with storages numbered as they open."""
    trace = trace_program(completed_program(own), own.device, num_steps=1).trace
    numbers = {buffer: number for number, buffer in enumerate(event for event in trace.events if event >= 0)}
    events = [numbers[event] if event >= 0 else ~numbers[~event] for event in trace.events]
    return trace, [trace.buffers[buffer].nbytes for buffer in numbers], events


@pytest.mark.parametrize(
    ("model", "new_tokens", "dtype"),
    [
        ("llama", 48, "bfloat16"),
        ("bart", 40, "float32"),
        ("t5", 41, "float32"),  # whose rounds are alike after four of them
        *(
            pytest.param(model, new_tokens, "float32", marks=pytest.mark.slow)
            for model in (
                "llama",
                "gpt2",
                "gemma3",
                "mistral",
                "mamba",
                "jamba",
                "mixtral",
                "deepseek",
                "qwen3_next",
                "t5",
            )
            for new_tokens in (256, 1024)
        ),
    ],
)
def test_the_events_of_all_tokens_follow_from_the_first_and_the_last(model, new_tokens, dtype):
    own = workload(model, new_tokens, dtype=dtype)
    short = Extension(own, completed_program, SETTINGS).trace()
    trace, sizes, events = every_token(own)
    assert list(short.whole.events) == events
    assert list(short.whole.sizes) == sizes
    estimate = estimate_of(Capture(workload=own, trace=short, optimizer=None))
    whole = estimate_of(Capture(workload=own, trace=trace, optimizer=None))
    assert (estimate.requested, estimate.reserved) == (whole.requested, whole.reserved)
    assert kept_tokens(short).nbytes == kept_tokens(trace).nbytes
    assert kept_tokens(short).per_token == kept_tokens(trace).per_token


def test_the_trace_of_a_long_generation_shows_its_last_tokens():
    own = workload("llama", 48, prompt=4)
    short = trace_of(own, completed_program, SETTINGS)
    estimate = estimate_of(Capture(workload=own, trace=short, optimizer=None))
    trace, _, _ = every_token(own)
    whole = estimate_of(Capture(workload=own, trace=trace, optimizer=None))
    assert estimate.categories == whole.categories
    assert estimate.phase_peaks == whole.phase_peaks
    shapes = {b.shape for b in estimate.at_peak if b.category is Category.KV_CACHE}
    assert shapes == {b.shape for b in whole.at_peak if b.category is Category.KV_CACHE}
    assert len(short.nodes) < len(trace.nodes) / 4


def test_where_tokens_are_not_decoded_alike_every_one_is_traced_and_the_reason_is_said():
    own = workload("llama", 34, num_beams=2)
    with pytest.raises(NotExtendableError):
        Extension(own, completed_program, SETTINGS).trace()
    trace = trace_of(own, completed_program, SETTINGS)
    assert trace.whole is None
    assert len(kept_tokens(trace).after_rounds) == 34
    assert any("every token is traced" in each.text for each in trace.assumptions)


def test_a_capture_keeps_all_storages_of_a_long_generation():
    own = workload("gpt2", 40)
    capture = Capture(workload=own, trace=trace_of(own, completed_program, SETTINGS), optimizer=None)
    read = decode(encode(capture))
    assert read.trace.whole == capture.trace.whole
    assert read.trace.rounds == capture.trace.rounds
    assert estimate_of(read) == estimate_of(capture)
    whole = capture.trace.whole
    assert estimate_of(capture).reserved == peaks(whole.sizes, whole.events, whole.doubts, own.device).reserved


@pytest.mark.parametrize("num_beams", [1, 2])
def test_the_events_of_a_generation_that_was_stopped_follow_from_its_first_tokens(num_beams):
    own = workload("llama", 40, num_beams=num_beams)
    first = trace_program(completed_program(own), own.device, num_steps=1, most_rounds=14).trace
    short = extended(replace(first, step_nodes=()), 40)
    trace, sizes, events = every_token(own)
    until = trace.rounds[-1].end
    assert list(short.whole.events)[:until] == events[:until]
    assert list(short.whole.sizes)[: max(events[:until]) + 1] == sizes[: max(events[:until]) + 1]
    assert kept_tokens(short).nbytes == kept_tokens(trace).nbytes


def test_a_generation_that_was_stopped_too_soon_is_not_extended():
    own = workload("llama", 40)
    first = trace_program(completed_program(own), own.device, num_steps=1, most_rounds=6).trace
    with pytest.raises(NotExtendableError):
        extended(first, 40)
