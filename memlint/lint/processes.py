"""Checking many files with the help of other processes.

This process begins at once, and each helper takes files from the same queue as soon as it has started, so a helper
that is slow to start, or that fails, costs nothing but its own share. Helpers load the rules themselves; what goes to
and fro are lines of JSON, on pipes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.lint.finding_json import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlint.lint.rule import Finding

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from memlint.lint.processes import main; main()"
_BATCH_NBYTES = 2**18
"""Of source in one message: about a tenth of a second's work, far more than what the message costs."""
HELPER_NBYTES = 2**20
"""Of source that is as much work as starting a helper."""

Batch = list[tuple[int, str]]
"""Numbers and paths of files."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a helper has to know."""

    rules: tuple[str, ...]
    """Codes."""
    rule_paths: tuple[str, ...]
    """Files and folders with a project's own rules."""
    codes: tuple[str, ...] | None
    """That comments may name; None for those of all installed rules."""
    cache: tuple[str, str] | None
    """Root and fingerprint."""


def num_helpers(sizes: Sequence[int], jobs: int) -> int:
    """How many helpers pay for themselves over files of these sizes (bytes), if `jobs` processes may run at a time."""
    return max(0, min(jobs - 1, sum(sizes) // HELPER_NBYTES))


def check_with_helpers(
    files: Sequence[tuple[str, int]], check: Callable[[str], list[Finding]], orders: Orders, num: int
) -> list[list[Finding]]:
    """Give what `check` finds in each of `files`, which come with their sizes in bytes, with `num` helpers."""
    queue = deque(_batches(files))
    found: list[list[Finding]] = [[] for _ in files]
    with ExitStack() as stack:
        threads = [
            threading.Thread(target=_feed, args=(stack.enter_context(_Helper(orders)), queue, found))
            for _ in range(num)
        ]
        for thread in threads:
            thread.start()
        while True:
            _check_batches(queue, check, found)
            for thread in threads:
                thread.join()
            if not queue:  # or else a helper has failed and given its batch back
                return found


def _check_batches(queue: deque[Batch], check: Callable[[str], list[Finding]], found: list[list[Finding]]) -> None:
    with suppress(IndexError):
        while True:
            for number, path in queue.popleft():
                found[number] = check(path)


def _batches(files: Sequence[tuple[str, int]]) -> list[Batch]:
    batches: list[Batch] = []
    filled = _BATCH_NBYTES
    for number, (path, nbytes) in enumerate(files):
        if filled >= _BATCH_NBYTES:
            batches.append([])
            filled = 0
        batches[-1].append((number, path))
        filled += nbytes
    return batches


def _feed(helper: _Helper, queue: deque[Batch], found: list[list[Finding]]) -> None:
    """Give a helper one batch after the other; a batch that it does not finish goes back."""
    with suppress(IndexError):
        while True:
            batch = queue.popleft()
            try:
                answers = helper.ask([path for _number, path in batch])
            except (OSError, ValueError, KeyError, TypeError):
                queue.append(batch)
                return
            for (number, _path), findings in zip(batch, answers, strict=True):
                found[number] = findings


class _Helper:
    """A process that checks files; it is gone when the context ends."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def __enter__(self) -> _Helper:
        import subprocess  # noqa: PLC0415 -- few runs need helpers

        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with suppress(OSError):
            self._send({name: getattr(self._orders, name) for name in Orders.__slots__})
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, paths: list[str]) -> list[list[Finding]]:
        """Raises OSError, ValueError, KeyError or TypeError if there is no answer, or one that makes no sense."""
        self._send(paths)
        assert self._process.stdout is not None
        answers = json.loads(self._process.stdout.readline())
        if len(answers) != len(paths):
            raise ValueError("a helper left files out")
        return [[from_json(each, path) for each in found] for path, found in zip(paths, answers, strict=True)]

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()


def main() -> None:
    """Be a helper: read orders and batches from stdin until it ends. What rules print goes nowhere."""
    from memlint.base.garbage import uncollected  # noqa: PLC0415
    from memlint.lint.cache import Cache  # noqa: PLC0415 -- this process has only just begun
    from memlint.lint.registry import load_rules  # noqa: PLC0415
    from memlint.lint.runner import Checker  # noqa: PLC0415

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that is asked to end will end this one
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        told = json.loads(sys.stdin.readline())
        orders = Orders(**told)
        known = {rule.code: rule for rule in load_rules(paths=[Path(path) for path in orders.rule_paths]).rules}
        cache = Cache(Path(orders.cache[0]), orders.cache[1]) if orders.cache else None
        check = Checker(tuple(known[code] for code in orders.rules), orders.codes, cache)
        with uncollected():
            for line in sys.stdin:
                found = [[to_json(finding, path) for finding in check(path)] for path in json.loads(line)]
                answers.write(json.dumps(found) + "\n")
                answers.flush()
