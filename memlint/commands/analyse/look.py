"""How a target is looked at, beside what stands in its settings."""

from memlint.report.model import Record


class Look(Record):
    """What a Report is to hold of each Workload."""

    init: bool = False
    """Whether to write the declarations that make the assumptions explicit."""
    plan: bool = False
    """Whether to find the changes that bring every Workload below its budget, or into its GPU."""
    allow_dynamics: bool = False
    """Whether a plan may change the dynamics of training."""
    thorough: bool = False
    """Whether rules are to simulate alternatives that only a detailed report shows."""
    timeline: bool = False
    """Whether the Report is to hold the lifetime of every Buffer."""
    graph: bool = False
    """Whether the Report is to hold the last step as a graph."""
    sweep: bool = False
    """Whether to estimate batch sizes around that of each Workload, unless its settings say no."""
    alloc_conf: str = ""
    """Settings of PyTorch's allocator (`PYTORCH_ALLOC_CONF`) in place of those that hold otherwise."""
