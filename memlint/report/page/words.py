"""What the page says, where the Report only has numbers and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.base.units import format_count, format_nbytes
from memlint.report.model import Settings
from memlint.report.naming import MEASURES

if TYPE_CHECKING:
    from memlint.report.model import Change, Estimate, Report, Verdict, Workload
    from memlint.report.naming import Measure

OUTCOMES = {"fits": "fits", "does not fit": "over", "uncertain": "unsure"}
"""Outcomes as classes of the style."""
_KEPT = {"fits": "kept", "does not fit": "exceeded", "uncertain": "may be exceeded"}


def measure_of(workload: Workload) -> Measure:
    """Which of the four peaks stands in the heading."""
    return workload.verdict.measure if workload.verdict else "requested" if workload.gpu == "cpu" else "device"


def headline(workload: Workload) -> str:
    """What needs how much: of what, and whether that is there, the badges beside it say."""
    if workload.estimate is None:
        return workload.name
    measure = measure_of(workload)
    return f"{workload.name} needs {format_nbytes(getattr(workload.estimate.peak, measure).estimate)}"


def verdict(said: Verdict) -> str:
    """The verdict against a GPU."""
    outcome = "uncertain on" if said.outcome == "uncertain" else said.outcome
    return f"{outcome} {said.limit_name}, {format_nbytes(said.limit)}"


def kept(said: Verdict) -> str:
    """The verdict against a budget, of the device's bytes where nothing else is said."""
    measure = "" if said.measure == "device" else f" {said.measure}"
    level = " (warning)" if said.level == "warning" else ""
    return f"{said.limit_name} {format_nbytes(said.limit)}{measure} {_KEPT[said.outcome]}{level}"


def summary(report: Report) -> str:
    """The verdict on all Workloads of a Report."""
    outcomes = [said.outcome for each in report.workloads for said in (each.verdict, each.budget) if said is not None]
    exceeded, unsure = outcomes.count("does not fit"), outcomes.count("uncertain")
    errors = sum(each.error is not None for each in report.workloads)
    parts = (
        format_count(len(report.workloads), "workload"),
        f"{format_count(exceeded, 'limit')} exceeded" if exceeded else "",
        f"{format_count(unsure, 'limit')} may be exceeded" if unsure else "",
        f"{errors} not analysed" if errors else "",
        format_count(len(report.findings), "finding") if report.findings else "no findings",
    )
    return ", ".join(part for part in parts if part)


def step(workload: Workload) -> str:
    """What is simulated, in the order in which one would type it."""
    facts = (
        f"{workload.mode} step" if workload.mode else "",
        f"batch {workload.batch}" if workload.batch else "",
        workload.dtype,
        workload.optimizer if workload.mode == "train" else "",
        workload.gpu,
    )
    return ", ".join(fact for fact in facts if fact)


def scale_of(workload: Workload, estimate: Estimate) -> int:
    """The bytes that the longest bar of the peaks stands for."""
    limits = [said.limit for said in (workload.verdict, workload.budget) if said is not None]
    highs = [getattr(estimate.peak, measure).high for measure in MEASURES]
    highest = max(highs)
    # A limit far beyond the peaks would leave their bars too short to compare.
    return max([highest, *(limit for limit in limits if limit <= 12 * highest)]) * 21 // 20 or 1


def share(part: int, whole: int) -> str:
    """`part` of `whole` in percent."""
    return "" if whole <= 0 else "<1%" if 0 < part / whole < 0.01 else f"{part / whole:.0%}"


def change(nbytes: int) -> str:
    """A difference, with its sign."""
    return ("\u2212" if nbytes < 0 else "+") + format_nbytes(abs(nbytes))


def cost(made: Change) -> str:
    """What a Change does to training and how much longer a step computes."""
    more = f", {made.recompute_share:.0%} more FLOPs" if made.recompute_share >= 0.005 else ""
    return made.effect + more


def spaced(name: str) -> str:
    """A name as people write it."""
    return name.replace("_", " ")


def parts(text: str) -> list[tuple[bool, str]]:
    """`text` cut at its backticks; with each piece, whether it stood between two and so is code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(False, text)]
    return [(bool(number % 2), piece) for number, piece in enumerate(pieces) if piece]


def sources(estimate: Estimate | None) -> dict[tuple[str | None, int | None], str]:
    """The text of the lines that the Report knows."""
    return {(line.path, line.line): line.source for line in estimate.by_line if line.source} if estimate else {}


def settings(asked: Settings) -> list[tuple[str, str]]:
    """What was asked for, by name."""
    said = []
    for name, default in Settings():
        match name, getattr(asked, name):
            case _, value if value == default:
                continue
            case "budget", nbytes:
                text = format_nbytes(nbytes)
            case _, list(values):
                text = ", ".join(values)
            case _, value:
                text = str(value)
        said.append((name.replace("_", "-"), text))
    return said
