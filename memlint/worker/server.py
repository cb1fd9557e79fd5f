"""The process that children are copies of: it imports what they need, and then only copies itself."""

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

from memlint.base.own_process import die_with
from memlint.worker.dependencies import Watch


def main(place: str, handle: str, parent: str, *arguments: str) -> NoReturn:
    """Import the modules of children that `arguments` name, and what these need, and serve process `parent`.

    It speaks on the descriptor `handle`, and ends without a word if its copies would not be whole. The last argument is
    `bytecode`, as for an ordinary child.
    """
    *children, bytecode = arguments
    die_with(int(parent))
    os.set_inheritable(int(handle), False)
    watch = Watch(Path(place))
    sys.dont_write_bytecode = not bytecode
    importlib.import_module("memlint.worker.protocol")
    importlib.import_module("pydantic.dataclasses")  # which the first Request of a process loads
    for child in children:
        importlib.import_module(child).preload()
    watch.paused = True
    sys.dont_write_bytecode = True
    sys.stdout.flush()
    sys.stderr.flush()
    imported, descriptors = frozenset(sys.modules), _open_descriptors() - {int(handle)}
    from memlint.worker.server_children import Snapshot, serve  # noqa: PLC0415  (not among the modules of the copies)

    serve(int(handle), Snapshot(Path(place), watch, imported, descriptors, _output(1), _output(2), bool(bytecode)))


def _open_descriptors() -> frozenset[int]:
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # noqa: PTH208
    return frozenset(each for each in listed if os.path.exists(f"/proc/self/fd/{each}"))  # noqa: PTH110


def _output(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
