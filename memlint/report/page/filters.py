"""Jinja filters of the page: text for the numbers and names of the Report."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from memlint.base.units import format_count, format_nbytes
from memlint.memory.records import Category
from memlint.report.model import (
    NOT_BY_LINE,
    Estimate,
    LineBytes,
    Place,
    Report,
    Settings,
    Verdict,
    Workload,
)
from memlint.report.phrases import (
    BUDGET_OUTCOMES,
    MEASURES,
    listed,
    outcome_text,
    ranks_text,
    step_text,
    tokens_text,
    torch_text,
)

OUTCOMES = {"fits": "fits", "does not fit": "over", "uncertain": "unsure"}
"""Outcomes as classes of the style sheet."""


def headline(workload: Workload) -> str:
    """Return the Workload's name and its peak; the badges beside it name the limits and the verdicts."""
    if workload.estimate is None:
        return workload.name
    if workload.origin == "recording":
        if workload.timeline is not None and workload.timeline.failures:
            return f"{workload.name} ran out of memory"
        return f"{workload.name} held {format_nbytes(workload.estimate.peak.requested.estimate)}"
    return f"{workload.name} needs {format_nbytes(workload.estimate.peak[workload.measure].estimate)}"


def verdict(gpu: Verdict, workload: Workload) -> str:
    """Return the verdict against a GPU."""
    outcome = "uncertain on" if gpu.outcome == "uncertain" else outcome_text(workload, gpu.outcome)
    return f"{outcome} {gpu.limit_name}, {format_nbytes(gpu.limit)}"


def kept(budget: Verdict) -> str:
    """Return the verdict against a budget, which is for device bytes unless it says otherwise."""
    measure = "" if budget.measure == "device" else f" {budget.measure}"
    level = " (warning)" if budget.level == "warning" else ""
    return f"{budget.limit_name} {format_nbytes(budget.limit)}{measure} {BUDGET_OUTCOMES[budget.outcome]}{level}"


def summary(report: Report) -> str:
    """Return the verdict on all Workloads of a Report."""
    exceeded, unsure = report.outcomes.count("does not fit"), report.outcomes.count("uncertain")
    return listed(
        format_count(len(report.workloads), "workload"),
        f"{format_count(exceeded, 'limit')} exceeded" if exceeded else "",
        f"{format_count(unsure, 'limit')} may be exceeded" if unsure else "",
        f"{report.num_failed} not analysed" if report.num_failed else "",
        format_count(len(report.findings), "finding") if report.findings else "no findings",
    )


def step(workload: Workload) -> str:
    """Describe the simulated step."""
    optimizer = workload.optimizer if workload.mode == "train" else ""
    others = tokens_text(workload.estimate), torch_text(workload), ranks_text(workload.ranks)
    return step_text(workload.mode, workload.batch, workload.dtype, optimizer, workload.gpu, *others)


def scale_of(workload: Workload, estimate: Estimate) -> int:
    """Return the bytes that the longest bar of the peaks stands for."""
    highest = max(estimate.peak[measure].high for measure in MEASURES)
    # A limit far above the peaks would leave their bars too short to compare.
    limits = [verdict.limit for verdict in workload.verdicts if verdict.limit <= 12 * highest]
    return max([highest, *limits]) * 21 // 20 or 1


def parts(text: str) -> list[tuple[bool, str]]:
    """Split `text` at its backticks; each piece is paired with True if it is code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(False, text)]
    return [(bool(number % 2), piece) for number, piece in enumerate(pieces) if piece]


def sources(estimate: Estimate | None) -> dict[tuple[str | None, int | None, Place | None], str]:
    """Return the text of the lines that the Report knows."""
    lines = estimate.by_line if estimate else []
    return {(line.path, line.line, line.library): line.source for line in lines if line.source}


class ByLineRow(NamedTuple):
    """A row of the table by source line: a line, or, for bytes without one, modules that differ only in numbers."""

    line: LineBytes | None
    number: int
    """Position of the line in the Report; other rows continue the numbering."""
    nbytes: int
    categories: Mapping[Category, int]
    module: str = ""


def by_line_rows(estimate: Estimate) -> list[ByLineRow]:
    """Return the lines, and by module parameters, gradients and states, which have no line; most bytes first."""
    without: dict[str, Counter[Category]] = {}
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
    """Return the settings of the run by name."""
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
