"""The Comparison of two Reports, which renderers and pull-request comments read.

`base` is the older side, `head` the newer one. Sizes are bytes. As in a Report, fields may be added within a version,
never removed.
"""

from typing import Literal

from memlint.memory.records import Category
from memlint.report.model import BufferKind, Finding, Located, Peak, Ranks, Record, StreamPeak, Verdict

State = Literal["grown", "shrunk", "changed", "unchanged", "new", "removed", "failed", "recovered"]
"""`changed`: something other than the peak; `failed`: head could not be analysed; `recovered`: only base could not.

The Facts of that side hold the error.
"""
BudgetRule = Literal["max", "max-increase", "max-increase-percent"]
BudgetOutcome = Literal["kept", "exceeded", "uncertain", "unknown"]


class Side(Record):
    """One of the two Reports."""

    label: str
    """The text typed for this side: a file, a revision or a directory."""
    commit: str | None = None
    """The commit of a revision."""
    tool: str
    torch: str | None = None


class Facts(Record):
    """One side of a Workload; fields as in the Report."""

    mode: str | None = None
    batch: int | None = None
    dtype: str | None = None
    optimizer: str | None = None
    gpu: str | None = None
    torch: str = "as installed"
    context: int = 0
    """Bytes of the given CUDA context; 0 if none was given."""
    peak: Peak | None = None
    """None if the analysis failed."""
    verdict: Verdict | None = None
    """The verdict against the GPU."""
    ranks: Ranks | None = None
    streams: list[StreamPeak] = []
    is_own_step: bool = False
    """True if it is a script that ended before its first step, and the step is memlint's own."""
    error: str | None = None
    """Why it could not be analysed: its own error, or the error of the target that it belongs to."""


class CategoryChange(Record):
    """Requested bytes of one category at the peak."""

    category: Category
    base: int
    head: int


class ModuleChange(Record):
    """Requested bytes of one module at the peak; repeated blocks are one, as in `h.*.attn`."""

    module: str
    """Empty for the model itself, and for bytes outside any module."""
    base: int
    head: int


class LineChange(Located):
    """Requested bytes that one source line of head, or else of base, holds at the peak; lines match by their text."""

    source: str
    module: str = ""
    why: str = ""
    base: int
    head: int


class BufferChange(BufferKind):
    """Similar Buffers at the peak: of one category, allocated by one line for modules of one kind, by one kernel.

    For Buffers with a name, line and kernel do not matter. The shape is that of the largest Buffer in head, or else
    base.
    """

    base: int
    head: int
    num_base: int
    num_head: int


class LargestBatch(Record):
    """The largest batch that surely fits, by dtype; None if unknown."""

    dtype: str
    gpu: str
    gpu_title: str
    base: int | None
    head: int | None


class BatchChange(Record):
    """The device peak at one batch size, in the dtype of the Workload."""

    batch: int
    base: int | None
    head: int | None


class BudgetCheck(Record):
    """One limit of a Workload's budget, and the figure compared with it."""

    rule: BudgetRule
    limit: float
    """Bytes, or percent."""
    actual: float | None
    """None if there is nothing to compare with."""
    outcome: BudgetOutcome
    level: Literal["error", "warning"]


class WorkloadChange(Record):
    """One Workload on both sides."""

    name: str
    target: str
    state: State
    measure: Literal["requested", "device"] = "device"
    """The peak to compare: `requested` if the estimate is for the host."""
    base: Facts | None = None
    head: Facts | None = None
    notes: list[str] = []
    """Differences that make the two sides more than two versions of one Workload, such as another batch size."""
    categories: list[CategoryChange] = []
    """The categories that changed, the largest increase first. All lists here have this order."""
    modules: list[ModuleChange] = []
    lines: list[LineChange] = []
    buffers: list[BufferChange] = []
    largest: list[LargestBatch] = []
    """The largest batches by dtype, changed or not."""
    batches: list[BatchChange] = []
    """All batch sizes that either side knows, in order."""
    budget: list[BudgetCheck] = []
    findings_new: list[Finding] = []
    """Findings that only head has; empty if one side could not be analysed, as is `findings_fixed`."""
    findings_fixed: list[Finding] = []
    """Findings that only base has."""

    @property
    def may_hide_findings(self) -> bool:
        """True if findings that only base has may still apply: a higher peak, or another step, can hide them."""
        return bool(self.notes) or (self.change or 0) > 0

    @property
    def nbytes_base(self) -> int | None:
        """The estimate of the compared peak in base; None without one."""
        return self.base.peak[self.measure].estimate if self.base is not None and self.base.peak is not None else None

    @property
    def nbytes_head(self) -> int | None:
        """The estimate of the compared peak in head; None without one."""
        return self.head.peak[self.measure].estimate if self.head is not None and self.head.peak is not None else None

    @property
    def change(self) -> int | None:
        """The change of the peak; None if one side has none."""
        base, head = self.nbytes_base, self.nbytes_head
        return None if base is None or head is None else head - base

    def exceeds(self, *levels: str) -> bool:
        """Return True if a check of the budget with one of these levels is exceeded."""
        return any(check.outcome == "exceeded" and check.level in levels for check in self.budget)


class Comparison(Record):
    """Everything that differs between two Reports."""

    version: Literal[1] = 1
    kind: Literal["comparison"] = "comparison"
    tool: str
    """`memlint` and the version that compared."""
    base: Side | None
    """None if there was nothing to compare with."""
    head: Side
    notes: list[str] = []
    """Limitations of the comparison, such as different versions of PyTorch."""
    workloads: list[WorkloadChange] = []
    """Workloads in the order of head, then those that only base has."""
    findings_new: list[Finding] = []
    """New findings of the rules that read only the source; `findings_fixed` has the fixed ones."""
    findings_fixed: list[Finding] = []

    @property
    def failed(self) -> list[WorkloadChange]:
        """The Workloads that head could not analyse."""
        return [change for change in self.workloads if change.state == "failed"]

    @property
    def exceeded(self) -> list[WorkloadChange]:
        """The Workloads that exceed their budget."""
        return [change for change in self.workloads if change.exceeds("error", "warning")]

    @property
    def status(self) -> int:
        """0: success; 1: an exceeded budget fails the run; 2: head could not be analysed."""
        return 2 if self.failed else int(any(change.exceeds("error") for change in self.workloads))
