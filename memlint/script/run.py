"""Runs a script on a simulated device until enough was seen, and says what that was."""

from __future__ import annotations

import functools
import os
import runpy
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from memlint.base.frames import user_lines
from memlint.base.ownership import is_users
from memlint.base.patching import Patch, patched
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.script import processes
from memlint.script.after_import import after_import
from memlint.script.data import loaders_in_process
from memlint.script.missing_data import missing_data
from memlint.script.pretrained import random_weights
from memlint.script.recorder import ScriptRecorder
from memlint.script.spec import END_SIGNAL, Ending, Script
from memlint.script.writes import Write, scratch_writes
from memlint.tracing.recorder import collected_between_steps, observed
from memlint.tracing.records import Phase, Trace

if TYPE_CHECKING:
    from memlint.cuda.allocator.settings import AllocatorSettings
    from memlint.cuda.devices import Device
    from memlint.script.guard import Connection
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
    writes: tuple[Write, ...]
    """Files that it would have written or removed."""
    connections: tuple[Connection, ...]
    """Other machines that it wanted to speak with."""
    reruns: Reruns
    """Answers what its Trace would be with Changes."""


def run_script(
    script: Script,
    device: Device,
    allocator: AllocatorSettings,
    exchange: Path,
    answer: Callable[[ScriptRun], NoReturn],
) -> NoReturn:
    """Run `script` on a simulated `device`; `answer` is called from wherever it is when that is over.

    `answer` ends the process: no `except`, `finally` or exit handler of the script sees that. What the script writes
    goes into the folder `exchange`, where `answer` may write too.
    """
    with (
        collected_between_steps(),
        virtual_device(device, allocator) as ledger,
        scratch_writes(exchange / "scratch", script.keep_writes, (exchange,)) as writes,
        loaders_in_process(script.batches if script.whole else None),
        missing_data(fake=script.fake_data),
        random_weights(),
    ):
        endings: list[Ending] = []

        def end(ending: Ending) -> NoReturn:
            endings.append(ending)
            main = threading.main_thread()
            if threading.current_thread() is not main:
                signal.pthread_kill(main.ident or 0, END_SIGNAL)
                threading.Event().wait()
            ledger.freeze()
            recorder.roles.note_gradients()
            trace = recorder.finish(device).trace
            if recorder.reruns.send is not None:
                recorder.reruns.send(None if endings[0].is_failure else trace)
            answer(
                ScriptRun(
                    script=script,
                    trace=trace,
                    ending=endings[0],
                    num_steps=recorder.num_steps,
                    seconds=tuple(recorder.seconds),
                    batch=recorder.batch,
                    precision=recorder.precision,
                    optimizer=recorder.optimizer,
                    num_evaluations=recorder.evaluations.num_calls,
                    num_remembered=recorder.evaluations.num_remembered,
                    writes=writes.records(),
                    connections=writes.connections(),
                    reruns=recorder.reruns,
                )
            )

        recorder = ScriptRecorder(ledger, simulated().workspaces, script, end)
        recorder.reruns.apart = writes.apart
        with observed(recorder), patched([*processes.patches(), *_listening(recorder)]):
            end(_executed(script))


def _in_phase(recorder: ScriptRecorder, phase: Phase, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose kernels belong to `phase`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with recorder.attribution.within(phase):
            return function(*args, **kwargs)

    return call


def _follow_libraries(recorder: ScriptRecorder) -> None:
    """Let what libraries generate and save be phases of their own."""

    def saving(module: Any) -> None:
        module.save_file = _in_phase(recorder, Phase.SAVING, module.save_file)

    def generating(module: Any) -> None:
        mixin = module.GenerationMixin
        mixin.generate = _in_phase(recorder, Phase.GENERATION, mixin.generate)

    after_import("safetensors.torch", saving)
    after_import("transformers.generation.utils", generating)


def _executed(script: Script) -> Ending:
    """Why the script ended by itself."""
    try:
        if script.module:
            runpy.run_module(script.module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script.path, run_name="__main__")
    except SystemExit as error:
        if error.code in (0, None):
            return Ending("the script called sys.exit()")
        reason = f"the script called sys.exit({error.code!r})"
        return Ending(reason, is_failure=True, traceback=tuple(user_lines(error)))
    except BaseException as error:
        traceback.print_exc()
        hint = " ".join(error.__dict__.pop("__notes__", ()))
        text = "".join(traceback.format_exception_only(error)).strip()
        reason = f"the script raised {text}"
        return Ending(reason, is_failure=True, traceback=tuple(user_lines(error)), hint=hint)
    return Ending("the script ran to its end")


def _listening(recorder: ScriptRecorder) -> list[Patch]:
    """What tells the recorder of optimizers that are made, of files that are saved, and that the process would end."""
    init, handle = torch.optim.Optimizer.__init__, signal.signal

    def making(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        recorder.made.add(self)
        init(self, *args, **kwargs)

    def leaving(status: int) -> NoReturn:
        recorder.end(Ending(f"the script ended its process with os._exit({status})", is_failure=status != 0))

    def asked_to_end(_number: int, frame: FrameType | None) -> None:
        stack = (each for each in traceback.extract_stack(frame) if is_users(each.filename))
        lines = tuple(f"{each.filename}:{each.lineno} in {each.name}" for each in stack)
        recorder.end(Ending("it was stopped before it was over", goes_on=True, is_failure=True, traceback=lines))

    def handling(number: int, handler: Any) -> Any:
        return None if number == END_SIGNAL else handle(number, handler)

    handle(END_SIGNAL, asked_to_end)
    _follow_libraries(recorder)
    return [
        (torch.optim.Optimizer, "__init__", making),
        (torch, "save", _in_phase(recorder, Phase.SAVING, torch.save)),
        (os, "_exit", leaving),
        (signal, "signal", handling),
    ]
