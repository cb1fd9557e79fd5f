"""The document that `memlint explain` writes: versioned, every size in bytes."""

from typing import Literal

from pydantic import Field

from memlint.explain.recordings.verdict import Cause
from memlint.memory.records import Category, Phase
from memlint.report.model import Located, Plan, Record


class Line(Located):
    """The bytes that one source line holds at a moment; `path` is None where no line is recorded."""

    nbytes: int
    num: int
    """Number of allocations."""
    label: str = ""
    """A description where no line is recorded: `backward mm`, `before the recording`."""
    op: str = ""
    """The ATen operator that made most of it, if C++ frames are recorded."""
    categories: dict[Category, int]


class Moment(Record):
    """Everything alive at a moment; every size is requested bytes."""

    kind: Literal["peak", "failure", "end"]
    """`end`: when the snapshot was taken, of a recording without events."""
    nbytes: int
    from_before: int
    """Bytes that were there before the recording."""
    lines: list[Line]
    """Most bytes first; may be cut, see `num_lines`."""
    num_lines: int
    categories: dict[Category, int]
    phases: dict[Phase, int] = Field(default_factory=dict)
    """By the phase in which it was made; empty if stacks do not tell."""
    streams: dict[int, int]
    pools: dict[Literal["small", "large"], int]


class FailedRequest(Located):
    """The last request that could not be served."""

    request: int
    free: int
    """On the GPU, as the driver said."""
    requested: int
    allocated: int
    reserved: int
    cached: int
    """Reserved and not allocated: no block of it could serve the request."""
    num_free_blocks: int
    largest_free: int
    of_others: int
    """The part of `cached` that belongs to other streams or to the other pool."""
    lacking: int
    """Bytes by which allocated memory and the request exceed what PyTorch could reserve; negative: they do not."""
    num_retries: int
    num_failures: int
    """Requests that failed in this recording, this one included."""


class Settings(Record):
    """The same requests under other settings."""

    name: str
    alloc_conf: str
    capacity: int | None = None
    """Bytes for segments; None: without limit."""
    reserved: int | None = None
    """The most; None if it was not replayed."""
    allocated: int | None = None
    num_retries: int = 0
    fails: bool | None = None
    """True if a request fails; None if nothing says how much memory there is."""
    is_exact: bool = False
    note: str = ""


class GrowingLine(Located):
    """A line whose allocations stay alive in each step."""

    per_step: int
    nbytes: int
    num_steps: int


class Growing(Record):
    """Memory that stays alive from step to step and grows."""

    per_step: int
    nbytes: int
    lines: list[GrowingLine]


class RuleFinding(Located):
    """A finding of a rule in the recording; its page is that of `memlint rule CODE`."""

    code: str
    nbytes: int
    message: str


class OnOneSide(Record):
    """Allocations that only the recording or only the simulation has at its peak."""

    place: str
    """Name of the file, and the line; empty if no line is known."""
    label: str
    category: Category
    nbytes: int
    num: int


class Comparison(Record):
    """The peak beside that of the simulated program; every size is requested bytes."""

    target: str
    recorded: int
    simulated: int
    num_pairs: int
    """Allocations of the same bytes on both sides."""
    paired: int
    """Their bytes."""
    only_recorded: list[OnOneSide]
    only_simulated: list[OnOneSide]
    plan: Plan | None = None
    """Changes of the program that bring its step into the memory there was when the recorded one failed; each was
    simulated on the program. Left out without a failure, and where memlint check finds no plan."""


class Explanation(Record):
    """One GPU of one recording."""

    source: str
    device: int
    cause: Cause
    verdict: str
    next_step: str
    requested: int
    """The most bytes that were requested at once."""
    allocated: int
    """The same as blocks, by a replay; PyTorch calls it `memory_allocated`."""
    reserved: int
    """The most bytes of segments, as recorded."""
    replayed: int
    """The same, by a replay under the recorded settings: equal if the model of the allocator is right."""
    settings: str
    num_events: int
    begins_in_the_middle: bool
    num_steps: int
    steps_by: Literal["optimizer", "period", "none"]
    failure: FailedRequest | None
    moments: list[Moment]
    growth: Growing | None
    findings: list[RuleFinding]
    """Most bytes first."""
    other_settings: list[Settings]
    notes: list[str]
    against: Comparison | None = None
    """Left out unless a program was named."""


class Explanations(Record):
    """All that a run of `memlint explain` says of recordings."""

    version: Literal[1] = 1
    tool: str
    explanations: list[Explanation]
