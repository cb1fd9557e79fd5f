"""The Comparison of two Reports, which renderers and pull-request comments read.

`base` is what was there before, `head` what is there now. Sizes are bytes. As in a Report fields may be added, never
removed, within a version.
"""

from typing import Literal

from memlint.report.model import BufferKind, CategoryName, Finding, Located, Peak, Ranks, Record, StreamPeak, Verdict

State = Literal["grown", "shrunk", "changed", "unchanged", "new", "removed", "failed", "recovered"]
"""`changed`: not its peak, but something else; `failed`, `recovered`: head, or only base, could not be analysed.

The error of the side stands in its Facts.
"""
BudgetRule = Literal["max", "max-increase", "max-increase-percent"]
BudgetOutcome = Literal["kept", "exceeded", "uncertain", "unknown"]


class Side(Record):
    """One of the two Reports."""

    label: str
    """What was typed for it: a file, a revision or a directory."""
    commit: str | None = None
    """The commit that a revision stands for."""
    tool: str
    torch: str | None = None


class Facts(Record):
    """What a Workload is on one side; fields as in the Report."""

    mode: str | None = None
    batch: int | None = None
    dtype: str | None = None
    optimizer: str | None = None
    gpu: str | None = None
    torch: str = "as installed"
    context: int = 0
    """The CUDA context that was given; 0 where none was."""
    peak: Peak | None = None
    """None where it could not be analysed."""
    verdict: Verdict | None = None
    """Against the GPU."""
    ranks: Ranks | None = None
    streams: list[StreamPeak] = []
    error: str | None = None
    """Why it could not be analysed: its own error, or that of the target that it is in."""


class CategoryChange(Record):
    """Requested bytes of one category at the peak."""

    category: CategoryName
    base: int
    head: int


class ModuleChange(Record):
    """Requested bytes of one module at the peak; repeated blocks are one, as in `h.*.attn`."""

    module: str
    """Empty for the model itself, and for what lies outside of it."""
    base: int
    head: int


class LineChange(Located):
    """Requested bytes that one source line of head, or else of base, holds at the peak; it is known by its text."""

    source: str
    module: str = ""
    why: str = ""
    base: int
    head: int


class BufferChange(BufferKind):
    """Buffers at the peak that are alike: of one category, made by one line for modules of one kind, by one kernel.

    Of those with a name neither the line nor the kernel matters. The shape is that of the biggest in head, or else
    base.
    """

    base: int
    head: int
    num_base: int
    num_head: int


class LargestBatch(Record):
    """The largest batch that surely fits, by dtype; None where none is known."""

    dtype: str
    gpu: str
    gpu_title: str
    base: int | None
    head: int | None


class BatchChange(Record):
    """The device peak at one batch size of the dtype of the Workload."""

    batch: int
    base: int | None
    head: int | None


class BudgetCheck(Record):
    """One limit of the budget of a Workload, and what is held against it."""

    rule: BudgetRule
    limit: float
    """Bytes, or percent."""
    actual: float | None
    """None where there is nothing to compare with."""
    outcome: BudgetOutcome
    level: Literal["error", "warning"]


class WorkloadChange(Record):
    """One Workload on both sides."""

    name: str
    target: str
    state: State
    measure: Literal["requested", "device"] = "device"
    """The peak that is compared: `requested` where the host was estimated."""
    base: Facts | None = None
    head: Facts | None = None
    notes: list[str] = []
    """What makes the two sides something else than the same Workload, such as another batch size."""
    categories: list[CategoryChange] = []
    """Those that changed, as all lists here: what grew most first."""
    modules: list[ModuleChange] = []
    lines: list[LineChange] = []
    buffers: list[BufferChange] = []
    largest: list[LargestBatch] = []
    """All, changed or not."""
    batches: list[BatchChange] = []
    """All batch sizes that either side knows, in order."""
    budget: list[BudgetCheck] = []
    findings_new: list[Finding] = []
    """None where one side could not be analysed, as in `findings_fixed`."""
    findings_fixed: list[Finding] = []
    """That base alone has."""

    @property
    def may_hide_findings(self) -> bool:
        """True if what base alone found may be there still: beside a higher peak, or in another step, it is less."""
        return bool(self.notes) or (self.change or 0) > 0

    @property
    def nbytes_base(self) -> int | None:
        """The estimate of the peak that is compared; None where there is none."""
        return self.base.peak[self.measure].estimate if self.base is not None and self.base.peak is not None else None

    @property
    def nbytes_head(self) -> int | None:
        """The estimate of the peak that is compared; None where there is none."""
        return self.head.peak[self.measure].estimate if self.head is not None and self.head.peak is not None else None

    @property
    def change(self) -> int | None:
        """How the peak changed; None where one side has none."""
        base, head = self.nbytes_base, self.nbytes_head
        return None if base is None or head is None else head - base

    def exceeds(self, *levels: str) -> bool:
        """Whether a check of the budget with one of these levels is exceeded."""
        return any(check.outcome == "exceeded" and check.level in levels for check in self.budget)


class Comparison(Record):
    """Everything that differs between two Reports."""

    version: Literal[1] = 1
    kind: Literal["comparison"] = "comparison"
    tool: str
    """`memlint` and its version, which compared."""
    base: Side | None
    """None where there was nothing to compare with."""
    head: Side
    notes: list[str] = []
    """What limits what the comparison says, such as another version of PyTorch."""
    workloads: list[WorkloadChange] = []
    """As in head, then those that are gone."""
    findings_new: list[Finding] = []
    """Of the rules that read only the source, as is `findings_fixed`."""
    findings_fixed: list[Finding] = []

    @property
    def failed(self) -> list[WorkloadChange]:
        """The Workloads that head could not analyse."""
        return [change for change in self.workloads if change.state == "failed"]

    @property
    def exceeded(self) -> list[WorkloadChange]:
        """The Workloads with a budget that is exceeded."""
        return [change for change in self.workloads if change.exceeds("error", "warning")]

    @property
    def status(self) -> int:
        """0: all is well; 1: a budget is exceeded that fails the run; 2: head could not be analysed."""
        return 2 if self.failed else int(any(change.exceeds("error") for change in self.workloads))
