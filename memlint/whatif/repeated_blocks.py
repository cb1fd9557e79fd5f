"""The repeated blocks of a model, the bytes that each saves for backward, and the choices of blocks to checkpoint."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from memlint.base.grouping import grouped
from memlint.memory.records import Buffer, Category, Phase, Trace
from memlint.memory.repeated_modules import children_of, is_inside, repeated

NEARLY = 0.8
_PART = 0.15
"""A part of every block is worth a trial by itself if it saves at least this share of the blocks' bytes."""


class Blocks(NamedTuple):
    """Modules of one class, the Buffers saved inside them at some time, and their bytes."""

    paths: tuple[str, ...]
    saved: tuple[Buffer, ...]
    nbytes: int

    @property
    def num_busy(self) -> int:
        """Number of modules that save anything."""
        return sum(any(is_inside(buffer.module, path) for buffer in self.saved) for path in self.paths)


def blocks_that_save(trace: Trace, alive: Sequence[Buffer]) -> tuple[Blocks, ...]:
    """Return repeated blocks inside which Buffers of `alive` are saved for backward, those that save most first.

    A block that is checkpointed already saves nothing inside itself.
    """
    inner = _inner_activations(trace, [buffer for buffer in alive if buffer.category is Category.ACTIVATION])
    groups = (_blocks(paths, inner) for paths in repeated(trace.modules))
    return tuple(sorted((blocks for blocks in groups if blocks.saved), key=lambda blocks: -blocks.nbytes))


def granularities(candidates: Sequence[Blocks]) -> tuple[Blocks, ...]:
    """Return the blocks that hold most, and the most numerous ones that hold nearly as much."""
    if not candidates:
        return ()
    widest = max(candidates, key=lambda blocks: blocks.nbytes)
    nearly = [blocks for blocks in candidates if blocks.nbytes >= NEARLY * widest.nbytes]
    finest = max(nearly, key=lambda blocks: len(blocks.paths))
    return (widest,) if finest is widest else (widest, finest)


def selections(trace: Trace, blocks: Blocks) -> tuple[Blocks, ...]:
    """Return cheaper choices than all of `blocks`: every second one, and each part that all have, such as attention.

    A part has children of its own or saves within itself; parts that save little are left out.
    """
    children = children_of(trace.modules)
    parts = grouped((child.rpartition(".")[2], child) for path in blocks.paths for child in children[path])
    chosen = [blocks.paths[::2]]
    chosen += [tuple(paths) for paths in parts.values() if len(paths) == len(blocks.paths)]
    selected = [_blocks(paths, blocks.saved) for paths in chosen]
    return tuple(each for each in selected if each.nbytes >= _PART * blocks.nbytes)


def _blocks(paths: tuple[str, ...], inner: Sequence[Buffer]) -> Blocks:
    roots = set(paths)
    saved = tuple(buffer for buffer in inner if not roots.isdisjoint(_ancestors(buffer.module)))
    return Blocks(paths, saved, sum(buffer.nbytes for buffer in saved))


def _inner_activations(trace: Trace, activations: list[Buffer]) -> list[Buffer]:
    """Place each activation in the innermost module around its maker and its readers in forward.

    The output that a block passes to the next lies in neither: it stays even under checkpointing.
    """
    readers: defaultdict[int, set[str]] = defaultdict(set)
    for node in trace.nodes:
        if node.phase is Phase.FORWARD:
            for geometry in node.inputs:
                readers[geometry.buffer].add(node.module)
    return [buffer._replace(module=_common({buffer.module, *readers[buffer.id]})) for buffer in activations]


def _common(paths: Collection[str]) -> str:
    """Return the innermost module around all of `paths`."""
    names = zip(*(path.split(".") for path in paths), strict=False)
    return ".".join(same[0] for same in takewhile(lambda each: len(set(each)) == 1, names))


def _ancestors(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
