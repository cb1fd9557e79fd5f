"""Explanations as text for people, and as markdown for an issue."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from memlint.base.units import format_count, format_nbytes
from memlint.explain.recordings.model import (
    Comparison,
    Explanation,
    Explanations,
    FailedRequest,
    GrowingLine,
    Line,
    Moment,
    OnOneSide,
    RuleFinding,
    Settings,
)
from memlint.report.escaping import inert, one_line
from memlint.report.model import Plan
from memlint.report.phrases import place_text
from memlint.report.text_style import TextStyle, cut, table

_TITLES: Final = {"peak": "at the peak", "failure": "when it failed", "end": "when the snapshot was taken"}
_FEW: Final = 5
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render_text(document: Explanations, style: TextStyle) -> str:
    """Return the text of all explanations, each ending in a line break."""
    blocks = ("\n".join(_lines(each, style)) + "\n" for each in document.explanations)
    return "\n".join(blocks)


def _lines(each: Explanation, style: TextStyle) -> Iterator[str]:
    device = f", device {each.device}" if each.device else ""
    color = "green" if each.cause == "none" else "red"
    yield f"{style(_shown(each.source) + device, bold=True)}: {style(_shown(each.verdict), color)}"
    yield from style.help(_shown(each.next_step))
    yield f"  most at once: {_peaks(each)}"
    if each.num_steps:
        yield f"  {format_count(each.num_steps, _unit(each))} in {format_count(each.num_events, 'event')}"
    if each.failure is not None:
        yield from ("", *_failed(each.failure))
    for moment in each.moments:
        yield from ("", *_moment(moment, style))
    yield from _growth(each, style)
    yield from _findings(each.findings, style)
    if each.other_settings:
        yield from ("", "  the same requests with", *_settings(each.other_settings, style))
    if each.against is not None:
        yield from ("", *_against(each.against, style))
    if each.notes:
        yield from ("", *(f"  note: {_shown(note)}" for note in each.notes))


def _growth(each: Explanation, style: TextStyle) -> Iterator[str]:
    if each.growth is not None:
        yield from ("", f"  grows by {format_nbytes(each.growth.per_step)} a {_unit(each)}")
        rows = [(format_nbytes(line.per_step), _place(line)) for line in style.first_rows(each.growth.lines, _FEW)]
        yield from (f"    {row}" for row in table(rows, ("right", "left")))
        yield from style.rest(len(each.growth.lines) - len(rows))


def _findings(findings: Sequence[RuleFinding], style: TextStyle) -> Iterator[str]:
    if findings:
        yield ""
        for finding in findings:
            place = _place(finding)
            yield f"  {finding.code}{f' {place}' if place else ''}: {_shown(finding.message)}"
        yield from style.help(f"memlint rule {findings[0].code} says what to change")


def _peaks(each: Explanation) -> str:
    parts = (("requested", each.requested), ("allocated", each.allocated), ("reserved", each.reserved))
    return ", ".join(f"{format_nbytes(nbytes)} {name}" for name, nbytes in parts)


def _unit(each: Explanation) -> str:
    return "period" if each.steps_by == "period" else "step"


def _failed(failed: FailedRequest) -> Iterator[str]:
    place = _place(failed)
    yield f"  the request: {format_nbytes(failed.request)}{f' at {place}' if place else ''}"
    yield (
        f"    {format_nbytes(failed.free)} were free on the GPU, {format_nbytes(failed.reserved)} reserved, "
        f"{format_nbytes(failed.allocated)} of them allocated"
    )
    others = f", {format_nbytes(failed.of_others)} of them of other streams or sizes" if failed.of_others else ""
    yield (
        f"    {format_nbytes(failed.cached)} reserved and not allocated{others}, in "
        f"{format_count(failed.num_free_blocks, 'block')}, of which the largest that it may use has "
        f"{format_nbytes(failed.largest_free)}"
    )
    yield f"    {format_count(failed.num_retries, 'time')} before, cached segments were released to serve a request"
    if failed.num_failures > 1:
        yield f"    {failed.num_failures - 1} more failed before in this recording"


def _moment(moment: Moment, style: TextStyle) -> Iterator[str]:
    yield f"  {_TITLES[moment.kind]}: {format_nbytes(moment.nbytes)} requested and alive"
    if moment.categories.keys() != {"other"}:
        yield from _shares("by category", moment.categories.items())
    yield from _shares("by phase", moment.phases.items())
    if len(moment.streams) > 1:
        yield from _shares("by stream", moment.streams.items())
    yield from _shares("by pool", moment.pools.items())
    rows = [
        (
            format_nbytes(line.nbytes),
            str(line.num),
            _end_of(_place(line), max(style.width - 44, 30)),
            _main_category(line),
        )
        for line in style.first_rows(moment.lines)
    ]
    yield from (
        f"    {row}" for row in table([("bytes", "number", "line", ""), *rows], ("right", "right", *["left"] * 2))
    )
    yield from style.rest(moment.num_lines - len(rows), "more lines")


def _shares(name: str, shares: Iterable[tuple[object, int]]) -> Iterator[str]:
    parts = [f"{format_nbytes(nbytes)} {str(key).replace('_', ' ')}" for key, nbytes in shares]
    if parts:
        yield f"    {name}: {', '.join(parts)}"


def _main_category(line: Line) -> str:
    category = next(iter(line.categories), "other")
    return "" if category == "other" else category.replace("_", " ")


def _place(located: Line | FailedRequest | GrowingLine | RuleFinding) -> str:
    if located.path is not None:
        return _shown(place_text(located.path, located.line, located.library))
    return _shown(located.label) if isinstance(located, Line) else ""


def _end_of(place: str, width: int) -> str:
    """`place` in at most `width` columns: of a long path its end, where the line is."""
    return place if len(place) <= width else f"...{place[3 - width :]}"


def _settings(rows: Sequence[Settings], style: TextStyle) -> Iterator[str]:
    shown = [
        (
            _shown(row.name),
            "" if row.reserved is None else f"{format_nbytes(row.reserved)} reserved",
            _outcome(row),
            _shown(_note(row)),
        )
        for row in rows
    ]
    yield from (
        cut(f"    {row}", style.width) if style.is_terminal else f"    {row}" for row in table(shown, ["left"] * 4)
    )


def _note(row: Settings) -> str:
    return "; ".join(filter(None, ("exact" if row.is_exact else "", row.note)))


def _against(both: Comparison, style: TextStyle) -> Iterator[str]:
    yield (
        f"  beside {_shown(both.target)}: {format_nbytes(both.recorded)} recorded, {format_nbytes(both.simulated)} "
        f"simulated; {format_count(both.num_pairs, 'allocation')} of {format_nbytes(both.paired)} in both"
    )
    for title, sides in (("only recorded", both.only_recorded), ("only simulated", both.only_simulated)):
        if sides:
            yield f"    {title}: {format_nbytes(sum(each.nbytes for each in sides))}"
            rows = [
                (format_nbytes(each.nbytes), str(each.num), _shown(each.place), _shown(each.label), _category(each))
                for each in style.first_rows(sides)
            ]
            yield from (f"      {row}" for row in table(rows, ("right", "right", *["left"] * 3)))
            yield from style.rest(len(sides) - len(rows))
    if both.plan is not None:
        yield from (f"    {line}" for line in _plan(both.plan))


def _plan(plan: Plan) -> Iterator[str]:
    outcome = "" if plan.met else ", which none that was found meets"
    yield f"changes that bring the simulated step below {format_nbytes(plan.limit)} of the device{outcome}:"
    if not plan.changes:
        yield "  none is needed: the step alone fits" if plan.met else "  none was found"
    for number, change in enumerate(plan.changes, 1):
        yield f"  {number}. {_shown(change.text)}: {format_nbytes(change.peak[plan.measure].estimate)}"


def _category(side: OnOneSide) -> str:
    return "" if side.category == "other" else side.category.replace("_", " ")


def _outcome(row: Settings) -> str:
    if row.fails is None:
        return ""
    retries = f" after {format_count(row.num_retries, 'release')} of cached segments" if row.num_retries else ""
    return "fails" if row.fails else f"does not fail{retries}"


def _shown(text: str) -> str:
    return inert(one_line(text))


def render_markdown(document: Explanations) -> str:
    """Return the explanations as markdown for an issue."""
    return "\n".join("\n".join(_markdown(each)) + "\n" for each in document.explanations)


def _markdown(each: Explanation) -> Iterator[str]:
    device = f", device {each.device}" if each.device else ""
    cause = "" if each.cause == "none" else f": {each.cause}"
    yield from (f"## {_escaped(each.source)}{device}{cause}", "", _escaped(each.verdict), "")
    if each.next_step:
        yield from (_escaped(each.next_step), "")
    yield f"Most at once: {_peaks(each)}."
    if each.failure is not None:
        yield from ("", *(f"- {_escaped(line.strip())}" for line in _failed(each.failure)))
    for moment in each.moments:
        yield from ("", f"### {_TITLES[moment.kind].capitalize()}: {format_nbytes(moment.nbytes)}", "")
        yield from _table(("category", "bytes"), [(key, format_nbytes(n)) for key, n in moment.categories.items()])
        yield ""
        rows = [(format_nbytes(line.nbytes), str(line.num), _place(line)) for line in moment.lines[:10]]
        yield from _table(("bytes", "number", "line"), rows)
    if each.growth is not None:
        yield from ("", f"### Grows by {format_nbytes(each.growth.per_step)} a {_unit(each)}", "")
        yield from _table(
            ("bytes", "line"), [(format_nbytes(line.per_step), _place(line)) for line in each.growth.lines[:10]]
        )
    if each.findings:
        findings = [(found.code, _place(found), found.message) for found in each.findings]
        yield from ("", "### Rules", "", *_table(("rule", "line", "message"), findings))
    if each.other_settings:
        yield from ("", "### The same requests under other settings", "")
        settings = [
            (row.name, "" if row.reserved is None else format_nbytes(row.reserved), _outcome(row), _note(row))
            for row in each.other_settings
        ]
        yield from _table(("settings", "reserved", "outcome", "note"), settings)
    if each.against is not None:
        yield from _markdown_against(each.against)
    if each.notes:
        yield from ("", *(f"- {_escaped(note)}" for note in each.notes))


def _markdown_against(both: Comparison) -> Iterator[str]:
    yield from ("", f"### Beside {_escaped(both.target)}", "")
    yield f"{format_nbytes(both.recorded)} recorded, {format_nbytes(both.simulated)} simulated, of which both have "
    yield f"{format_nbytes(both.paired)} in {format_count(both.num_pairs, 'allocation')}."
    rows = [
        (title, format_nbytes(side.nbytes), str(side.num), side.place, side.label)
        for title, sides in (("recorded", both.only_recorded), ("simulated", both.only_simulated))
        for side in sides[:_FEW]
    ]
    yield from ("", *_table(("only", "bytes", "number", "line", "what"), rows))
    if both.plan is not None:
        heading, *changes = _plan(both.plan)
        yield from ("", f"{heading[:1].upper()}{heading[1:]}", "", *(_escaped(line.strip()) for line in changes))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in rows)


def _escaped(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", one_line(text))
