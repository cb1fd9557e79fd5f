"""Values that compiled code computes of known ones: the engine follows them through the graph that was compiled.

Generated kernels compute nothing, but a program may read what they made, as sizes of windows or counts of tokens. So
the part of a graph that leads to such results runs once more at each call, kernel by kernel, in a ledger of its own
that nobody reads. Large floating tensors hold no values, and what leads to them is left out.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from memlint.accelerator import state
from memlint.accelerator.device import allocate, entry_of, is_virtual
from memlint.accelerator.private import OpOverload
from memlint.accelerator.unseen import unseen
from memlint.accelerator.values import MAX_SHADOW, content, covers_storage, remember

_NAMESPACES = ("aten", "prims")
_FACTS = ("uniform", "uniform_dtype", "likely", "num_choices", "largest", "total", "num_true", "nonzeros")
"""Facts of an Entry about its elements, whatever their order."""


def followed(graph: fx.GraphModule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what lets the compiled code of `graph` give its results their values: those that hold no floats."""
    [output] = graph.graph.find_nodes(op="output")
    results = {position: node for position, node in enumerate(output.args[0]) if _is_counted(node)}
    if not results:
        return lambda code: code
    part = _part_of(graph, list(results.values()))

    def with_values(code: Callable[..., Any]) -> Callable[..., Any]:
        def call(inputs: list[Any]) -> Any:
            try:
                with unseen():
                    known = part.forward(*inputs)
            except Exception as error:  # the program goes on without these values, as it would have before
                state.current.assume(f"numbers that compiled code computes are not known: {type(error).__name__}")
                return code(inputs)
            made = code(inputs)
            for position, each in zip(results, known, strict=True):
                _pass_on(each, made[position])
            return made

        return call

    return with_values


def _is_counted(result: Any) -> bool:
    """Return True for a node whose values a program, or its backward, may read as sizes, counts or answers."""
    if not isinstance(result, fx.Node) or result.op == "placeholder":
        return False
    tensor = result.meta.get("val")
    return isinstance(tensor, torch.Tensor) and not tensor.dtype.is_floating_point


def _is_static(tensor: torch.Tensor) -> bool:
    return all(isinstance(each, int) for each in (*tensor.shape, *tensor.stride()))


def _runs(node: fx.Node) -> bool:
    """Return True for a node that the engine can follow: no random number, and nothing of Inductor's own."""
    target: Any = node.target
    if isinstance(target, OpOverload):
        is_random = torch.Tag.nondeterministic_seeded in target.tags or "inductor" in target.name()
        return target.namespace in _NAMESPACES and not is_random
    return node.op == "call_function" and getattr(target, "__module__", "") in (operator.__name__, "_operator", "math")


def _part_of(graph: fx.GraphModule, results: Sequence[fx.Node]) -> fx.GraphModule:
    """Return the part of `graph` that leads to `results`; what it cannot follow are tensors without values."""
    needed = dict.fromkeys(results)
    for node in reversed(graph.graph.nodes):
        if node in needed and not _is_unknown(node):
            needed |= dict.fromkeys(node.all_input_nodes)
    part, made = fx.Graph(), dict[fx.Node, Any]()
    for node in graph.graph.nodes:
        if node.op == "placeholder" or (node in needed and not _is_unknown(node)):
            made[node] = part.node_copy(node, made.__getitem__)
        elif node in needed:
            tensor = node.meta["val"]
            made[node] = part.call_function(allocate, (tensor.shape, tensor.stride(), tensor.dtype))
    part.output([made[node] for node in results])
    return fx.GraphModule(graph, part)


def _is_unknown(node: fx.Node) -> bool:
    """Return True for a tensor that is too large to hold values, or that the engine cannot follow."""
    tensor = node.meta.get("val")
    if not isinstance(tensor, torch.Tensor) or not _is_static(tensor):
        return False
    is_large = tensor.dtype.is_floating_point and tensor.numel() * tensor.element_size() > MAX_SHADOW
    return is_large or (node.op == "call_function" and not _runs(node))


def _pass_on(known: Any, result: Any) -> None:
    """Let a result of compiled code know what the tensor `known` knows."""
    if not (is_virtual(known) and is_virtual(result) and covers_storage(result)):
        return
    if (value := content(known)) is not None:
        remember(result, value)
    elif covers_storage(known):
        entry = entry_of(result)
        for name in _FACTS:
            setattr(entry, name, getattr(entry_of(known), name))
