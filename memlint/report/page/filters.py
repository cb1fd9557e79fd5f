"""What the templates of the page say, where the Report only has numbers and names."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from memlint.base.units import format_count, format_nbytes
from memlint.report.model import (
    NOT_BY_LINE,
    CategoryName,
    Estimate,
    LineBytes,
    Place,
    Report,
    Settings,
    Verdict,
    Workload,
)
from memlint.report.phrases import BUDGET_OUTCOMES, MEASURES, listed, ranks_text, step_text, torch_text

OUTCOMES = {"fits": "fits", "does not fit": "over", "uncertain": "unsure"}
"""Outcomes as classes of the style."""


def headline(workload: Workload) -> str:
    """What needs how much; the badges beside it say of what, and whether it is there."""
    if workload.estimate is None:
        return workload.name
    return f"{workload.name} needs {format_nbytes(workload.estimate.peak[workload.measure].estimate)}"


def verdict(gpu: Verdict) -> str:
    """The verdict against a GPU."""
    outcome = "uncertain on" if gpu.outcome == "uncertain" else gpu.outcome
    return f"{outcome} {gpu.limit_name}, {format_nbytes(gpu.limit)}"


def kept(budget: Verdict) -> str:
    """The verdict against a budget, of the device's bytes where nothing else is said."""
    measure = "" if budget.measure == "device" else f" {budget.measure}"
    level = " (warning)" if budget.level == "warning" else ""
    return f"{budget.limit_name} {format_nbytes(budget.limit)}{measure} {BUDGET_OUTCOMES[budget.outcome]}{level}"


def summary(report: Report) -> str:
    """The verdict on all Workloads of a Report."""
    exceeded, unsure = report.outcomes.count("does not fit"), report.outcomes.count("uncertain")
    return listed(
        format_count(len(report.workloads), "workload"),
        f"{format_count(exceeded, 'limit')} exceeded" if exceeded else "",
        f"{format_count(unsure, 'limit')} may be exceeded" if unsure else "",
        f"{report.num_failed} not analysed" if report.num_failed else "",
        format_count(len(report.findings), "finding") if report.findings else "no findings",
    )


def step(workload: Workload) -> str:
    """What is simulated."""
    optimizer = workload.optimizer if workload.mode == "train" else ""
    others = torch_text(workload), ranks_text(workload.ranks)
    return step_text(workload.mode, workload.batch, workload.dtype, optimizer, workload.gpu, *others)


def scale_of(workload: Workload, estimate: Estimate) -> int:
    """The bytes that the longest bar of the peaks stands for."""
    highest = max(estimate.peak[measure].high for measure in MEASURES)
    # A limit far beyond the peaks would leave their bars too short to compare.
    limits = [verdict.limit for verdict in workload.verdicts if verdict.limit <= 12 * highest]
    return max([highest, *limits]) * 21 // 20 or 1


def parts(text: str) -> list[tuple[bool, str]]:
    """`text` cut at its backticks; with each piece, whether it stood between two and so is code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(False, text)]
    return [(bool(number % 2), piece) for number, piece in enumerate(pieces) if piece]


def sources(estimate: Estimate | None) -> dict[tuple[str | None, int | None, Place | None], str]:
    """The text of the lines that the Report knows."""
    lines = estimate.by_line if estimate else []
    return {(line.path, line.line, line.library): line.source for line in lines if line.source}


class ByLineRow(NamedTuple):
    """A row of the table by source line: a line, or what modules that differ in numbers alone hold without one."""

    line: LineBytes | None
    number: int
    """Position of the line in the Report; other rows count on in their own order."""
    nbytes: int
    categories: Mapping[CategoryName, int]
    module: str = ""


def by_line_rows(estimate: Estimate) -> list[ByLineRow]:
    """The lines, and parameters, gradients and states, which no line makes, by module; most bytes first."""
    without: dict[str, Counter[CategoryName]] = {}
    for row in estimate.by_module:
        held = Counter({name: row.categories.get(name, 0) for name in NOT_BY_LINE if row.categories.get(name)})
        if held:
            pattern = ".".join("*" if part.isdigit() else part for part in row.module.split("."))
            without.setdefault(pattern, Counter()).update(held)
    others = [
        ByLineRow(None, number, held.total(), held, module) for number, (module, held) in enumerate(without.items())
    ]
    lines = [ByLineRow(line, number, line.nbytes, line.categories) for number, line in enumerate(estimate.by_line)]
    return sorted([*lines, *others], key=lambda row: -row.nbytes)


def settings(settings: Settings) -> list[tuple[str, str]]:
    """What was asked for, by name."""
    texts = []
    for name, default in Settings():
        match name, getattr(settings, name):
            case _, value if value == default:
                continue
            case "budget", nbytes:
                text = format_nbytes(nbytes)
            case _, list(values):
                text = ", ".join(values)
            case _, value:
                text = str(value)
        texts.append((name.replace("_", "-"), text))
    return texts
