"""Blocks of HTML inside Markdown.

No block contains an empty line, so Markdown is not interpreted inside it, and every string of a Report stands in a
`code` element, where GitHub and GitLab make no mentions and no links.
"""

from collections.abc import Iterable, Sequence
from html import escape

from memlint.base.units import format_nbytes
from memlint.report.escaping import one_line
from memlint.report.model import Interval, Ranks, StreamPeak
from memlint.report.phrases import bounds, stream_text, traffic_text
from memlint.report.text_style import cut

ROWS = 100
"""Maximum number of rows of a table: GitHub accepts 1 MiB for the summary of a step."""
_LONGEST = 500


def joined(blocks: Iterable[str], between: str = "\n\n") -> str:
    """Join the blocks that are not empty."""
    return between.join(filter(None, blocks))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], most: int = ROWS) -> str:
    """Return a table of cells that are already HTML, with at most `most` rows; empty without any."""
    if not rows:
        return ""
    lines = ["<table>", "<tr>" + "".join(f"<th>{cell}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[:most]]
    rest = len(rows) - most
    if rest > 0:
        lines.append(f'<tr><td colspan="{len(head)}">and {rest:,} more</td></tr>')
    return "\n".join([*lines, "</table>"])


def folded(summary: str, content: str) -> str:
    """Return `content` folded below a clickable `summary`; both are already HTML. Empty without content."""
    return f"<details><summary>{summary}</summary>\n{content}\n</details>" if content else ""


def code(text: str | None) -> str:
    """Escape a string of the Report, on one line and without markup."""
    return f"<code>{escape(cut(one_line(text), _LONGEST))}</code>" if text else ""


def step(mode: str | None, batch: int | None, *others: str | None) -> str:
    """Describe the simulated step."""
    batches = [] if batch is None else [f"batch {batch}"]
    return ", ".join([*map(code, filter(None, (mode, *others))), *batches])


def peak(interval: Interval, name: str = "") -> str:
    """Return the bytes of a peak, its name, and the bounds of the unknown part."""
    between = bounds(interval)
    return f"<b>{format_nbytes(interval.estimate)}</b>{name}" + (f" ({between})" if between else "")


def ranks_and_streams(ranks: Ranks | None, streams: Sequence[StreamPeak]) -> str:
    """Return the traffic of a rank and its buffers for that, and the peak of each stream; empty without either."""
    exchanged = [
        (code(traffic_text(each)), format_nbytes(each.nbytes), format_nbytes(each.sent))
        for each in (ranks.traffic if ranks else ())
    ]
    taken = [
        (code(stream_text(each)), *map(format_nbytes, (each.requested, each.allocated, each.reserved)))
        for each in streams
    ]
    held = [
        (code(each.name), format_nbytes(each.nbytes.estimate), bounds(each.nbytes))
        for each in (ranks.outside if ranks else ())
    ]
    parts = (
        table(("in a step", "bytes", "sent"), exchanged),
        f"<p>{code(ranks.others)}</p>" if ranks and ranks.others else "",
        table(("outside of the allocator, in device alone", "bytes", "between"), held),
        table(("stream", "requested", "allocated", "reserved"), taken),
    )
    return joined(parts, "\n")
