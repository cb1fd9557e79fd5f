"""Checking many files with the help of other processes.

This process begins at once, and each helper takes files from the same queue as soon as it has started, so a helper
that is slow to start, or that fails, costs nothing but its own share. Helpers load the rules themselves; requests and
answers are lines of JSON, on pipes. Unlike the processes of a pool, helpers also end when this process is killed.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from memlint.base.garbage import uncollected
from memlint.lint.cache import Cache, fingerprint_of, from_json, to_json
from memlint.lint.registry import load_rules
from memlint.lint.rule import Finding, Rule
from memlint.lint.runner import Checker
from memlint.source.files import python_files

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from memlint.lint.processes import main; main()"
_BATCH_NBYTES = 2**18
"""Bytes of source per message: about a tenth of a second's work, which costs far more than the message."""
HELPER_NBYTES = 2**20
"""Bytes of source that are as much work as starting a helper."""

Batch = list[tuple[int, str]]
"""Numbers and paths of files."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders that a helper needs for its work."""

    rules: tuple[str, ...]
    """Codes."""
    rule_paths: tuple[str, ...]
    """Files and folders with a project's own rules."""
    codes: tuple[str, ...] | None
    """The codes that comments may name; None for those of all installed rules."""
    cache: tuple[str, str] | None
    """Root and fingerprint."""


def check_paths(
    paths: Iterable[str | Path],
    rules: Iterable[Rule],
    codes: Collection[str] | None = None,
    *,
    cache_root: Path | None = None,
    jobs: int = 1,
    rule_paths: Sequence[Path] = (),
) -> list[Finding]:
    """Run the Source rules among `rules` over the files and directories `paths`.

    `codes` are those that suppression comments may name, by default those of all installed rules. Results are kept in a
    cache below `cache_root`, if that is given. Up to `jobs` processes run at a time, if there is work for them; more
    than one only where `rules` are those that `load_rules` gives, with the project's own in `rule_paths`.
    """
    rules = tuple(rules)
    cache = Cache(cache_root, fingerprint_of(rules, codes)) if cache_root else None
    check = Checker(rules, codes, cache)
    files = [str(path) for path in python_files(paths)]
    known = [check.known(path) for path in files]
    left = [(path, Path(path).stat().st_size) for path, results in zip(files, known, strict=True) if results is None]
    num = num_helpers([nbytes for _path, nbytes in left], jobs)
    orders = Orders(
        rules=tuple(rule.code for rule in rules),
        rule_paths=tuple(map(str, rule_paths)),
        codes=None if codes is None else tuple(codes),
        cache=(str(cache.root), cache.fingerprint) if cache else None,
    )
    with uncollected():
        checked = iter(check_with_helpers(left, check.read, orders, num))
    return [finding for results in known for finding in (next(checked) if results is None else results)]


def num_cpus() -> int:
    """How many processes can run at a time here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_helpers(sizes: Sequence[int], jobs: int) -> int:
    """How many helpers pay for themselves over files of these sizes (bytes), if `jobs` processes may run at a time."""
    return max(0, min(jobs - 1, sum(sizes) // HELPER_NBYTES))


def check_with_helpers(
    files: Sequence[tuple[str, int]], check: Callable[[str], list[Finding]], orders: Orders, num: int
) -> list[list[Finding]]:
    """Give what `check` finds in each of `files`, which come with their sizes in bytes, with `num` helpers."""
    queue = deque(_batches(files))
    results: list[list[Finding]] = [[] for _ in files]
    with ExitStack() as stack:
        threads = [
            threading.Thread(target=_feed, args=(stack.enter_context(_Helper(orders)), queue, results))
            for _ in range(num)
        ]
        for thread in threads:
            thread.start()
        while True:
            _check_batches(queue, check, results)
            for thread in threads:
                thread.join()
            if not queue:  # or else a helper has failed and given its batch back
                return results


def _check_batches(queue: deque[Batch], check: Callable[[str], list[Finding]], results: list[list[Finding]]) -> None:
    with suppress(IndexError):
        while True:
            for number, path in queue.popleft():
                results[number] = check(path)


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


def _feed(helper: "_Helper", queue: deque[Batch], results: list[list[Finding]]) -> None:
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
                results[number] = findings


class _Helper:
    """A process that checks files; it is gone when the context ends."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with suppress(OSError):
            self._send(asdict(self._orders))
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
        return [[from_json(each, path) for each in results] for path, results in zip(paths, answers, strict=True)]

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()


def main() -> None:
    """Be a helper: read orders and batches from stdin until it ends. What rules print goes nowhere."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that is asked to end will end this one
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        orders = Orders(**json.loads(sys.stdin.readline()))
        known = {rule.code: rule for rule in load_rules(paths=[Path(path) for path in orders.rule_paths]).rules}
        cache = Cache(Path(orders.cache[0]), orders.cache[1]) if orders.cache else None
        check = Checker(tuple(known[code] for code in orders.rules), orders.codes, cache)
        with uncollected():
            for line in sys.stdin:
                findings = [[to_json(finding, path) for finding in check.read(path)] for path in json.loads(line)]
                answers.write(json.dumps(findings) + "\n")
                answers.flush()
