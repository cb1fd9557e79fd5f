"""What to keep for backward and what to compute again: the cheapest choice, by a minimum cut.

Every value of a forward is kept, computed again when backward asks for it, or not needed. A choice costs the bytes that
it keeps and the floating-point operations that it repeats; a price weighs one against the other. For each price the
cheapest choice is a minimum cut: the source stands for what is there anyway, the sink for what backward reads, and a
value has two vertices. Its second lies on the sink's side if it must be at hand in backward, its first if it is
computed there. So the edge between them is cut where the value is kept, and the edge from the source to the first where
it is computed again.

AOTAutograd's partitioner takes a minimum cut of the bytes alone
(https://dev-discuss.pytorch.org/t/min-cut-optimal-recomputation-i-e-activation-checkpointing-with-aotautograd/467);
that repeated work has a price is as in Checkmate (https://arxiv.org/abs/1910.02653).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Value(NamedTuple):
    """What one operation gives, or several about which one decision is made."""

    nbytes: int
    """What keeping it takes."""
    flops: int
    """What computing it again takes."""
    inputs: tuple[int, ...] = ()
    """Positions of the values that it is computed from; those that are there anyway are left out."""
    is_needed: bool = True
    """Whether backward reads it."""
    can_be_kept: bool = True
    can_be_recomputed: bool = True
    predecessors: tuple[int, ...] = ()
    """Positions of values that are computed again if this one is, such as the random numbers drawn before its own."""


class Choice(NamedTuple):
    """Positions of the values that are kept, and of those that are computed again; the others are not needed."""

    kept: frozenset[int]
    recomputed: frozenset[int]
    nbytes: int
    """Of everything kept."""
    flops: int
    """Of everything computed again."""


def trade_off(values: Sequence[Value]) -> tuple[Choice, ...]:
    """Every choice that is the cheapest at some price, from the fewest FLOPs to the fewest bytes.

    These are the corners of the convex hull of all choices. There are none where a value that is needed can be neither
    kept nor computed again.
    """
    first = _cheapest(values, 1, 1 + sum(value.nbytes for value in values))
    last = _cheapest(values, 1 + sum(value.flops for value in values), 1)
    if first is None or last is None:
        return ()
    return (first, *_between(values, first, last), *([last] if last.nbytes < first.nbytes else []))


def _between(values: Sequence[Value], low: Choice, high: Choice) -> tuple[Choice, ...]:
    """Corners of the hull between two others, of which `low` has fewer FLOPs and `high` fewer bytes."""
    of_byte, of_flop = high.flops - low.flops, low.nbytes - high.nbytes
    if of_byte <= 0 or of_flop <= 0:
        return ()
    middle = _cheapest(values, of_byte, of_flop)
    if middle is None or of_byte * (low.nbytes - middle.nbytes) <= of_flop * (middle.flops - low.flops):
        return ()  # none lies below the line between the two
    return (*_between(values, low, middle), middle, *_between(values, middle, high))


def _cheapest(values: Sequence[Value], of_byte: int, of_flop: int) -> Choice | None:
    """The choice of least cost, at so much for a byte kept and so much for an operation repeated."""
    import networkx as nx  # noqa: PLC0415 -- a fifth of a second that few analyses need

    graph: nx.DiGraph[tuple[str, int]] = nx.DiGraph()
    source, sink = ("source", 0), ("sink", 0)
    graph.add_nodes_from((source, sink))
    for position, value in enumerate(values):
        computed, present = ("computed", position), ("present", position)
        # An edge without a capacity is never cut.
        graph.add_edge(source, computed, **({"capacity": of_flop * value.flops} if value.can_be_recomputed else {}))
        graph.add_edge(computed, present, **({"capacity": of_byte * value.nbytes} if value.can_be_kept else {}))
        graph.add_edge(present, computed)
        graph.add_edges_from((("present", each), computed) for each in value.inputs if each != position)
        graph.add_edges_from((("computed", each), computed) for each in value.predecessors)
        if value.is_needed:
            graph.add_edge(present, sink)
    try:
        _, (_, side) = nx.minimum_cut(graph, source, sink)
    except nx.NetworkXUnbounded:
        return None
    recomputed = frozenset(i for i in range(len(values)) if ("computed", i) in side)
    kept = frozenset(i for i in range(len(values)) if ("present", i) in side) - recomputed
    nbytes, flops = sum(values[i].nbytes for i in kept), sum(values[i].flops for i in recomputed)
    return Choice(kept, recomputed, nbytes, flops)
