"""Which Changes could lower a peak: what the trace and the kinds of Buffers at the peak let one expect.

Every Change given here is simulated before anything is said of it. Those that cannot lower the peak are left out,
because each costs a trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.memory.liveness import held
from memlint.tracing.records import Category, Phase
from memlint.whatif.changes import (
    AccumulationSteps,
    AttentionImplementation,
    AutocastTraining,
    BatchSize,
    CheckpointModules,
    ChunkedCrossEntropy,
    Effect,
    FrozenBatchNorm,
    InPlaceFlag,
    OptimizerImplementation,
    OptimizerInBackward,
    ParameterDtype,
    ZeroGradPlacement,
)
from memlint.whatif.repeated_blocks import blocks_that_save, granularities, selections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.memory.estimate import Estimate
    from memlint.tracing.records import Buffer, Trace
    from memlint.whatif.changes import Change
    from memlint.whatif.repeated_blocks import Blocks
    from memlint.workloads.spec import Workload

MIN_SHARE = 0.01
"""Of the peak: less is no candidate, and no saving worth a step of a plan."""
NUM_CHUNKS = 8
MIN_NBYTES = 2**20
"""Smaller Buffers that a variable holds are not worth a word."""
_ACTIVATIONS = frozenset({"ReLU", "ReLU6", "LeakyReLU", "ELU", "SELU", "CELU", "SiLU", "Mish", "Hardswish"})
_BY_BATCH = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY, Category.WORKSPACE)


def candidates(
    workload: Workload, trace: Trace, estimate: Estimate, chosen: tuple[Change, ...], *, dynamics: bool
) -> Iterator[Change]:
    """Changes to try next on the program of `trace`, in which `chosen` are made; DropReference is not among them.

    Those that change the dynamics of training are given if `dynamics`. One of a kind that was chosen is meant to
    take its place.
    """
    kinds = {type(change) for change in chosen}
    for change in _possible(workload, trace, estimate, chosen):
        again = isinstance(change, AccumulationSteps | BatchSize | CheckpointModules)
        if (again or type(change) not in kinds) and (dynamics or effect_in(change, trace) is not Effect.DYNAMICS):
            yield change


def effect_in(change: Change, trace: Trace) -> Effect:
    """What the Change does to training in this model: parts of a batch give BatchNorm other statistics."""
    if isinstance(change, AccumulationSteps) and any("BatchNorm" in kind for _, kind in trace.modules):
        return Effect.DYNAMICS
    return change.effect


def _possible(workload: Workload, trace: Trace, estimate: Estimate, chosen: tuple[Change, ...]) -> Iterator[Change]:
    peak = estimate.requested.estimate
    notable = {category for category, nbytes in estimate.categories.items() if nbytes >= MIN_SHARE * peak}
    if workload.mode == "train":
        if estimate.phase is Phase.OPTIMIZER:
            yield OptimizerImplementation(foreach=False, fused=True)
            yield OptimizerImplementation(foreach=False, fused=False)
        if Category.GRADIENT in notable:
            yield OptimizerInBackward()
            yield ZeroGradPlacement(before_forward=False)
            yield ParameterDtype("bfloat16")
    if estimate.phase is not Phase.OPTIMIZER:
        if workload.mode == "train":
            yield from (CheckpointModules(blocks.paths) for blocks in granularities(_notable_blocks(trace, estimate)))
        yield from _of_kernels(workload, trace)
        if not notable.isdisjoint(_BY_BATCH):
            yield AutocastTraining("bfloat16")
            yield from _of_modules(trace)
            yield from _of_batch(workload, chosen)


def _of_kernels(workload: Workload, trace: Trace) -> Iterator[Change]:
    if workload.mode == "train" and _has(trace, "_log_softmax."):
        yield ChunkedCrossEntropy(NUM_CHUNKS)
    if _has(trace, "_softmax."):
        yield AttentionImplementation("sdpa")


def _of_batch(workload: Workload, chosen: tuple[Change, ...]) -> Iterator[Change]:
    parts = next((each.num_steps for each in chosen if isinstance(each, AccumulationSteps)), 1)
    batch = next((each.batch for each in chosen if isinstance(each, BatchSize)), workload.batch)
    more = next((number for number in range(parts + 1, batch + 1) if batch % number == 0), None)
    if workload.mode == "train" and more is not None:
        yield AccumulationSteps(more)
    if batch % 2 == 0 and parts == 1:
        yield BatchSize(batch // 2)


def cheaper(change: Change, trace: Trace, estimate: Estimate) -> tuple[Change, ...]:
    """Of checkpoints of all blocks those that compute less again; `trace` and `estimate` are without the Change."""
    if not isinstance(change, CheckpointModules):
        return ()
    found = [blocks for blocks in blocks_that_save(trace, estimate.at_peak) if blocks.paths == change.paths]
    return tuple(CheckpointModules(each.paths) for blocks in found for each in selections(trace, blocks))


def dead_references(trace: Trace, node: int) -> tuple[Buffer, ...]:
    """Buffers alive while `node` runs that nothing uses from there on, of those worth letting go of."""
    return tuple(
        each
        for each in held(trace)
        if each.nbytes >= MIN_NBYTES
        and each.last_used < node
        and trace.event_nodes[each.born] <= node
        and (each.died is None or trace.event_nodes[each.died] > node)
        and each.category not in {Category.INPUT, Category.GRADIENT}
    )


def _notable_blocks(trace: Trace, estimate: Estimate) -> list[Blocks]:
    peak = estimate.requested.estimate
    return [each for each in blocks_that_save(trace, estimate.at_peak) if each.nbytes >= MIN_SHARE * peak]


def _of_modules(trace: Trace) -> Iterator[Change]:
    activations = tuple(path for path, kind in trace.modules if kind in _ACTIVATIONS)
    if activations:
        yield InPlaceFlag(activations, inplace=True)
    norms = tuple(path for path, kind in trace.modules if kind == "BatchNorm2d" and path)
    if norms:
        yield FrozenBatchNorm(norms)


def _has(trace: Trace, op: str) -> bool:
    return any(node.op.startswith(f"aten.{op}") and node.phase is Phase.FORWARD for node in trace.nodes)
