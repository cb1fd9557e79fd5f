"""What torchtitan published of whole jobs: benchmarks/llama3_h100_202412_torchtitan.md in pytorch/torchtitan.

At commit 31a17bfdb70bab6f62a13d21816a5339b911d6e3; torch of 23 December 2024 (2.6), torchtitan 9dec370, H100 with 96 GB,
local batch 2 of 8,192 tokens, checkpointing by op, the most reserved memory of any rank. torchtitan's launch script,
run_train.sh, asks for expandable segments; the page names no setting, and the default one gives its figures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from memlint.compile import requests
from memlint.distributed.group import become
from memlint.distributed.rank import Rank
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from tests.distributed.torchtitan import LLAMA_2_7B, LLAMA_8B, LLAMA_405B, OwnNorm, Torchtitan

if TYPE_CHECKING:
    from memlint.memory.records import Trace

H100 = replace(device_named("h100-80gb"), torch=(2, 6), total_nbytes=round(95.0396 * 2**30))
"""With 96 GB, of which torchtitan's log names 95.0396 GiB: a smaller GPU would give cached memory back."""
pytestmark = pytest.mark.slow


class OfRank(Torchtitan):
    """One rank of a world."""

    world_size: int

    def setup(self) -> None:
        become(Rank(self.world_size))
        super().setup()


def traced(program: OfRank, world_size: int) -> Trace:
    program.world_size = world_size
    return trace_program(program, H100).trace


def reserved(trace: Trace, allocator: str = "") -> float:
    """GiB."""
    return estimate(Timeline.of(trace), H100, trace.nodes, AllocatorSettings.parse(allocator)).reserved.estimate / 2**30


@pytest.mark.parametrize(
    ("world_size", "published", "expandable"),
    [(8, 82.4, 79.2), (128, 67.0, 65.1)],
    ids=["table 1", "table 3"],
)
def test_eager_rows_of_llama_8b(world_size: int, published: float, expandable: float) -> None:
    trace = traced(OfRank(LLAMA_8B, batch=2), world_size)
    assert reserved(trace) == pytest.approx(published, rel=0.01)
    assert reserved(trace, "expandable_segments:True") == pytest.approx(expandable, rel=0.002)


@pytest.mark.parametrize(("world_size", "published"), [(8, 77.0), (128, 62.0)], ids=["table 1", "table 3"])
def test_compiled_rows_of_llama_8b(monkeypatch: pytest.MonkeyPatch, world_size: int, published: float) -> None:
    monkeypatch.setattr(torch, "compile", requests.compile_where_simulated)
    trace = traced(OfRank(LLAMA_8B, batch=2, compiles=True), world_size)
    assert reserved(trace) == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize(
    ("reshard", "published"), [(None, 49.59), (True, 49.41), (False, 62.18)], ids=["default", "always", "never"]
)
def test_resharding_of_llama_8b_with_batch_1(reshard: bool | None, published: float) -> None:
    """torchtitan's pull request 822 of February 2025; its launch script asks for expandable segments."""
    trace = traced(OfRank(LLAMA_8B, batch=1, norm=OwnNorm, reshard=reshard), 8)
    assert reserved(trace, "expandable_segments:True") == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(("first_version", "published"), [(False, 59.41), (True, 63.89)], ids=["fsdp2", "fsdp1"])
def test_llama_2_7b_in_both_versions_of_fsdp(first_version: bool, published: float) -> None:
    """torchtitan's pull request 165 of March 2024, checkpointing by op; shares of 95.0396 GiB, default allocator."""
    program = OfRank(LLAMA_2_7B, 8, 2048, norm=OwnNorm, early=True, first_version=first_version)
    assert reserved(traced(program, 8)) == pytest.approx(published, rel=0.02)


def test_a_model_of_405_billion_parameters_on_512_ranks() -> None:
    trace = traced(OfRank(LLAMA_405B, batch=2, checkpointing="full", tensor=8), 512)
    kinds = {each.kind for each in trace.collectives}
    assert {"all_gather", "reduce_scatter", "all_reduce"} <= kinds
    assert {each.size for each in trace.collectives} == {8, 64}
    assert all(each.within_node == (each.size == 8) for each in trace.collectives)
    assert 20 < reserved(trace) < 60
