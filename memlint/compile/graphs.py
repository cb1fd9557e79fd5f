"""Devices that the nodes of a graph name."""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from memlint.accelerator.device import NAME


def name_virtual_device(graph: fx.GraphModule, shown: str) -> None:
    """Let a graph of the program's name the virtual device where it names the program's, whose type is `shown`."""
    _rename(graph, shown, NAME)


def name_shown_device(graph: fx.GraphModule, shown: str) -> None:
    """Let a graph name the program's device, whose type is `shown`, where it names the virtual one."""
    _rename(graph, NAME, shown)


def _rename(graph: fx.GraphModule, old: str, new: str) -> None:
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
