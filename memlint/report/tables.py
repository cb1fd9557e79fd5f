"""The orders of a sweep, and the results of sweep and fit: plain records for JSON, every size in bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from memlint.base.units import format_count, outcome
from memlint.memory.devices import Device
from memlint.report.model import Interval, OnGpu, Peak, Record, Sweep, SweepRow
from memlint.targets.workload import Workload

if TYPE_CHECKING:
    from memlint.memory.estimate import SizePeaks


Spread = tuple[tuple[str | None, int | None], ...]
"""Strategies, each with a number of ranks; None for what the Workload says."""


class Order(Record):
    """The tables to make of every Workload of a target."""

    batches: tuple[int, ...]
    dtypes: tuple[str, ...] = ()
    """Empty for the dtype of the Workload."""
    gpus: tuple[str, ...] = ()
    """Empty for the GPU of the Workload."""
    dimensions: dict[str, tuple[int, ...]] = {}
    """Sizes of other dimensions of the Workload; one that is missing keeps its own."""
    spread: Spread = ((None, None),)


class FitOrder(Record):
    """How to look for what fits of every Workload of a target; None for what the Workload says."""

    gpu: str | None = None
    strategy: str | None = None
    world_sizes: tuple[int, ...] = ()


class Document(Record):
    """The document that a run writes."""

    version: Literal[1] = 1
    tool: str
    torch: str | None = None


class Tables(Document):
    """All that a run of `memlint sweep` says."""

    sweeps: tuple[Sweep, ...] = ()


class BatchParts(Record):
    """A batch in equal parts, whose gradients are added before the optimizer steps."""

    num_parts: int
    batch: int
    """The batch of each part."""
    device: Interval


class Way(Record):
    """A Workload with some changes made together."""

    changes: tuple[str, ...]
    """The changes to make; empty for the Workload as it is."""
    effect: Literal["exact", "numerics"]
    """The strongest effect of the changes: every value stays the same, or is rounded otherwise."""
    flops_change: float = 0.0
    """The additional FLOPs of a step, as a share of those of the unchanged one."""
    largest: SweepRow | None = None
    """The largest batch that surely fits."""
    is_limit: bool = False
    """True if it is known that no larger one surely fits."""
    parts: BatchParts | None = None
    """The fewest in which the batch asked for surely fits, where there are any."""


class LongestPrompt(Record):
    """The longest prompt with which a generation of the batch asked for fits."""

    prompt: int
    """Tokens, 0 if not even one fits; a prompt up to a sixty-fourth longer may fit as well."""
    batch: int
    device: Interval | None = None
    """The device memory with it."""
    of_model: int | None = None
    """The tokens for which the model has positions beside the new ones; None if nothing limits them."""
    is_limit: bool = False
    """True if it is known that no longer one surely fits, or that the model takes none."""


class Fit(OnGpu):
    """The batches of one Workload that fit."""

    batch: int
    """The batch that was asked for."""
    dimensions: Annotated[dict[str, int], Field(exclude_if=lambda sizes: not sizes)] = {}
    """The other dimensions, with their sizes; left out where there are none."""
    strategy: str = ""
    """How the model is spread over ranks."""
    world_size: int = 1
    ways: tuple[Way, ...] = ()
    """As it is first, then with ever more changes."""
    note: str | None = None
    """Why the batch is not cut into parts."""
    longest_prompt: LongestPrompt | None = None
    """It is there for a generation, and is without any change."""


class Fits(Document):
    """All that a run of `memlint fit` says."""

    fits: tuple[Fit, ...] = ()


_OF_WORKLOAD = ("name", "target", "mode", "dtype", "gpu", "strategy", "world_size")


def on_ranks(entry: Sweep | Fit) -> str:
    """`fsdp on 8 ranks`."""
    ranks = format_count(entry.world_size, "rank")
    return f"{entry.strategy} on {ranks}" if entry.strategy else ranks


def subject(workload: Workload) -> dict[str, Any]:
    """The fields of a Sweep or a Fit that name the Workload and its GPU."""
    device = workload.device
    return {
        **{name: getattr(workload, name) for name in _OF_WORKLOAD},
        "optimizer": workload.optimizer if workload.mode == "train" else None,
        "gpu_title": device.title,
        "gpu_nbytes": device.total_nbytes,
    }


def row_of(size: SizePeaks, device: Device) -> SweepRow:
    """The peaks at one size as a Report says them, and whether they stay within the GPU."""
    if size.peaks is None:
        return SweepRow(batch=size.batch, error=size.error)
    ranges: dict[str, Any] = {name: Interval(**getattr(size.peaks, name)._asdict()) for name in Peak.model_fields}
    low, _, high = size.peaks.device
    within = outcome(low, high, device.total_nbytes) if device.is_cuda else None
    return SweepRow(batch=size.batch, **ranges, evidence=size.evidence, outcome=within)
