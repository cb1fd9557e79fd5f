"""The process that children are copies of: it imports what they need, and then only copies itself."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from memlint.worker.dependencies import Watch
from memlint.worker.limits import die_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Original(NamedTuple):
    """What a child finds that is a Python of its own, just before it reads its request."""

    place: Path
    """Where the files of the server and of all exchanges are."""
    watch: Watch
    modules: frozenset[str]
    descriptors: frozenset[int]
    output: bytes
    """What the imports wrote to stdout."""
    errors: bytes
    """And to stderr."""
    bytecode: bool


def main(place: str, handle: str, parent: str, bytecode: str, *modules: str) -> NoReturn:
    """Import `modules`, which are those of the functions that will be asked for, and serve the process `parent`.

    It speaks on the descriptor `handle`, and ends without a word if its copies would not be whole. `bytecode` is as for
    an ordinary child.
    """
    die_with(int(parent))
    os.set_inheritable(int(handle), False)
    watch = Watch(Path(place))
    sys.dont_write_bytecode = not bytecode
    with _no_backward(modules):
        for module in ("memlint.worker.child", "memlint.worker.protocol", *modules):
            importlib.import_module(module)
    watch.paused = True
    sys.dont_write_bytecode = True
    sys.stdout.flush()
    sys.stderr.flush()
    descriptors = _open_descriptors() - {int(handle)}
    original = Original(
        Path(place), watch, frozenset(sys.modules), descriptors, _written(1), _written(2), bool(bytecode)
    )
    from memlint.worker.server_children import serve  # noqa: PLC0415  (not among the modules of the copies)

    serve(int(handle), original)


@contextmanager
def _no_backward(modules: Sequence[str]) -> Iterator[None]:
    """Leave to the copies what memlint does with autograd when it is imported: that starts threads of autograd's."""
    if not any(module.startswith("memlint.") for module in modules):
        yield
        return
    from memlint.accelerator import accumulation  # noqa: PLC0415

    measure = accumulation.measure
    accumulation.measure = lambda: None
    try:
        yield
    finally:
        accumulation.measure = measure


def _open_descriptors() -> frozenset[int]:
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return frozenset(each for each in listed if os.path.exists(f"/proc/self/fd/{each}"))  # noqa: PTH110


def _written(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
