"""The figures that an engine will log, whether it starts, and what to change: the result of a plan, in bytes."""

from typing import Literal, Self

from pydantic import NonNegativeInt

from memlint.report.model import Interval, Record
from memlint.serving.options import ServeOptions

Start = Literal["starts", "may start", "does not start"]


def exact(nbytes: int) -> Interval:
    """Return an Interval of bytes that are known."""
    return Interval(low=nbytes, estimate=nbytes, high=nbytes)


def between(low: float, estimate: float, high: float) -> Interval:
    """Return an Interval of whole bytes."""
    return Interval(low=int(low), estimate=int(estimate), high=int(high))


class Ratio(Record):
    """A number of requests: at least, most likely and at most."""

    low: float
    estimate: float
    high: float


class Stage(Record):
    """One GPU of a stage of the pipeline."""

    weights: Interval
    activations: Interval
    """Peak of the profile run beyond the weights."""
    buffers: Interval
    """Memory that the engine keeps beside weights and cache."""
    non_torch: Interval
    """Memory of libraries and the driver that PyTorch does not allocate, beyond what a bare process holds."""
    cuda_graphs: Interval
    cache: Interval
    """Bytes left for the cache."""


class Remedy(Record):
    """A change of options with which the engine starts."""

    option: str
    """As typed: `--max-model-len 16384`."""
    effect: str
    """The result of the change, in words."""


class Served(Record):
    """One model on one engine with one set of options."""

    model: str
    options: ServeOptions
    """With the engine's defaults."""
    gpu: str
    gpu_title: str
    gpu_nbytes: NonNegativeInt
    num_gpus: int
    requested: NonNegativeInt
    """Bytes of each GPU that the engine gives itself."""
    stages: tuple[Stage, ...]
    tightest: int
    """Position in `stages` of the one that has the fewest blocks, which is what all have."""
    subtracts_graphs: bool
    """True if the CUDA graphs come off the cache; else they are captured from what is not requested."""
    nbytes_of_block: NonNegativeInt
    num_groups: NonNegativeInt
    """Tables of blocks that each request has."""
    num_blocks: Interval
    num_tokens: Interval
    concurrency: Ratio
    """Requests of the longest length at once, in all copies of the model."""
    start: Start
    reason: str = ""
    """Why it does not start, or may not."""
    remedies: tuple[Remedy, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def stage(self) -> Stage:
        """The tightest stage."""
        return self.stages[self.tightest]

    def with_remedies(self, remedies: tuple[Remedy, ...]) -> Self:
        """Return the same with remedies."""
        return self.model_copy(update={"remedies": remedies})
