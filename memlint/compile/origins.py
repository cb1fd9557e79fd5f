"""Origins of what compiled code allocates: the operator, line and module of the program that a Buffer comes from.

Inductor knows for each of its buffers the nodes of the graph that it was fused of, and these know their lines and
modules. Generated code names the buffer in the line that allocates or fills it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from memlint.base.ownership import is_installed, is_users
from memlint.memory.records import Frame

_PLACE = re.compile(r'File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_NAME = re.compile(r"^\s*(\w+) = |\bout=(\w+)")
_KERNEL = re.compile(r"^\s*(\w+)(?:\.run)?\(")
_PARTITION = "self.partitions["
"""Beginning of the call of what one CUDA graph holds."""
_MODULE = re.compile(r"(?<=\.)\w+|(?<=\[)\w+(?=\])|(?<=\[')\w+(?='\])")
_OPTIMIZER = "/torch/optim/optimizer.py"
"""The file of the function that calls each optimizer's step."""
_STACKS = ("nn_module_stack", "fwd_nn_module_stack")


class Origin(NamedTuple):
    """The origin of a buffer of compiled code."""

    kernel: str
    """Name of the generated kernel that runs there; empty if none does."""
    op: str
    """The last of the operators that it was fused of, whose result it holds; empty if there is none."""
    frame: Frame | None
    module: str | None
    """Path of the innermost module in the compiled one, whose own path is empty; None if there is none."""
    optimizes: bool = False
    """True if it is a part of an optimizer's step."""


_NOWHERE = Origin("", "", None, None)
"""The origin of what compiled code does for itself."""
_known: dict[str, dict[str, Origin]] = {}
"""Origins of buffers, by file of generated code and name."""


def remember(path: str, graph: Any) -> None:
    """Note the origins of the buffers of a lowered graph, whose code is in the file at `path`."""
    order = {node: number for number, node in enumerate(graph.graph.nodes)}
    named = dict(graph.name_to_buffer)
    _known[path] = {name: origin for name, buffer in named.items() if (origin := _origin(buffer, order)) is not None}
    _lines.cache_clear()


def forget() -> None:
    """Forget all origins."""
    _known.clear()


def origin_at(path: str, line: int) -> Origin | None:
    """Return the origin of what a line of generated code allocates or fills; None for any other file."""
    known = _known.get(path)
    if known is None:
        return None
    lines = _lines(path)
    text = lines[line - 1] if line <= len(lines) else ""
    if _PARTITION in text:
        return _NOWHERE
    if found := _NAME.search(text):
        return known.get(found[1] or found[2], _NOWHERE)
    name, *arguments = re.findall(r"\w+", text) or [""]
    origin = next((known[each] for each in reversed(arguments) if each in known), _NOWHERE)
    return origin._replace(kernel=name) if _KERNEL.search(text) else origin


@cache
def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def _origin(buffer: Any, order: dict[Any, int]) -> Origin | None:
    nodes = [node for node in getattr(buffer, "origins", ()) if node in order]
    if not nodes:
        return None
    last = max(nodes, key=order.__getitem__)
    frames = next((found for node in (last, *nodes) if (found := list(_frames(node)))), [])
    module = next((m for n in (last, *nodes) if (m := _module(n))), None)
    optimizes = any(frame.path.endswith(_OPTIMIZER) for frame in frames)
    return Origin("", str(last.target), _innermost(frames), module, optimizes)


def _frames(node: Any) -> Iterator[Frame]:
    """Yield the lines that led to a node, the outermost first."""
    for found in _PLACE.finditer(node.meta.get("stack_trace") or ""):
        yield Frame(found["path"], int(found["line"]), found["function"])


def _innermost(frames: list[Frame]) -> Frame | None:
    """Return the innermost line outside PyTorch, with the user's around it if it is a package's."""
    own = [frame for frame in frames if is_users(frame.path)]
    others = [frame for frame in frames if is_installed(frame.path) and "/torch/" not in frame.path]
    last = own[-1] if own else None
    if others and (last is None or frames.index(others[-1]) > frames.index(last)):
        inner = others[-1]
        return Frame(inner.path, inner.line, inner.function, last)
    return last


def _module(node: Any) -> str | None:
    stack = next((stack for name in _STACKS if (stack := node.meta.get(name))), None)
    if not stack:
        return None
    path, _kind = list(stack.values())[-1]
    return ".".join(part for part in _MODULE.findall(path.partition("]")[2]) if part not in ("_modules", "_orig_mod"))
