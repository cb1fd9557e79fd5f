"""Parts of a Report that a check knows before it is over, for those who show them at once."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from memlint.capture.capture import Capture
from memlint.report.model import Finding, Workload


class Phase(NamedTuple):
    """The work that begins now, in a few words: `tracing GPT2`, `rule MEM101`."""

    text: str


Part: TypeAlias = Phase | Capture | Workload | Finding
"""A Phase; the Capture of a step; the Workload with its Estimate, before any rule has run; or a finding of a rule.

Workloads and findings stand in the Report as they are here, but for what the Workload gets from the rules and the
table of batch sizes.
"""

OnPart: TypeAlias = Callable[[Part], None]


def nobody(_part: Part) -> None:
    """Show a Part to nobody."""
