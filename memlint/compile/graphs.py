"""Devices that the nodes of a graph name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate


def rename(graph: fx.GraphModule, old: str, new: str) -> None:
    """Let a graph name the device whose type is `new` where it names the one whose type is `old`."""
    renamed = _renamed(old, new)
    for module in graph.modules():
        if isinstance(module, fx.GraphModule):
            changed = [_rename_in(node, renamed) for node in module.graph.nodes]
            if any(changed):
                module.recompile()


def _rename_in(node: fx.Node, renamed: Callable[[Any], Any]) -> bool:
    """Rename devices in a node's arguments; return True if there were any."""
    if node.op not in ("call_function", "call_method") or "autocast" in getattr(node.target, "__name__", ""):
        return False
    args = map_aggregate(node.args, renamed)
    kwargs = map_aggregate(node.kwargs, renamed)
    if (args, kwargs) == (node.args, node.kwargs):
        return False
    node.args, node.kwargs = args, kwargs
    return True


def _renamed(old: str, new: str) -> Callable[[Any], Any]:
    device = torch.device(new) if new == "cpu" else torch.device(new, 0)

    def renamed(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == old:
            return device
        if isinstance(value, str) and (value == old or value.startswith(f"{old}:")):
            return str(device)
        return value

    return renamed
