"""The workloads of saved files, checked in the background: the newest order wins."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from memlint.language_server.background import Done, Order, Progress

_LINE_NBYTES = 2**30
"""The longest answer: a Report of many workloads."""
_PATIENCE = 30.0
"""Seconds for the process to end its children before it is ended itself."""


@dataclass
class Tracer:
    """Asks one process for one order after the other; an order ends an older one of its folder, and takes its files."""

    on_begin: Callable[[Order], Awaitable[None]]
    on_progress: Callable[[Progress], None]
    on_done: Callable[[Order, Done], None]
    _waiting: dict[tuple[str, bool], Order] = field(default_factory=dict)
    _running: Order | None = None
    _has_begun: bool = False
    _is_stopping: bool = False
    _process: asyncio.subprocess.Process | None = None
    _task: asyncio.Task[None] | None = None

    async def warm_up(self) -> None:
        """Start the process, which imports PyTorch and runs no code of anybody's."""
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "memlint.language_server.background", str(os.getpid())),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LINE_NBYTES,
            )

    def order(self, order: Order) -> None:
        """Check what the order says, as soon as what is older of its folder has been stopped."""
        key = order.directory, order.init
        older = [self._waiting.get(key)]
        if self._running is not None and (self._running.directory, self._running.init) == key:
            older.append(self._running)
            self.cancel()
        for each in filter(None, older):
            order = order.model_copy(
                update={
                    "targets": tuple(dict.fromkeys((*order.targets, *each.targets))),
                    "scripts": tuple(dict.fromkeys((*order.scripts, *each.scripts))),
                }
            )
        self._waiting[key] = order
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    def cancel(self) -> None:
        """Stop what runs, as soon as it has begun."""
        if self._running is not None and not self._is_stopping:
            self._is_stopping = True
            if self._has_begun:
                self._interrupt()

    def _interrupt(self) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            if sys.platform == "win32":
                self._process.kill()
            else:
                self._process.send_signal(signal.SIGINT)

    async def close(self) -> None:
        """End the process, and what it runs."""
        self._waiting.clear()
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), _PATIENCE)
            except TimeoutError:
                self._process.kill()

    async def _work(self) -> None:
        while self._waiting:
            order = self._waiting.pop(next(iter(self._waiting)))
            self._running, self._has_begun, self._is_stopping = order, False, False
            await self.on_begin(order)
            try:
                done = await self._asked(order)
            finally:
                self._running, self._has_begun = None, False
            self.on_done(order, done)

    async def _asked(self, order: Order) -> Done:
        await self.warm_up()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(order.model_dump_json().encode() + b"\n")
            await process.stdin.drain()
            while line := await process.stdout.readline():
                ((kind, content),) = json.loads(line).items()
                if kind == Done.__name__:
                    return Done.model_validate(content)
                if not self._has_begun:
                    self._has_begun = True
                    if self._is_stopping:
                        self._interrupt()
                self.on_progress(Progress.model_validate(content))
        except (BrokenPipeError, ConnectionResetError):
            pass
        status = await process.wait()
        if sys.platform == "win32":
            return Done()
        hint = "Save the file again; what it wrote stands in the editor's log of memlint."
        return Done(error=(f"the process that traces ended with status {status}", hint))
