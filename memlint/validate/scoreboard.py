"""How far off the estimates are: per GPU and family, and the worst of them."""

import math
from collections.abc import Iterable, Iterator, Sequence

from memlint.base.grouping import grouped
from memlint.base.units import Measure
from memlint.report.model import Record
from memlint.validate.comparison import COMPARED, Comparison

ALL, FITTED, HELD_OUT = "all", "may be fitted", "held out"
"""Names of groups that are no families: everything, and the two halves of the suite."""

WORST = 10
_TOLERANCE = 1e-4
"""By how much an error may grow before a scoreboard counts as worse: what dividing bytes by bytes may round away."""


class Spread(Record):
    """Absolute errors of one peak, as shares of what was measured."""

    median: float
    p95: float
    """The smallest error that 95 % do not exceed."""


class GroupErrors(Record):
    """The errors of one group."""

    family: str
    count: int
    spreads: dict[str, Spread]
    """By the name of the peak, of those the device has."""
    too_low: float
    """The share of estimates that fall short by more than 1 %."""
    exact: float
    """The share of estimates that are equal to the byte."""


class WorstEstimate(Record):
    """One of the worst."""

    name: str
    family: str
    holdout: bool
    error: float
    reason: str


class Score(Record):
    """One GPU under one version of PyTorch."""

    gpu: str
    torch: str
    lines: list[GroupErrors]
    worst: list[WorstEstimate]
    """Worst first; without those that are exact."""
    failed: dict[str, str] = {}
    """Names of Subjects without an estimate, and why."""


class Scoreboard(Record):
    """All of them."""

    version: int = 1
    scores: list[Score]


def scoreboard(comparisons: Iterable[Comparison]) -> Scoreboard:
    """Sum `comparisons` up."""
    groups = grouped((comparison.measurement.group, comparison) for comparison in comparisons)
    return Scoreboard(scores=[_score(*key, group) for key, group in sorted(groups.items())])


def worse(now: Scoreboard, before: Scoreboard) -> list[str]:
    """What is worse now than before, one sentence each; GPUs and versions that `now` does not have are left out."""
    known = {(score.gpu, score.torch): {line.family: line for line in score.lines} for score in now.scores}
    return [
        f"{score.gpu}, torch {score.torch}, {old.family}: {text}"
        for score in before.scores
        if (score.gpu, score.torch) in known
        for old in score.lines
        for text in _worse(known[score.gpu, score.torch].get(old.family), old)
    ]


def _worse(now: GroupErrors | None, old: GroupErrors) -> Iterator[str]:
    if now is None or now.count < old.count:
        yield f"{now.count if now else 0} workloads, were {old.count}"
        return
    for name, spread in old.spreads.items():
        for key in ("median", "p95"):
            was, error = getattr(spread, key), getattr(now.spreads[name], key)
            if error > was + _TOLERANCE:
                yield f"{key} error of {name} {error:.2%}, was {was:.2%}"
    if now.too_low > old.too_low + _TOLERANCE:
        yield f"too low {now.too_low:.1%}, were {old.too_low:.1%}"


def _score(gpu: str, torch: str, group: Sequence[Comparison]) -> Score:
    known = [comparison for comparison in group if comparison.main is not None]
    families = grouped((comparison.measurement.subject.family or "other", comparison) for comparison in known)
    halves = {
        ALL: known,
        FITTED: [c for c in known if not c.measurement.subject.holdout],
        HELD_OUT: [c for c in known if c.measurement.subject.holdout],
    }
    wrong = sorted((c for c in known if c.error), key=lambda c: (-abs(c.error), c.measurement.subject.name))
    return Score(
        gpu=gpu,
        torch=torch,
        lines=[_errors(name, members) for name, members in (*halves.items(), *sorted(families.items())) if members],
        worst=[
            WorstEstimate(
                name=subject.name,
                family=subject.family,
                holdout=subject.holdout,
                error=comparison.error,
                reason=comparison.reason(),
            )
            for comparison in wrong[:WORST]
            for subject in (comparison.measurement.subject,)
        ],
        failed={c.measurement.subject.name: c.prediction.error or "" for c in group if c.main is None},
    )


def _errors(family: str, group: Sequence[Comparison]) -> GroupErrors:
    return GroupErrors(
        family=family,
        count=len(group),
        spreads={name: spread for name in COMPARED if (spread := _spread(group, name)) is not None},
        too_low=sum(comparison.is_too_low for comparison in group) / len(group),
        exact=sum(not comparison.error for comparison in group) / len(group),
    )


def _spread(group: Sequence[Comparison], name: Measure) -> Spread | None:
    errors = sorted(abs(peak.error) for comparison in group if (peak := comparison.peak(name)) is not None)
    return Spread(median=_quantile(errors, 0.5), p95=_quantile(errors, 0.95)) if errors else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of `ordered` that at least `share` of them do not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]
