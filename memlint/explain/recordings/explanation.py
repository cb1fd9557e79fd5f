"""From a Recording to its Explanation."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

from memlint.base.units import format_count, format_nbytes
from memlint.capture.lifetimes import BEFORE, Course, Lifetimes
from memlint.capture.recorded import Recording, Site
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.failure import Failure
from memlint.explain.recordings.findings import findings_of
from memlint.explain.recordings.kinds import Kinds
from memlint.explain.recordings.model import (
    Explanation,
    FailedRequest,
    Growing,
    GrowingLine,
    Line,
    Moment,
    RuleFinding,
    Settings,
)
from memlint.explain.recordings.settings import Trial, trials
from memlint.explain.recordings.steps import Growth
from memlint.explain.recordings.verdict import Verdict, verdict_of
from memlint.memory.allocator.rounding import SMALL_SIZE
from memlint.memory.devices import Device
from memlint.memory.records import Frame, Phase

_MOST_LINES: Final = 100
_BEFORE: Final = " before the recording"
_MUCH_GROWTH: Final = 0.01
"""Share of the peak from which on growth is said of a run that did not fail."""
_MUCH_FREE: Final = 0.05
"""Share of what is reserved from which on free blocks may be why a request failed."""


def explain(
    evidence: Evidence, source: str, settings: Sequence[str] = (), devices: Sequence[Device] = ()
) -> Explanation:
    """Explain what held the memory of a GPU, and why it failed if it did.

    `source` names the file; `settings` and `devices` are further ones to try, the first device being the one that
    recorded it. Raises UsageError for settings that cannot be read.
    """
    recording, alive, run, program, steps, told, grows, failure = evidence
    replayed = program.recorded
    moments = list(_moments(recording, alive, told, run, failure))
    reserved = recording.peaks.get("reserved") or recording.most_reserved() or replayed.reserved
    tried = [_settings(each, failure) for each in trials(program, failure, settings, devices)]
    verdict = _verdict(recording, run, failure, grows, moments, devices[0] if devices else None)
    allocated = replayed.allocated
    if not len(recording.events):  # the segments say it, whatever a replay can do with them
        allocated = sum(b.nbytes for segment in recording.segments for b in segment.blocks if not b.is_free)
    return Explanation(
        source=source,
        device=recording.device,
        cause=verdict.cause,
        verdict=verdict.sentence,
        next_step=_what_helps(tried, recording.settings) if verdict.cause == "fragmentation" else verdict.next_step,
        requested=run.nbytes_at_peak,
        allocated=allocated,
        reserved=reserved,
        replayed=replayed.reserved if len(recording.events) else reserved,
        settings=recording.settings,
        num_events=len(recording.events),
        begins_in_the_middle=program.begins_in_the_middle,
        num_steps=len(steps.ends),
        steps_by=steps.evidence,
        failure=None if failure is None else _failed(recording, failure, len(run.failures)),
        moments=moments,
        growth=None if grows is None else _growing(recording, grows),
        findings=[
            RuleFinding(**_located(recording.site(each.site)), code=each.code, nbytes=each.nbytes, message=each.message)
            for each in findings_of(evidence)
        ],
        other_settings=tried,
        notes=list(_notes(evidence, devices, reserved, replayed.reserved)),
    )


def _verdict(
    recording: Recording,
    run: Course,
    failure: Failure | None,
    grows: Growth | None,
    moments: Sequence[Moment],
    device: Device | None,
) -> Verdict:
    if failure is not None:
        growing = _text(recording.site(grows.leftovers[0].site)) if grows else ""
        return verdict_of(failure, grows, _text(recording.site(failure.site)), growing, device)
    top = next((line for line in moments[0].lines if line.path is not None), None)
    if moments[0].kind == "end":
        return _without_history(recording, moments[0], top)
    when = "at the peak"
    held = ""
    if top is not None and moments[0].nbytes:
        held = f"; {top.path}:{top.line} holds {100 * top.nbytes / moments[0].nbytes:.0f} % of it"
    sentence = f"no request failed in it: {format_nbytes(run.nbytes_at_peak)} were alive {when}{held}"
    if grows is not None and grows.nbytes > _MUCH_GROWTH * run.nbytes_at_peak:
        sentence += f"; each step leaves {format_nbytes(grows.per_step)} more alive"
    return Verdict("none", sentence, "")


def _what_helps(tried: Sequence[Settings], recorded: str) -> str:
    """Name the first of the other settings under which the request was served."""
    names = (each.alloc_conf for each in tried if each.fails is False and each.alloc_conf != recorded)
    conf = next(names, None)
    if conf is None:
        return "No setting that was tried serves it: hold less at once, or make what lives long first."
    return f"Set PYTORCH_CUDA_ALLOC_CONF={conf} before PyTorch starts: in a replay the request is then served."


def _without_history(recording: Recording, moment: Moment, top: Line | None) -> Verdict:
    """Judge a snapshot that holds segments alone: it tells what cannot have been the cause of a failure."""
    free = sum(block.nbytes for segment in recording.segments for block in segment.blocks if block.is_free)
    sentence = (
        f"it has no history, so no failure is in it: {format_nbytes(moment.nbytes)} were alive when it was taken, and "
        f"{format_nbytes(free)} of {format_nbytes(recording.reserved)} reserved were free"
    )
    if top is not None and moment.nbytes:
        sentence += f"; {top.path}:{top.line} holds {100 * top.nbytes / moment.nbytes:.0f} %"
    if free < _MUCH_FREE * recording.reserved:
        sentence += "; if a request failed here, too much was alive: fragmentation can not be why"
    return Verdict("none", sentence, "")


def _located(site: Site | None) -> dict[str, Any]:
    frame = site.frame if site is not None else None
    if frame is None:
        return {}
    own = frame.of_project
    library = None if frame.caller is None else _place(frame)
    return {"path": own.path, "line": own.line, "library": library}


def _place(frame: Frame) -> dict[str, Any]:
    return {"path": frame.path, "line": frame.line, "function": frame.function}


def _text(site: Site | None) -> str:
    frame = site.frame if site is not None else None
    return "" if frame is None else f"{frame.of_project.path}:{frame.of_project.line}"


def _unplaced(site: Site | None, phase: Phase, born: int) -> str:
    """Name a group of allocations that no recorded line made."""
    if site is None or not (site.op or site.makes_workspace):
        return _BEFORE if born == BEFORE else f" {phase.value}"
    return f" {phase.value} {site.op or 'workspace'}"


def _moments(
    recording: Recording, alive: Lifetimes, told: Kinds, run: Course, failure: Failure | None
) -> Iterator[Moment]:
    """The failure and the peak, or the only one where they are the same."""
    if failure is not None:
        yield _moment("failure", recording, alive, told, failure.position)
        if run.nbytes_at_peak == failure.requested:
            return
    yield _moment("peak" if len(recording.events) > 1 else "end", recording, alive, told, run.peak)


def _moment(kind: Any, recording: Recording, alive: Lifetimes, told: Kinds, position: int) -> Moment:
    lines: defaultdict[str, Counter[str]] = defaultdict(Counter)
    ops: defaultdict[str, Counter[str]] = defaultdict(Counter)
    nums: Counter[str] = Counter()
    sites: dict[str, Site | None] = {}
    categories, phases, streams, pools = Counter[str](), Counter[str](), Counter[int](), Counter[str]()
    from_before = 0
    for number in alive.alive_at(position):
        nbytes = alive.nbytes[number]
        site = recording.site(alive.sites[number])
        place = _text(site) or _unplaced(site, told.phase(number), alive.born[number])
        category = told.category(number).value
        sites.setdefault(place, site)
        lines[place][category] += nbytes
        nums[place] += 1
        if site is not None and site.op:
            ops[place][site.op] += nbytes
        categories[category] += nbytes
        phases[told.phase(number).value] += nbytes
        streams[alive.streams[number]] += nbytes
        pools["small" if nbytes <= SMALL_SIZE else "large"] += nbytes
        if alive.born[number] == BEFORE:
            from_before += nbytes
    in_order = sorted(lines, key=lambda place: (-lines[place].total(), place))
    shares: dict[str, Any] = {"categories": categories, "streams": streams, "pools": pools}
    if told.tells_phases:
        shares["phases"] = phases
    return Moment(
        kind=kind,
        nbytes=categories.total(),
        from_before=from_before,
        lines=[_line(place, sites[place], lines[place], nums[place], ops[place]) for place in in_order[:_MOST_LINES]],
        num_lines=len(in_order),
        **{name: dict(share.most_common()) for name, share in shares.items()},
    )


def _line(place: str, site: Site | None, nbytes: Counter[str], num: int, ops: Counter[str]) -> Line:
    fields: dict[str, Any] = _located(site) | {"categories": dict(nbytes.most_common())}
    op = ops.most_common(1)[0][0] if ops else ""
    return Line(**fields, nbytes=nbytes.total(), num=num, label=place.strip() if place.startswith(" ") else "", op=op)


def _failed(recording: Recording, failure: Failure, num_failures: int) -> FailedRequest:
    fields = ("request", "free", "requested", "allocated", "reserved", "cached", "num_free_blocks", "largest_free")
    more = ("of_others", "lacking", "num_retries")
    return FailedRequest(
        **_located(recording.site(failure.site)),
        **{name: getattr(failure, name) for name in (*fields, *more)},
        num_failures=num_failures,
    )


def _growing(recording: Recording, grows: Growth) -> Growing:
    return Growing(
        per_step=grows.per_step,
        nbytes=grows.nbytes,
        lines=[
            GrowingLine(
                **_located(recording.site(each.site)),
                per_step=each.per_step,
                nbytes=each.nbytes,
                num_steps=each.num_steps,
            )
            for each in grows.leftovers
        ],
    )


def _settings(trial: Trial, failure: Failure | None) -> Settings:
    replayed = trial.replayed
    if replayed is None:
        return Settings(name=trial.name, alloc_conf=trial.settings, note=trial.note)
    fails = replayed.failed_at is not None if trial.capacity is not None else None
    note = trial.note
    if failure is not None and fails and replayed.failed_at != failure.position:
        note = "; ".join(filter(None, ("it fails earlier", note)))
    return Settings(
        name=trial.name,
        alloc_conf=trial.settings,
        capacity=trial.capacity,
        reserved=replayed.reserved,
        allocated=replayed.allocated,
        num_retries=replayed.num_retries,
        fails=fails,
        is_exact=trial.is_exact,
        note=note,
    )


def _notes(evidence: Evidence, devices: Sequence[Device], reserved: int, replayed: int) -> Iterator[str]:
    recording, _, run, program, steps, told, _, _ = evidence
    yield from _of_file(recording)
    if len(recording.events) > 1:
        if reserved != replayed:
            yield f"a replay reserves {format_nbytes(replayed)}, the GPU reserved {format_nbytes(reserved)}"
        if program.begins_in_the_middle:
            yield "the recording begins in the middle; what was there before has no place unless its block has one"
        yield "categories and phases are inferred from stacks, sizes and lifetimes"
        if not told.tells_phases:
            yield "no backward and no optimizer is in it, or its stacks do not show them (record with stacks='all')"
    if run.failures and not devices:
        yield "whether another process held memory is not recorded: name the card with --gpu"
    if program.released:
        times = format_count(len(program.released), "time")
        yield f"the GPU was full: {times}, cached segments were released to serve a request"
    if steps.evidence == "period":
        yield "steps are periods of equal allocations: no optimizer of PyTorch is in its stacks"


def _of_file(recording: Recording) -> Iterator[str]:
    if recording.num_recorded > 1:
        yield f"device {recording.device} of {recording.num_recorded} that recorded something"
    if not recording.knows_settings:
        yield "the settings of the allocator are not recorded: PyTorch's defaults are taken"
    if len(recording.events) <= 1:
        yield "it has no history: call torch.cuda.memory._record_memory_history() before the run"
    if any(segment.is_private for segment in recording.segments):
        yield "pools of CUDA graphs are in it; in replays all blocks are of the common pools"
