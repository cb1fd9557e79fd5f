"""How the bytes at the peak of a Workload changed: by category, module, line and kind of Buffer."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from memlint.base.grouping import grouped
from memlint.compare.comparison import BufferChange, CategoryChange, LineChange, ModuleChange
from memlint.compare.match import paired
from memlint.report.model import AliveBuffer, Estimate, LineBytes, Place

_BLOCK = re.compile(r"(?<![^.])\d+(?![^.])")  # the 3 in h.3.attn

Change = TypeVar("Change", CategoryChange, ModuleChange, LineChange, BufferChange)


def peak_growth(base: Estimate, head: Estimate) -> dict[str, Any]:
    """Return the lists `categories`, `modules`, `lines` and `buffers` of a WorkloadChange."""
    modules_base, modules_head = _by_module(base), _by_module(head)
    return {
        "categories": _changed(
            CategoryChange(category=name, base=base.categories.get(name, 0), head=head.categories.get(name, 0))
            for name in {**head.categories, **base.categories}
        ),
        "modules": _changed(
            ModuleChange(module=name, base=modules_base[name], head=modules_head[name])
            for name in {**modules_head, **modules_base}
        ),
        "lines": _lines(base, head),
        "buffers": _buffers(base, head),
    }


def _by_module(estimate: Estimate) -> Counter[str]:
    """Return the bytes of each module, with repeated blocks summed up."""
    nbytes: Counter[str] = Counter()
    for module in estimate.by_module:
        nbytes[pattern(module.module)] += module.nbytes
    return nbytes


def pattern(module: str) -> str:
    """Return the module's name with numbers replaced: `h.3.attn` as `h.*.attn`."""
    return _BLOCK.sub("*", module)


def _lines(base: Estimate, head: Estimate) -> list[LineChange]:
    """Return the lines that changed. Lines match by their text, wherever they moved to; a file may have a new name."""
    pairs = paired(
        _by_place(base),
        _by_place(head),
        lambda line: (line.path, line.line, line.library, line.source, pattern(line.module)),
        lambda line: (line.path, line.source, pattern(line.module)),
        lambda line: (line.path, line.source),
        lambda line: (line.source, pattern(line.module)) if line.source else None,
    )
    return _changed(
        LineChange(
            **line.model_dump(include={"path", "line", "library", "source", "why"}),
            module=pattern(line.module),
            base=before.nbytes if before else 0,
            head=after.nbytes if after else 0,
        )
        for before, after in pairs
        if (line := after or before) is not None
    )


def _by_place(estimate: Estimate) -> list[LineBytes]:
    """Return the lines in source order, so that among lines of equal text the first is paired with the first."""
    return sorted(estimate.by_line, key=lambda line: (line.path or "", line.line or 0))


@dataclass(frozen=True, slots=True)
class _Alike:
    """Buffers that differ only in size and in the block of the model that they belong to."""

    biggest: AliveBuffer
    source: str
    """Text of the line that allocated them."""
    nbytes: int
    number: int

    @property
    def kind(self) -> tuple[str, ...]:
        return _kind(self.biggest)


def _kind(buffer: AliveBuffer) -> tuple[str, ...]:
    """Return the identity of a Buffer; one with a name has the same identity whichever kernel allocates it."""
    op = "" if buffer.name else buffer.op
    return (buffer.category, op, buffer.dtype, pattern(buffer.module), pattern(buffer.name))


def _buffers(base: Estimate, head: Estimate) -> list[BufferChange]:
    """Return the kinds of Buffers that changed, among those in both lists: a Report holds only the largest Buffers."""
    least = max(_least_listed(base), _least_listed(head))
    pairs = paired(
        _alike(base, least),
        _alike(head, least),
        lambda alike: (alike.kind, alike.biggest.path, alike.source),
        lambda alike: (alike.kind, alike.source) if alike.source else None,
        lambda alike: (alike.kind, alike.biggest.shape),
    )
    return _changed(
        BufferChange(
            **buffer.model_dump(include={"category", "op", "dtype", "shape", "path", "line", "library"}),
            module=pattern(buffer.module),
            name=pattern(buffer.name),
            base=before.nbytes if before else 0,
            head=after.nbytes if after else 0,
            num_base=before.number if before else 0,
            num_head=after.number if after else 0,
        )
        for before, after in pairs
        if (alike := after or before) is not None and (buffer := alike.biggest)
    )


def _least_listed(estimate: Estimate) -> int:
    """Return the size above which the list holds every Buffer."""
    is_cut = estimate.num_at_peak > len(estimate.at_peak)
    return min((buffer.nbytes for buffer in estimate.at_peak), default=0) if is_cut else 0


def _alike(estimate: Estimate, least: int) -> list[_Alike]:
    sources = {(line.path, line.line, line.library): line.source for line in estimate.by_line}
    listed = (buffer for buffer in estimate.at_peak if buffer.nbytes > least)
    groups = grouped((_kind(each) + (("", 0) if each.name else _place(each)), each) for each in listed)
    alike = []
    for group in groups.values():
        biggest = max(group, key=lambda buffer: buffer.nbytes)
        source = "" if biggest.name else sources.get(_place(biggest), "")
        alike.append(_Alike(biggest, source, sum(buffer.nbytes for buffer in group), len(group)))
    return alike


def _place(buffer: AliveBuffer) -> tuple[str | None, int | None, Place | None]:
    return buffer.path, buffer.line, buffer.library


def _changed(changes: Iterable[Change]) -> list[Change]:
    """Return the entries whose bytes changed, from the largest increase to the largest decrease."""
    return sorted((change for change in changes if change.base != change.head), key=lambda each: each.base - each.head)
