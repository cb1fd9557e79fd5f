"""The flow of tensors from Node to Node of a Trace, for rules that look for a pattern of kernels."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import prod
from typing import ClassVar

from memlint.base.grouping import grouped as grouped  # noqa: PLC0414 -- rules take it from here
from memlint.memory.records import FORWARDS, Buffer, Frame, Geometry, Node, Phase, Trace
from memlint.memory.timeline import Timeline, live, without

MIN_NBYTES = 2**20
"""Bytes below which findings are not worth reporting."""

HALF = frozenset({"float16", "bfloat16"})
"""Dtypes of half precision, as Buffers name them."""

PRODUCTS = frozenset({"aten.bmm.default", "aten.baddbmm.default", "aten.mm.default", "aten.addmm.default"})
"""Matrix products; their last two inputs are the factors."""

POINTWISE = frozenset(
    f"aten.{op}"
    for op in (
        "_to_copy.default", "add.Tensor", "add.Scalar", "add_.Tensor", "bernoulli_.float", "clone.default",
        "copy_.default", "div.Scalar", "div.Tensor", "div_.Scalar", "div_.Tensor", "masked_fill.Scalar",
        "masked_fill.Tensor", "masked_fill_.Scalar", "masked_fill_.Tensor", "mul.Scalar", "mul.Tensor", "mul_.Scalar",
        "mul_.Tensor", "native_dropout.default", "sub.Tensor", "sub_.Tensor", "tanh.default", "where.ScalarOther",
        "where.ScalarSelf", "where.self",
    )
)  # fmt: skip
"""Kernels with one output element for each element of their first input, common around attention and losses."""


class Flow:
    """The writers and readers of each Buffer of a Trace, in order."""

    _latest: ClassVar[Flow | None] = None

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._readers: defaultdict[int, list[int]] = defaultdict(list)
        self._writers: defaultdict[int, list[int]] = defaultdict(list)
        for node in trace.nodes:
            for users, geometries in ((self._readers, node.inputs), (self._writers, node.outputs)):
                for buffer in dict.fromkeys(geometry.buffer for geometry in geometries if geometry.buffer >= 0):
                    users[buffer].append(node.index)
        pairs = pairwise(trace.nodes)
        self._ends = [b.index for a, b in pairs if a.phase is Phase.BACKWARD and b.phase is not Phase.BACKWARD]

    @classmethod
    def of(cls, trace: Trace) -> Flow:
        """Make the Flow of a Trace. The last one is cached, because rule after rule asks for the same."""
        if cls._latest is None or cls._latest.trace is not trace:
            cls._latest = cls(trace)
        return cls._latest

    def forward(self, *ops: str) -> Iterator[Node]:
        """Yield the Nodes of forward that run one of these kernels, in order."""
        return (node for node in self.trace.nodes if node.op in ops and node.phase in FORWARDS)

    def forwards_before(self, node: Node) -> int:
        """Return how many forwards had their backward before this Node: under accumulation a step has several."""
        return bisect_right(self._ends, node.index)

    def writer(self, buffer: int, before: int) -> Node | None:
        """Return the last Node before that index that wrote the Buffer."""
        position = bisect_left(self._writers[buffer], before)
        return self.trace.nodes[self._writers[buffer][position - 1]] if position else None

    def readers(self, buffer: int, after: int) -> Iterator[Node]:
        """Yield the Nodes after that index that read the Buffer, in order."""
        readers = self._readers[buffer]
        return (self.trace.nodes[index] for index in readers[bisect_right(readers, after) :])

    def is_written(self, buffer: int, after: int, until: int) -> bool:
        """Return True if a Node after index `after` and up to `until` writes the Buffer."""
        writers = self._writers[buffer]
        position = bisect_right(writers, after)
        return position < len(writers) and writers[position] <= until

    def is_read(self, node: Node) -> bool:
        """Return True if another Node reads a result of `node`."""
        return any(next(self.readers(buffer, node.index), None) for buffer in made(node))

    def only_reader(self, node: Node) -> Node | None:
        """Return the one forward kernel that reads the first result of `node`; None if there are several, or none."""
        readers = [r for r in self.readers(node.outputs[0].buffer, node.index) if r.phase in FORWARDS]
        return readers[0] if len(readers) == 1 else None

    def made_at(self, buffer: Buffer) -> Frame | None:
        """Return the line that allocated the host tensor that `buffer` copies, or else `buffer` itself."""
        node = self.trace.nodes[buffer.node] if buffer.node >= 0 else None
        while node is not None and node.op == "aten._to_copy.default" and node.inputs and node.inputs[0].buffer >= 0:
            source = self.writer(node.inputs[0].buffer, node.index)
            if source is None or source.step != node.step:
                break
            node = source
        return node.frame if node is not None else None


def numel(geometry: Geometry) -> int:
    """Return the number of elements."""
    return prod(geometry.shape)


def made(node: Node) -> set[int]:
    """Return the Buffers that `node` returned or wrote."""
    return {geometry.buffer for geometry in node.outputs if geometry.buffer >= 0}


def peak_change(before: Timeline, after: Timeline) -> int:
    """Return the change of the requested peak in bytes, negative for a fall."""
    return max(live(after), default=0) - max(live(before), default=0)


def most_alive(timeline: Timeline, buffers: Iterable[int]) -> int:
    """Return the most bytes that these Buffers, by id, hold at one time."""
    others = {buffer.id for buffer in timeline.buffers}.difference(buffers)
    return max(live(without(timeline, others)), default=0)
