"""A recording beside the simulated step of its program."""

from collections import defaultdict
from collections.abc import Iterable

from memlint.explain.recordings.against import Held, against
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.model import Comparison, OnOneSide
from memlint.memory.records import Trace


def comparison_of(evidence: Evidence, trace: Trace, target: str) -> Comparison:
    """Compare the peaks of a Recording and of a Trace."""
    both = against(evidence, trace)
    return Comparison(
        target=target,
        recorded=both.recorded,
        simulated=both.simulated,
        num_pairs=len(both.pairs),
        paired=sum(recorded.nbytes for recorded, _ in both.pairs),
        only_recorded=_grouped(both.only_recorded),
        only_simulated=_grouped(both.only_simulated),
    )


def _grouped(held: Iterable[Held]) -> list[OnOneSide]:
    """Put together what is of one line, category and label, most bytes first."""
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for each in held:
        groups[each.place, each.label, each.category.value].append(each.nbytes)
    sides = [
        OnOneSide.model_validate(
            {"place": place, "label": label, "category": category, "nbytes": sum(sizes), "num": len(sizes)}
        )
        for (place, label, category), sizes in groups.items()
    ]
    return sorted(sides, key=lambda each: -each.nbytes)
