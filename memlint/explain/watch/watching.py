"""A watch beside a run: it records, and writes what a failure was."""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memlint.base.errors import MemlintError
from memlint.explain.failure import Failure, failure_in
from memlint.explain.log import Surroundings
from memlint.explain.narrative import lines_of
from memlint.explain.watch.expectation import Expectation
from memlint.explain.watch.history import LOGGER, History
from memlint.targets.launchers import launch_of

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType
    from typing import Self

    from memlint.capture.capture import Capture


class Watching:
    """Records what the allocator does, and explains a failure for want of memory. It changes nothing else.

    Exceptions go on as they are, and so does the exit status. What goes wrong in here is logged, as `memlint.watch`.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        estimate: Capture | str | PathLike[str] | None,
        steps: int | None,
        max_entries: int,
    ) -> None:
        self.folder = Path(folder)
        self.num_steps = 0
        self._last = steps
        self._history = History(max_entries)
        self._is_on_gpu = False
        self._expectation = None if estimate is None else Expectation.of(estimate)
        self._hook_before: Any = None
        self._explained: int | None = None
        self.files: tuple[Path, ...] = ()
        """The files that were written about a failure."""

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.explain(error)
        self.end()

    def begin(self) -> None:
        """Begin to record; a second call does nothing."""
        try:
            self._is_on_gpu = self._history.begin()
        except Exception as error:
            LOGGER.warning("the allocator's history is not recorded: %s", error)
        if not self._is_on_gpu:
            LOGGER.warning("no CUDA or HIP device: nothing is recorded, a failure is explained by its message alone")

    def step(self) -> None:
        """Say that a training step is over: recording ends after the last one asked for, the estimate is compared."""
        self.num_steps += 1
        try:
            if self._last is not None and self.num_steps >= self._last:
                self._history.end()
            if self._expectation is not None and self._is_on_gpu:
                for sentence in self._expectation.left_by(self.num_steps, _peaks()):
                    LOGGER.warning("%s", sentence)
        except Exception as error:
            LOGGER.warning("step %d could not be looked at: %s", self.num_steps, error)

    def end(self) -> None:
        """End the recording, if it is memlint's own."""
        self.unhook()
        try:
            self._history.end()
        except Exception as error:
            LOGGER.warning("the recording could not be ended: %s", error)

    def explain(self, error: BaseException) -> None:
        """Write the snapshot and the explanation if `error` is for want of memory; each error once."""
        if self._explained == id(error) or not isinstance(error, Exception):
            return
        try:
            text = "".join(traceback.format_exception(error))
            failure = _failure(text)
            if failure is not None:
                self._explained = id(error)
                self._write(failure)
        except Exception as problem:
            LOGGER.warning("the failure could not be explained: %s", problem)

    def hook(self) -> None:
        """Explain an exception that ends the program, for trainers that tell their callbacks of none."""
        if self._hook_before is None:
            self._hook_before, sys.excepthook = sys.excepthook, self._explain_uncaught

    def unhook(self) -> None:
        """Put back what `hook` replaced, unless something else has taken its place since."""
        if self._hook_before is not None and sys.excepthook == self._explain_uncaught:
            sys.excepthook = self._hook_before
            self._hook_before = None

    def _explain_uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.explain(error)
        (self._hook_before or sys.__excepthook__)(kind, error, trace)

    def _write(self, failure: Failure) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"oom-{time.strftime('%Y%m%d-%H%M%S')}-rank{os.environ.get('RANK', '0')}"
        explanation, snapshot = self.folder / f"{name}.txt", self.folder / f"{name}.pickle"
        if self._is_on_gpu:
            self._history.write(snapshot)
            self.files += (snapshot,)
        lines = lines_of(failure, str(snapshot) if self._is_on_gpu else "")
        explanation.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.files += (explanation,)
        LOGGER.warning("out of memory in step %d: see %s", self.num_steps + 1, " and ".join(map(str, self.files)))


def _failure(text: str) -> Failure | None:
    """Return the failure in a traceback, with this process's command line; None if it is not about memory."""
    try:
        failure = failure_in(text)
    except MemlintError:
        return None
    own = Surroundings(failure.surroundings.place, failure.surroundings.script, _typed())
    return replace(failure, surroundings=own)


def _typed() -> tuple[str, ...]:
    """Return what `memlint run` takes for this process: its script and arguments, and its rank."""
    if "ipykernel" in sys.modules:  # a notebook has no command
        return ()
    try:
        launch = launch_of(["python", *sys.orig_argv[1:]])
    except MemlintError:  # a command that was installed
        return tuple(sys.argv)
    world = os.environ.get("WORLD_SIZE", "1")
    ranks = ("--ranks", world, "--rank", os.environ.get("RANK", "0")) if world.isdigit() and int(world) > 1 else ()
    started = ("-m", launch.module) if launch.module else (launch.path,)
    return (*ranks, *started, *launch.arguments)


def _peaks() -> dict[str, int]:
    import torch  # noqa: PLC0415 -- `import memlint` loads no torch

    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved()}
