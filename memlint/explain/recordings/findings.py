"""Findings of rules that a recording can answer, under the codes of the rules that ask a program.

A recording has stacks, sizes and lifetimes, and no tensors: each finding here is a conclusion from them, and says from
which. `memlint rule CODE` shows what to change.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Final, NamedTuple

from memlint.base.units import format_nbytes
from memlint.capture.lifetimes import BEFORE
from memlint.capture.recorded import ALLOC
from memlint.explain.recordings.evidence import Evidence
from memlint.memory.records import Category, Phase

_LOGITS: Final = frozenset({"_log_softmax", "log_softmax", "cross_entropy_loss", "_log_softmax_backward_data"})
_SCORES: Final = frozenset({"_softmax", "softmax"})
_SHARE: Final = 0.1
"""Share of the peak from which on one cause is worth a finding."""
_MOST_ACTIVATIONS: Final = 0.5
"""Share of the peak from which on activations are what to save."""
_SHARE_OF_GRAPH: Final = 0.25
"""Share of the peak that an evaluation's graph holds at least: below, outputs and caches hold as much."""
_LEAST_GRAPHS: Final = 2
_CASTS: Final = frozenset({"_to_copy", "to"})
"""Operators whose results autocast keeps until it ends."""
_SITES_OF_GRAPH: Final = 4
"""Places that leave something in each step from which on it is a graph: a tensor alone is made at one."""


class RecordedFinding(NamedTuple):
    """A finding of a rule in a recording."""

    code: str
    site: int
    """Position in Recording.sites; -1 for the whole."""
    nbytes: int
    message: str


def findings_of(evidence: Evidence) -> list[RecordedFinding]:
    """Return the findings, most bytes first."""
    rules = _activations, _gradients, _by_operator, _growing, _evaluation
    found = chain.from_iterable(rule(evidence) for rule in rules)
    return sorted(found, key=lambda each: -each.nbytes)


def _at_peak(evidence: Evidence) -> Iterator[int]:
    position = evidence.course.peak if evidence.failure is None else evidence.failure.position
    return evidence.alive.alive_at(position)


def _activations(evidence: Evidence) -> Iterator[RecordedFinding]:
    """MEM101: nothing is computed anew, and activations hold most of the peak."""
    told, alive = evidence.kinds, evidence.alive
    total, nbytes, largest = 0, 0, Counter[int]()
    for number in _at_peak(evidence):
        total += alive.nbytes[number]
        if told.category(number) is Category.ACTIVATION:
            nbytes += alive.nbytes[number]
            largest[alive.sites[number]] += alive.nbytes[number]
    sites = evidence.recording.sites
    if not any(site.has_frames for site in sites):
        return  # whether something is computed anew is not recorded
    is_recomputed = any(site.phase is Phase.BACKWARD and site.frame is not None for site in sites)
    if nbytes > _MOST_ACTIVATIONS * total and not is_recomputed:
        yield RecordedFinding(
            "MEM101",
            largest.most_common(1)[0][0],
            nbytes,
            f"{format_nbytes(nbytes)} of {format_nbytes(total)} at the peak are activations, made in the forward and "
            f"freed in the backward; nothing is checkpointed",
        )


def _gradients(evidence: Evidence) -> Iterator[RecordedFinding]:
    """MEM205: gradients live through the next forward."""
    told, alive, ends = evidence.kinds, evidence.alive, evidence.steps.ends
    if evidence.steps.evidence != "optimizer" or len(ends) < 2:
        return
    kept = [
        number
        for number in range(alive.num_before, len(alive))
        if told.category(number) is Category.GRADIENT and alive.born[number] < ends[0] and alive.died[number] > ends[1]
    ]
    made_again = any(
        told.category(number) is Category.GRADIENT and alive.born[number] > ends[0]
        for number in range(alive.num_before, len(alive))
    )
    nbytes = sum(alive.nbytes[number] for number in kept)
    if nbytes and not made_again:
        yield RecordedFinding(
            "MEM205",
            -1,
            nbytes,
            f"{format_nbytes(nbytes)} of gradients of the first step live through all others, forwards included: they "
            f"are set to zero and not to None",
        )


def _by_operator(evidence: Evidence) -> Iterator[RecordedFinding]:
    """MEM106 and MEM103: one operator's results hold much of the peak."""
    alive, recording = evidence.alive, evidence.recording
    total, nbytes = 0, Counter[str]()
    sites: dict[str, int] = {}
    for number in _at_peak(evidence):
        total += alive.nbytes[number]
        site = recording.site(alive.sites[number])
        code = "" if site is None else "MEM106" if site.op in _LOGITS else "MEM103" if site.op in _SCORES else ""
        if code and alive.born[number] != BEFORE:
            nbytes[code] += alive.nbytes[number]
            sites.setdefault(code, alive.sites[number])
    names = {
        "MEM106": "log-probabilities of a whole vocabulary, made at once",
        "MEM103": "attention scores after their softmax, which fused attention does not keep",
    }
    for code, amount in nbytes.items():
        if amount > _SHARE * total:
            yield RecordedFinding(code, sites[code], amount, f"{format_nbytes(amount)} at the peak are {names[code]}")


def _growing(evidence: Evidence) -> Iterator[RecordedFinding]:
    """MEM402 or MEM405: each step leaves something behind, a graph or tensors alone."""
    grows = evidence.growth
    if grows is None:
        return
    is_graph = len(grows.leftovers) >= _SITES_OF_GRAPH
    kept = "a graph, made at many places" if is_graph else "tensors"
    yield RecordedFinding(
        "MEM402" if is_graph else "MEM405",
        grows.leftovers[0].site,
        grows.nbytes,
        f"each step leaves {format_nbytes(grows.per_step)} behind: {kept}, {format_nbytes(grows.nbytes)} so far",
    )


def _evaluation(evidence: Evidence) -> Iterator[RecordedFinding]:
    """MEM404: again and again, what a forward made at many places is freed at once, and no backward ran."""
    graphs = [graph for graph in _freed_together(evidence) if _is_graph(evidence, graph)]
    if len(graphs) < _LEAST_GRAPHS:
        return
    alive = evidence.alive
    largest = max(graphs, key=lambda graph: sum(alive.nbytes[number] for number in graph))
    nbytes = sum(alive.nbytes[number] for number in largest)
    yield RecordedFinding(
        "MEM404",
        alive.sites[max(largest, key=alive.nbytes.__getitem__)],
        nbytes,
        f"{len(graphs)} times, {format_nbytes(nbytes)} at most that a forward made were kept to its end and freed at "
        "once, without a backward: a graph that nothing needs",
    )


def _freed_together(evidence: Evidence) -> Iterator[list[int]]:
    """Yield the allocations of the forward that die with no allocation in between, before a failure."""
    alive, events = evidence.alive, evidence.recording.events
    end = len(events) if evidence.failure is None else evidence.failure.position
    dead = array("i", [-1]) * end
    for number in range(alive.num_before, len(alive)):
        if alive.died[number] < end and evidence.kinds.phase(number) is Phase.FORWARD:
            dead[alive.died[number]] = number
    together: list[int] = []
    for action, number in zip(events.actions, dead, strict=False):
        if action == ALLOC and together:
            yield together
            together = []
        elif number >= 0:
            together.append(number)
    if together:
        yield together


def _is_graph(evidence: Evidence, numbers: list[int]) -> bool:
    """Return True for much of the peak, of many operators and lines, that no backward used."""
    alive, recording, backward = evidence.alive, evidence.recording, evidence.kinds.backward
    sites = [recording.site(alive.sites[number]) for number in numbers]
    made = [(number, site) for number, site in zip(numbers, sites, strict=True) if site and site.op not in _CASTS]
    nbytes = sum(alive.nbytes[number] for number, _ in made)
    ops, lines = {site.op for _, site in made}, {site.frame for _, site in made}
    if nbytes < _SHARE_OF_GRAPH * evidence.course.nbytes_at_peak or min(len(ops), len(lines)) < _SITES_OF_GRAPH:
        return False
    first, last = min(alive.born[number] for number in numbers), max(alive.died[number] for number in numbers)
    return bisect_left(backward, first) == bisect_left(backward, last)
