"""Tensors to which a variable of a running program leads."""

from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.ledger import Entry
from memlint.accelerator.sparse import parts_of
from memlint.memory.records import Frame

_ITEMS = 1000
"""Number of items of a container or an object that are searched."""
_SEQUENCES = (list, tuple, set, deque)
_OPAQUE = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, str, bytes, int, float, type, ModuleType)
"""Types whose attributes are not the program's. A model keeps its attributes on purpose."""


def tensors_in(
    value: Any, path: str, depth: int, seen: set[int], *, dotted: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that a variable leads to, with their expressions, through `depth` containers and objects.

    With `dotted`, items of a mapping that are attributes too are written as such: `outputs.logits`.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    if isinstance(value, _OPAQUE) or id(value) in seen or not depth:
        return
    seen.add(id(value))
    items: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        for key, item in list(value.items())[:_ITEMS]:
            items.append((f".{key}" if dotted and hasattr(value, str(key)) else f"[{key!r}]", item))
    elif isinstance(value, _SEQUENCES):
        items = [(f"[{index}]", item) for index, item in enumerate(list(value)[:_ITEMS])]
    else:
        items = [(f".{name}", item) for name, item in attributes_of(value)]
    for ending, item in items:
        yield from tensors_in(item, path + ending, depth - 1, seen, dotted=dotted)


def attributes_of(value: Any) -> list[tuple[str, Any]]:
    """Return the attributes of an object if they are the program's; empty for other values."""
    if not hasattr(value, "__dict__") or type(value).__module__ in ("builtins", "types"):
        return []
    return [] if isinstance(value, (*_OPAQUE, Mapping, *_SEQUENCES)) else list(vars(value).items())[:_ITEMS]


def entries_of(tensor: torch.Tensor) -> list[Entry]:
    """Return the ledger's entries of the storages that a tensor lies in; none for a host tensor."""
    return [entry_of(part) for part in parts_of(tensor)] if is_virtual(tensor) else []


def frame_of_code(code: CodeType, line: int) -> Frame:
    """Make a Frame for a line of a function."""
    return Frame(str(Path(code.co_filename)), line, code.co_name)
