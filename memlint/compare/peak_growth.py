"""What at the peak of a Workload takes other bytes than before: by category, module, line and kind of Buffer."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from memlint.compare.comparison import BufferChange, CategoryChange, LineChange, ModuleChange
from memlint.compare.match import paired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlint.report.model import AliveBuffer, Estimate, LineBytes

_BLOCK = re.compile(r"(?<![^.])\d+(?![^.])")  # the 3 in h.3.attn

Change = TypeVar("Change", CategoryChange, ModuleChange, LineChange, BufferChange)


def categories(base: Estimate, head: Estimate) -> list[CategoryChange]:
    """The categories that changed."""
    names = {**head.categories, **base.categories}
    return _changed(
        CategoryChange(category=name, base=base.categories.get(name, 0), head=head.categories.get(name, 0))
        for name in names
    )


def modules(base: Estimate, head: Estimate) -> list[ModuleChange]:
    """The modules that changed, repeated blocks together."""
    before, after = _by_module(base), _by_module(head)
    return _changed(ModuleChange(module=name, base=before[name], head=after[name]) for name in {**after, **before})


def _by_module(estimate: Estimate) -> Counter[str]:
    found: Counter[str] = Counter()
    for module in estimate.by_module:
        found[pattern(module.module)] += module.nbytes
    return found


def pattern(module: str) -> str:
    """`h.3.attn` as `h.*.attn`."""
    return _BLOCK.sub("*", module)


def lines(base: Estimate, head: Estimate) -> list[LineChange]:
    """The lines that changed. A line is the same if its text is, wherever it has moved; a file may have a new name."""
    pairs = paired(
        _lines(base),
        _lines(head),
        lambda line: (line.path, line.line, line.source, pattern(line.module)),
        lambda line: (line.path, line.source, pattern(line.module)),
        lambda line: (line.path, line.source),
        lambda line: (line.source, pattern(line.module)) if line.source else None,
    )
    return _changed(_line_change(before, after) for before, after in pairs)


def _lines(estimate: Estimate) -> list[LineBytes]:
    """By place, so that of several lines of one text the first is paired with the first."""
    return sorted(estimate.by_line, key=lambda line: (line.path or "", line.line or 0))


def _line_change(before: LineBytes | None, after: LineBytes | None) -> LineChange:
    told = after or before
    assert told is not None
    return LineChange(
        path=told.path,
        line=told.line,
        source=told.source,
        module=pattern(told.module),
        why=told.why,
        base=before.nbytes if before else 0,
        head=after.nbytes if after else 0,
    )


@dataclass(frozen=True, slots=True)
class _Alike:
    """Buffers that differ in nothing but their size and the block of the model that they belong to."""

    biggest: AliveBuffer
    source: str
    """The text of the line that made them."""
    nbytes: int
    number: int

    @property
    def what(self) -> tuple[str, ...]:
        return _kind(self.biggest)


def _kind(buffer: AliveBuffer) -> tuple[str, ...]:
    """What has a name is the same whichever kernel made it."""
    op = "" if buffer.name else buffer.op
    return (buffer.category, op, buffer.dtype, pattern(buffer.module), pattern(buffer.name))


def buffers(base: Estimate, head: Estimate) -> list[BufferChange]:
    """The kinds of Buffers that changed, as far as both sides list them: a Report holds only the biggest."""
    least = max(_least_listed(base), _least_listed(head))
    pairs = paired(
        _alike(base, least),
        _alike(head, least),
        lambda alike: (alike.what, alike.biggest.path, alike.source),
        lambda alike: (alike.what, alike.source) if alike.source else None,
        lambda alike: (alike.what, alike.biggest.shape),
    )
    return _changed(_buffer_change(before, after) for before, after in pairs)


def _least_listed(estimate: Estimate) -> int:
    """Every Buffer of more bytes is in the list."""
    is_cut = estimate.num_at_peak > len(estimate.at_peak)
    return min((buffer.nbytes for buffer in estimate.at_peak), default=0) if is_cut else 0


def _alike(estimate: Estimate, least: int) -> list[_Alike]:
    sources = {(line.path, line.line): line.source for line in estimate.by_line}
    groups: defaultdict[tuple[object, ...], list[AliveBuffer]] = defaultdict(list)
    for buffer in estimate.at_peak:
        if buffer.nbytes > least:
            place = ("", 0) if buffer.name else (buffer.path, buffer.line)
            groups[_kind(buffer) + place].append(buffer)
    found = []
    for group in groups.values():
        biggest = max(group, key=lambda buffer: buffer.nbytes)
        source = "" if biggest.name else sources.get((biggest.path, biggest.line), "")
        found.append(_Alike(biggest, source, sum(buffer.nbytes for buffer in group), len(group)))
    return found


def _buffer_change(before: _Alike | None, after: _Alike | None) -> BufferChange:
    told = after or before
    assert told is not None
    buffer = told.biggest
    return BufferChange(
        category=buffer.category,
        op=buffer.op,
        dtype=buffer.dtype,
        shape=buffer.shape,
        path=buffer.path,
        line=buffer.line,
        module=pattern(buffer.module),
        name=pattern(buffer.name),
        base=before.nbytes if before else 0,
        head=after.nbytes if after else 0,
        num_base=before.number if before else 0,
        num_head=after.number if after else 0,
    )


def _changed(changes: Iterable[Change]) -> list[Change]:
    """Those with other bytes than before: what grew most first, what shrank most last."""
    return sorted((change for change in changes if change.base != change.head), key=lambda each: each.base - each.head)
