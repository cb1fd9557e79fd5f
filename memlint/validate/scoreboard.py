"""Errors of the estimates: per GPU and family, and the worst of them."""

import math
from collections.abc import Iterable, Iterator, Sequence

from memlint.base.grouping import grouped
from memlint.base.units import Measure
from memlint.report.model import Record
from memlint.validate.comparison import COMPARED, Comparison

ALL, FITTED, HELD_OUT = "all", "may be fitted", "held out"
"""Names of groups that are not families: everything, and the two halves of the suite."""

WORST = 10
_TOLERANCE = 1e-4
"""Increase of an error that does not yet count as worse: rounding of a division of bytes by bytes."""


class Spread(Record):
    """Absolute errors of one peak, as shares of the measured figure."""

    median: float
    p95: float
    """The smallest error that 95 % of the errors do not exceed."""


class GroupErrors(Record):
    """The errors of one group."""

    family: str
    count: int
    spreads: dict[str, Spread]
    """Spreads of the peaks that the device has, by the name of the peak."""
    too_low: float
    """The share of estimates that fall short by more than 1 %."""
    exact: float
    """The share of estimates that are equal to the byte."""


class WorstEstimate(Record):
    """One of the largest errors."""

    name: str
    family: str
    holdout: bool
    error: float
    reason: str


class Score(Record):
    """The score of one GPU under one version of PyTorch."""

    gpu: str
    torch: str
    lines: list[GroupErrors]
    worst: list[WorstEstimate]
    """Largest error first, without exact estimates."""
    failed: dict[str, str] = {}
    """Subjects without an estimate: name and reason."""


class Scoreboard(Record):
    """All Scores."""

    version: int = 1
    scores: list[Score]


def scoreboard(comparisons: Iterable[Comparison]) -> Scoreboard:
    """Summarise `comparisons`."""
    groups = grouped((comparison.measurement.group, comparison) for comparison in comparisons)
    return Scoreboard(scores=[_score(*key, group) for key, group in sorted(groups.items())])


def worse(now: Scoreboard, before: Scoreboard) -> list[str]:
    """Return what has become worse, one sentence each; GPUs and versions that `now` lacks are left out."""
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
    """Return the smallest of `ordered` that at least `share` of them do not exceed."""
    return ordered[math.ceil(share * len(ordered)) - 1]
