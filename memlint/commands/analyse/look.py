"""How a target is looked at, beside what stands in its settings."""

from memlint.report.model import Record


class Look(Record):
    """The contents that a Report is to hold for each Workload."""

    init: bool = False
    """True to write the declarations that make the assumptions explicit."""
    plan: bool = False
    """True to find the changes that bring every Workload below its budget, or into its GPU."""
    allow_dynamics: bool = False
    """True if a plan may change the dynamics of training."""
    thorough: bool = False
    """True for a detailed report, which shows alternatives to what rules propose."""
    timeline: bool = False
    """True if the Report is to hold the lifetime of every Buffer."""
    graph: bool = False
    """True if the Report is to hold the last step as a graph."""
    quick: bool = False
    """True for the Estimate alone: no rule runs, and no table is made."""
    sweep: bool = False
    """True to estimate batch sizes around that of each Workload, unless its settings say no."""
    alloc_conf: str = ""
    """Settings of PyTorch's allocator (`PYTORCH_ALLOC_CONF`) in place of those that hold otherwise."""
