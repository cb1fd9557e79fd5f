"""The Buffers that belong to a parameter in a step: the parameter, its gradients and its optimizer state."""

import re
from collections.abc import Collection

from memlint.memory.records import Buffer, Category, Phase, Trace


def belonging(trace: Trace, names: Collection[str]) -> list[Buffer]:
    """Return the parameters of these qualified names with their gradients and optimizer state, in order of birth."""
    return [
        buffer
        for buffer in trace.buffers
        if (buffer.category in _BY_NAME and buffer.name in names)
        or (buffer.category is Category.OPTIMIZER_STATE and buffer.name.rpartition(" of ")[2] in names)
    ]


def of_all_siblings(name: str) -> str:
    """Return the common name of the same parameter or buffer in all siblings: without the numbers in its path."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", name)


def gradients_read_by_loop(trace: Trace) -> set[str]:
    """Return names of parameters whose gradient is read between backward and optimizer, as clipping by norm does."""
    return {
        trace.buffers[g.buffer].name
        for node in trace.nodes
        if node.is_by_hand
        for g in node.inputs
        if g.buffer >= 0 and trace.buffers[g.buffer].category is Category.GRADIENT
    }


def temporaries_of(trace: Trace, parameter: Buffer) -> list[Buffer]:
    """Return temporaries of `parameter`'s shape that the optimizer makes from it, its gradient or its state.

    Kernels on lists compute the i-th output from the i-th tensor of each list.
    """
    temporaries = []
    for buffer in trace.buffers:
        if buffer.phase is not Phase.OPTIMIZER or buffer.category is not Category.TEMPORARY:
            continue
        if buffer.shape != parameter.shape or buffer.node < 0:
            continue
        node = trace.nodes[buffer.node]
        position = next((i for i, g in enumerate(node.outputs) if g.buffer == buffer.id), None)
        if position is None:
            continue
        names = (trace.buffers[g.buffer].name for g in node.inputs[position :: len(node.outputs)] if g.buffer >= 0)
        if parameter.name in {name.rpartition(" of ")[2] for name in names}:
            temporaries.append(buffer)
    return temporaries


_BY_NAME = frozenset({Category.PARAMETER, Category.GRADIENT})
