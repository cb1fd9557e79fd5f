"""Choice of the values to keep for backward and the values to recompute: the cheapest one, by a minimum cut.

Every value of a forward is kept, computed again when backward asks for it, or not needed. A choice costs the bytes that
it keeps and the floating-point operations that it repeats; a price weighs one against the other. For each price the
cheapest choice is a minimum cut: the source stands for values that exist anyway, the sink for values that backward
reads, and a value has two vertices. Its second lies on the sink's side if it must be at hand in backward, its first if
it is computed there. So the edge between them is cut where the value is kept, and the edge from the source to the first
where it is computed again.

AOTAutograd's partitioner takes a minimum cut of the bytes alone
(https://dev-discuss.pytorch.org/t/min-cut-optimal-recomputation-i-e-activation-checkpointing-with-aotautograd/467); the
price of repeated work is as in Checkmate (https://arxiv.org/abs/1910.02653).
"""

from collections.abc import Sequence
from typing import NamedTuple


class Value(NamedTuple):
    """Result of one operation, or of several about which one decision is made."""

    nbytes: int
    """Bytes that it takes to keep it."""
    flops: int
    """FLOPs that it takes to compute it again."""
    inputs: tuple[int, ...] = ()
    """Positions of the values that it is computed from; those that exist anyway are left out."""
    is_needed: bool = True
    """True if backward reads it."""
    can_be_kept: bool = True
    can_be_recomputed: bool = True
    predecessors: tuple[int, ...] = ()
    """Positions of values that are recomputed if this one is, such as the random numbers drawn before its own."""


class Choice(NamedTuple):
    """Positions of the values that are kept, and of those that are recomputed; the others are not needed."""

    kept: frozenset[int]
    recomputed: frozenset[int]
    nbytes: int
    """Bytes of everything kept."""
    flops: int
    """FLOPs of everything recomputed."""


def trade_off(values: Sequence[Value]) -> tuple[Choice, ...]:
    """Return every choice that is the cheapest at some price, from the fewest FLOPs to the fewest bytes.

    These are the corners of the convex hull of all choices. There are none if a value that is needed can be neither
    kept nor recomputed.
    """
    first = _cheapest(values, 1, 1 + sum(value.nbytes for value in values))
    last = _cheapest(values, 1 + sum(value.flops for value in values), 1)
    if first is None or last is None:
        return ()
    return (first, *_between(values, first, last), *([last] if last.nbytes < first.nbytes else []))


def _between(values: Sequence[Value], low: Choice, high: Choice) -> tuple[Choice, ...]:
    """Return the corners of the hull between two others, of which `low` has fewer FLOPs and `high` fewer bytes."""
    of_byte, of_flop = high.flops - low.flops, low.nbytes - high.nbytes
    if of_byte <= 0 or of_flop <= 0:
        return ()
    middle = _cheapest(values, of_byte, of_flop)
    if middle is None or of_byte * (low.nbytes - middle.nbytes) <= of_flop * (middle.flops - low.flops):
        return ()  # none lies below the line between the two
    return (*_between(values, low, middle), middle, *_between(values, middle, high))


def _cheapest(values: Sequence[Value], of_byte: int, of_flop: int) -> Choice | None:
    """Return the choice of least cost, for a price of a byte kept and of an operation repeated."""
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
