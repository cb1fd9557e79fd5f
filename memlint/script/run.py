"""Runs a script on a simulated device until enough was seen, and says what that was."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from memlint.base.frames import user_lines
from memlint.base.ownership import is_users
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.script import processes
from memlint.script.recorder import ScriptRecorder
from memlint.script.spec import END_SIGNAL, Ending, Script
from memlint.tracing.recorder import collected_between_steps, observed
from memlint.tracing.records import Phase, Trace

if TYPE_CHECKING:
    from memlint.cuda.allocator.settings import AllocatorSettings
    from memlint.cuda.devices import Device
    from memlint.script.reruns import Reruns


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """What was seen of a script."""

    script: Script
    trace: Trace
    ending: Ending
    num_steps: int
    """Whole steps that were taken."""
    seconds: tuple[float, ...]
    """Of each of these."""
    batch: int | None
    """Leading size of the first input of the first training call."""
    precision: str
    """Of that call, as a Workload's dtype; empty without one."""
    optimizer: str
    """Class of the optimizer that leads; empty without one."""
    num_evaluations: int
    num_remembered: int
    """Evaluation calls, and how many of them were answered from memory."""
    reruns: Reruns
    """Answers what its Trace would be with Changes."""


def run_script(
    script: Script, device: Device, allocator: AllocatorSettings, answer: Callable[[ScriptRun], NoReturn]
) -> NoReturn:
    """Run `script` on a simulated `device`; `answer` is called from wherever it is when that is over.

    `answer` ends the process: no `except`, `finally` or exit handler of the script sees that.
    """
    with collected_between_steps(), virtual_device(device, allocator) as ledger:
        endings: list[Ending] = []

        def end(ending: Ending) -> NoReturn:
            endings.append(ending)
            main = threading.main_thread()
            if threading.current_thread() is not main:
                signal.pthread_kill(main.ident or 0, END_SIGNAL)
                threading.Event().wait()
            ledger.freeze()
            recorder.roles.note_gradients()
            recorded = recorder.finish(device)
            if recorder.reruns.send is not None:
                recorder.reruns.send(None if endings[0].is_failure else recorded.trace)
            answer(
                ScriptRun(
                    script=script,
                    trace=recorded.trace,
                    ending=endings[0],
                    num_steps=recorder.num_steps,
                    seconds=tuple(recorder.seconds),
                    batch=recorder.batch,
                    precision=recorder.precision,
                    optimizer=recorder.optimizer,
                    num_evaluations=recorder.evaluations.num_calls,
                    num_remembered=recorder.evaluations.num_remembered,
                    reruns=recorder.reruns,
                )
            )

        recorder = ScriptRecorder(ledger, simulated().workspaces, script, end)
        with observed(recorder), contextlib.ExitStack() as exits:
            _watch_ends(recorder)
            for patches in (processes.patches(script), _listening(recorder)):
                exits.enter_context(_replaced(patches))
            end(_executed(script))


def _executed(script: Script) -> Ending:
    """Why the script ended by itself."""
    try:
        if script.module:
            runpy.run_module(script.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script.path, run_name="__main__")
    except SystemExit as error:
        is_failure = error.code not in (0, None)
        text = repr(error.code) if is_failure else ""
        return Ending(f"the script called sys.exit({text})", is_failure=is_failure, traceback=tuple(user_lines(error)))
    except BaseException as error:
        traceback.print_exc()
        text = "".join(traceback.format_exception_only(error)).strip()
        return Ending(f"the script raised {text}", is_failure=True, traceback=tuple(user_lines(error)))
    return Ending("the script ran to its end")


def _watch_ends(recorder: ScriptRecorder) -> None:
    """Answer where the process would end without one: `os._exit`, and a signal of whoever waits for the answer."""

    def leave(status: int) -> NoReturn:
        recorder.end(Ending(f"the script ended its process with os._exit({status})", is_failure=status != 0))

    def asked(_number: int, frame: FrameType | None) -> None:
        stack = (f for f in traceback.extract_stack(frame) if is_users(f.filename))
        lines = tuple(f"{each.filename}:{each.lineno} in {each.name}" for each in stack)
        recorder.end(Ending("it was stopped before it had done so", is_failure=True, traceback=lines))

    signal.signal(END_SIGNAL, asked)
    handle = signal.signal

    def keep_ours(number: int, handler: Any) -> Any:
        return None if number == END_SIGNAL else handle(number, handler)

    signal.signal = keep_ours  # type: ignore[assignment]  # positional in both
    os._exit = leave


def _listening(recorder: ScriptRecorder) -> list[tuple[Any, str, Any]]:
    """What tells the recorder of optimizers that are made and of files that are saved: owner, name, replacement."""
    save, init = torch.save, torch.optim.Optimizer.__init__

    def making(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        recorder.made.add(self)
        init(self, *args, **kwargs)

    def saving(*args: Any, **kwargs: Any) -> Any:
        attribution = recorder.attribution
        before, attribution.section = attribution.section, Phase.SAVING
        try:
            return save(*args, **kwargs)
        finally:
            attribution.section = before

    return [(torch, "save", saving), (torch.optim.Optimizer, "__init__", making)]


@contextlib.contextmanager
def _replaced(patches: list[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
