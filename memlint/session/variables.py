"""What a variable of a running program leads to."""

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
"""Of a container or an object that are searched."""
_SEQUENCES = (list, tuple, set, deque)
_OPAQUE = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, str, bytes, int, float, type, ModuleType)
"""Whose attributes are not the program's. What a model keeps it keeps on purpose."""


def tensors_in(
    value: Any, path: str, depth: int, seen: set[int], *, dotted: bool = False
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that a variable leads to, with how to write them, through `depth` containers and objects.

    With `dotted` the items of a mapping that are attributes too are written as such: `outputs.logits`.
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
    """Of an object whose attributes are the program's; none of other values."""
    if not hasattr(value, "__dict__") or type(value).__module__ in ("builtins", "types"):
        return []
    return [] if isinstance(value, (*_OPAQUE, Mapping, *_SEQUENCES)) else list(vars(value).items())[:_ITEMS]


def entries_of(tensor: torch.Tensor) -> list[Entry]:
    """The ledger's entries of the storages that a tensor lies in; none of a tensor of the host."""
    return [entry_of(part) for part in parts_of(tensor)] if is_virtual(tensor) else []


def frame_of_code(code: CodeType, line: int) -> Frame:
    """A line of a function."""
    return Frame(str(Path(code.co_filename)), line, code.co_name)
