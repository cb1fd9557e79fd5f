"""Runs a script on a simulated device until enough was seen, and says what that was."""

import linecache
import math
import os
import pkgutil
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, Protocol

from torch import nn

from memlint.accelerator.accumulation import has_run_backward
from memlint.accelerator.private import graph_task
from memlint.base.patching import patched
from memlint.base.units import Compile
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.generation.extension import NotExtendableError, extended
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.records import Assumption, Trace, computes_on_gpu
from memlint.script.attempts import Attempts
from memlint.script.children import Children
from memlint.script.confinement import Confinement
from memlint.script.data import Cut, loaders_in_process
from memlint.script.ending import End, ending_of, exits
from memlint.script.forms import forms
from memlint.script.guard import Connection, Program
from memlint.script.hooks import hooks
from memlint.script.loop_text import LoopText
from memlint.script.missing_data import missing_data
from memlint.script.own_step import OwnStep, only_evaluates, take_own_step
from memlint.script.pace import Pace
from memlint.script.passing_over import PassingOver
from memlint.script.processes import become_rank
from memlint.script.random_weights import random_weights
from memlint.script.recorder import ScriptRecorder
from memlint.script.reruns import Reruns, copied
from memlint.script.writes import Write, Writes, scratch_writes
from memlint.source.typed_commands import typed_configs
from memlint.targets.built import Built
from memlint.targets.script import Amendment, Ending, Happened, Script
from memlint.tracing.recorder import observed, without_collector
from memlint.workloads.notes import fake_data, not_there
from memlint.workloads.older_versions.learning import amendment_of
from memlint.workloads.user_errors import what_to_do

_OF_VERSIONS = frozenset(
    (
        "keyword",
        "name",
        "module",
        "attribute",
        "positional",
        "accelerator",
        "devices",
        "hparams",
        "none",
        "folder",
        "settings",
        "task",
        "strategy",
    )
)
"""Kinds of amendments that a line which was passed over may need: of the others none is sure to be the cause."""
_MOST_AMENDMENTS = 12
"""Changes for packages of other versions, each of which takes one more run."""
_SHARE = 1 / 3
"""Share of the time limit for lines after one that failed."""
_SHARE_OF_ATTEMPTS = 0.5
"""Share of the time limit in which another attempt may begin."""
_exit = os._exit
"""The original `os._exit`; scripts may replace it."""
_NameError = NameError
"""The exception where a script has taken away the names of `builtins`, until they are put back; it is one of them."""


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The observations from the run of a script."""

    script: Script
    trace: Trace
    ending: Ending
    num_steps: int
    """Whole steps that were taken."""
    seconds: tuple[float, ...]
    """The seconds of each of these."""
    batch: int | None
    """Leading size of the first input of the first training call."""
    precision: str
    """The precision of that call, as a Workload's dtype; empty without one."""
    optimizer: str
    """Class of the optimizer that leads; empty without one."""
    num_tokens: int
    """Tokens of a generation of which only the first were traced; 0 without one."""
    num_evaluations: int
    num_remembered: int
    """Evaluation calls, and how many of them were answered from memory."""
    writes: tuple[Write, ...]
    """Files that it would have written or removed."""
    connections: tuple[Connection, ...]
    """Other machines that it wanted to speak with."""
    programs: tuple[Program, ...]
    """The programs that it started."""
    fake_data: tuple[str, ...]
    """Descriptions of the data that memlint made up for it."""
    lacks_data: bool
    """True if it ended before its first step, had asked for what is not there, and fake data may be made up for it."""
    amendment: Amendment | None
    """A change with which it may come further, if a package of another version ended it before its first step."""
    looked_for: tuple[Assumption, ...]
    """Files that it looked for in vain, beside data that was made, and lines that were passed over as they failed."""
    confinement: Confinement
    """Names what the kernel kept it from."""
    reruns: Reruns
    """Answers what its Trace would be with Changes."""
    happened: Happened
    frees_later: bool
    """True if it would have gone on and freed parameters that are frozen until then."""
    own_step: OwnStep | None
    """The step that memlint took, or why it could not; None if none was due."""
    built: Callable[[], Built]
    """Returns what the script has built, as long as its process exists."""


class Recipient(Protocol):
    """Takes the observations of a script that runs; its methods are called from wherever the script is."""

    def answer(self, run: ScriptRun) -> NoReturn:
        """End the process with the complete `run`: no `except`, `finally` or exit handler of the script sees that."""

    def fail(self, error: BaseException) -> NoReturn:
        """End the process where `answer` has raised."""
        raise error

    def keep(self, run: ScriptRun) -> None:
        """Keep what was seen so far, in a copy of the process, which may itself end without notice."""

    def reason_to_end(self) -> str:
        """Return why the script is asked to end, as for `exits`."""
        return ""


def run_script(
    script: Script,
    device: Device,
    allocator: AllocatorSettings,
    exchange: Path,
    recipient: Recipient,
    *,
    time_limit: float = math.inf,
    compiles: Compile = "off",
) -> NoReturn:
    """Run `script` on a simulated `device`, and give the `recipient` what was seen when that is over.

    What the script writes goes into the folder `exchange`, where the recipient may write too. `time_limit` is in
    seconds from now on; `compiles` is as for a Workload.
    """
    deadline = time.monotonic() + time_limit
    cut = Cut(script.batches) if script.whole else None
    with (
        without_collector(),
        virtual_device(device, allocator, compiles=compiles != "off", compiles_in_parts=True) as ledger,
        scratch_writes(
            exchange / "scratch", script.keep_writes, (exchange,), makes_folders=script.makes_folders
        ) as writes,
        loaders_in_process(cut, lambda: recorder.note_batch()),  # noqa: PLW0108 -- it is made below
        missing_data(writes, fake=bool(script.fake_data), seq=script.seq) as missing,
        random_weights(script.config_of),
    ):

        def seen(ending: Ending, own_step: OwnStep | None = None) -> ScriptRun:
            ledger.freeze()
            recorder.roles.note_gradients()
            recorder.note_uncalled()
            trace = _with_all_tokens(recorder, recorder.finish(device).trace)
            happened = _happened(recorder, trace, own_step, ending)
            return ScriptRun(
                script=script,
                trace=trace,
                ending=passing_over.before(ending),
                num_steps=0 if happened == "built" else recorder.num_steps,
                happened=happened,
                frees_later=ending.goes_on and recorder.construction.frees_later(),
                own_step=own_step,
                seconds=tuple(recorder.seconds),
                batch=_batch(recorder),
                precision=recorder.precision or recorder.inference[1],
                optimizer=recorder.optimizer,
                num_tokens=recorder.pace.num_tokens,
                num_evaluations=recorder.evaluations.num_calls,
                num_remembered=recorder.evaluations.num_remembered,
                writes=writes.records(),
                connections=writes.connections(),
                programs=writes.programs(),
                fake_data=tuple(fake_data),
                lacks_data=_lacks_data(recorder, ending, writes),
                amendment=_amendment(recorder, ending),
                looked_for=(*(() if missing is None else missing.looked_for()), *passing_over.notes),
                confinement=writes.confinement,
                reruns=recorder.reruns,
                built=partial(recorder.construction.built, ending, happened, passing_over.first),
            )

        def finished(ending: Ending) -> NoReturn:
            recorder.construction.note_end(None)
            children.leave_end_to_leader(ending)
            is_left, seconds = _is_left(recorder, ending, writes), deadline - time.monotonic()
            own_step = None if is_left else take_own_step(recorder, end, ending, apart, seconds)
            recorder.note_cycles()
            run = seen(ending, own_step)
            recorder.reruns.over(None if ending.is_failure and run.happened != "built" else run.trace)
            writes.remove_segments()
            recipient.answer(run)

        def keep_in_copy() -> None:
            if recorder.reruns.send is None and copied():
                with suppress(BaseException):  # whatever it is, the script itself goes on
                    end.undisturbed()
                    recorder.reruns.forget()
                    recipient.keep(seen(Ending(f"{recorder.num_steps} steps were seen", goes_on=True)))
                _exit(0)

        def failed(error: BaseException) -> NoReturn:
            recorder.reruns.over(None)
            recipient.fail(error)

        def apart() -> None:
            writes.apart()
            end.take_over()

        end = End(finished, failed)
        recorder = ScriptRecorder(ledger, simulated().workspaces, script, end)
        passing_over = PassingOver(
            may_begin=lambda error: _may_go_on(error, recorder) and _is_early(recorder, writes),
            is_enough=lambda: recorder.has_called,
            construction=recorder.construction,
            sizes=partial(_sizes_so_far, recorder),
            seconds=_SHARE * time_limit,
        )
        children = Children(script, exchange, end, lambda: len(recorder.construction.roots()))
        recorder.lead, recorder.reruns.apart, recorder.compiles_models = children.lead, apart, compiles == "on"
        recorder.keep, recorder.reruns.take_steps = keep_in_copy, partial(_take_steps, recorder)
        recorder.pace = Pace(time_limit, script, end, recorder.num_modules, partial(_is_extendable, recorder, device))
        (cut or Cut(1)).progress = recorder.progress
        ways_out = exits(end, recipient.reason_to_end, recorder.postponing)
        if become_rank(script):
            writes.apart()
            recorder.keep = recorder.lead = lambda: None
            recorder.reruns.is_asked = False
        with observed(recorder), patched([*hooks(recorder), *ways_out, *children.patches()]):
            again = _attempts(recorder, end, children, writes.apart, _SHARE_OF_ATTEMPTS * time_limit)
            end(children.joined(_executed(recorder, end.undisturbed, passing_over, again)))
    raise AssertionError("the end of a script ends the process")


def _sizes_so_far(recorder: ScriptRecorder, model: nn.Module) -> dict[str, object]:
    """Return the numbers that a running script states for a model, by name."""
    recorder.construction.note_running()
    return LoopText(recorder.script).sizes_with(recorder.construction.sizes(model))


def _attempts(
    recorder: ScriptRecorder, end: End, children: Children, write_apart: Callable[[], None], seconds: float
) -> Callable[[BaseException], None]:
    """Return what lets another attempt take the place of a script that fails on the form of data made up for it."""

    def apart() -> None:
        if children.is_at_work:  # in a process that the script has started, whose end is not the script's
            write_apart()
            return
        recorder.reruns.apart()
        children.take_over()

    def note_loader(length: int, batch: int) -> None:
        if not recorder.num_steps:
            attempts.note_loader(length, batch)

    def may_begin() -> bool:
        """Ranks that send to this one are in other processes, and a copy of one that ran a backward can run none."""
        is_own = end.is_here or (children.is_at_work and recorder.script.ranks is None)
        return is_own and not has_run_backward()

    attempts = Attempts(may_begin, apart, seconds)
    forms.begin, recorder.construction.on_loader = attempts.begin, note_loader

    def begin_again(error: BaseException) -> None:
        if not recorder.num_steps and _amendment(recorder, Ending("it failed", amendment=amendment_of(error))) is None:
            attempts.fail(error)

    children.failed = partial(_note_failure, recorder, end, begin_again)
    return begin_again


def _note_failure(
    recorder: ScriptRecorder, end: End, begin_again: Callable[[BaseException], None], error: BaseException
) -> None:
    """Note what ends a process of the script's that has not begun a step; returns unless it is attempted again."""
    begin_again(error)
    end.undisturbed()
    recorder.construction.note_end(error)


def _is_left(recorder: ScriptRecorder, ending: Ending, writes: Writes) -> bool:
    """Return True if no step is to be taken in the script's place, which may be run once more with what it lacked."""
    comes_again = _lacks_data(recorder, ending, writes) or _amendment(recorder, ending) is not None
    return recorder.script.builds_only or comes_again


def _lacks_data(recorder: ScriptRecorder, ending: Ending, writes: Writes) -> bool:
    """Return True if the script may come further with fake data, which nobody has asked for or forbidden."""
    is_over = ending.is_failure or not recorder.has_called  # some scripts catch every error, and end as if all was well
    is_early = is_over and not (ending.goes_on or recorder.num_steps)
    return is_early and recorder.script.fake_data is None and bool(not_there or writes.connections())


def _amendment(recorder: ScriptRecorder, ending: Ending) -> Amendment | None:
    """Return the change with which the script may come to its first step, unless it was made already."""
    is_new = ending.amendment not in recorder.script.amendments and len(recorder.script.amendments) < _MOST_AMENDMENTS
    is_forbidden = (
        ending.amendment is not None and ending.amendment.kind == "variable" and not recorder.script.fake_data
    )
    return ending.amendment if is_new and not is_forbidden and not recorder.num_steps else None


def _happened(recorder: ScriptRecorder, trace: Trace, own_step: OwnStep | None, ending: Ending) -> Happened:
    """Return the point that the script reached by itself."""
    if own_step is not None and not own_step.failure:
        return "built"
    is_on_gpu = recorder.has_called or computes_on_gpu(trace)
    if recorder.num_steps:
        return "trained" if is_on_gpu else "nothing"
    weights = (weight for root in recorder.construction.roots() for weight in root.parameters())
    if recorder.has_called and not ending.is_failure and any(weight.grad is not None for weight in weights):
        return "trained"  # without an optimizer
    if recorder.has_generated or recorder.has_evaluated or only_evaluates(recorder, ending):
        return "generated" if recorder.has_generated else "evaluated"
    if recorder.construction.roots():
        return "built"
    return "computed" if is_on_gpu else "nothing"


def _with_all_tokens(recorder: ScriptRecorder, trace: Trace) -> Trace:
    """Return the Trace with the events of a whole generation, if the script was ended in one whose tokens follow."""
    if not recorder.pace.num_tokens:
        return trace
    recorder.has_generated = True
    return extended(trace, recorder.pace.num_tokens)


def _is_extendable(recorder: ScriptRecorder, device: Device, num_tokens: int) -> bool:
    """Return True if the events of a generation follow from the tokens that there are, in a script without steps.

    One that has an optimizer goes on to train: what it generates before that is not all.
    """
    if recorder.step >= 0 or recorder.construction.optimizers:
        return False
    try:
        extended(recorder.finish(device).trace, num_tokens)
    except NotExtendableError:
        return False
    return True


def _batch(recorder: ScriptRecorder) -> int | None:
    """Return the items per batch: rows of the first input, or its columns if time comes first and settings say so.

    A first input of one row may choose an action, and one that is no tensor has no rows; if another training call has
    as many as settings say, those count. So do those of a list of items, each with tensors of its own, those of an
    object with tensors, and those of another input than the first, which may have a row for each box.
    """
    sizes, stated = next(iter(recorder.shapes), ()), recorder.construction.batch()
    if stated is not None and _has_items(recorder, stated.value):
        return int(stated.value)
    is_other = recorder.batch is None or (recorder.batch == 1 and len(sizes) > 1)
    if stated is not None and is_other and stated.value in {shape[0] for shape in recorder.shapes if shape}:
        return int(stated.value)
    stated = stated if len(sizes) > 1 else None
    if stated is None or stated.value == sizes[0] or stated.value != sizes[1]:
        return recorder.batch or recorder.inference[0]
    return int(stated.value)


def _has_items(recorder: ScriptRecorder, number: object) -> bool:
    """Return True if what the model was first called with may have this number of items, whatever its first tensor."""
    is_object = bool(recorder.shapes) and not any(recorder.shapes)
    return is_object or recorder.num_items == number or 1 != number in recorder.rows


def _take_steps(recorder: ScriptRecorder, num: int) -> None:
    """Let a script that has begun be ended after as many steps."""
    recorder.script = recorder.script.model_copy(update={"steps": num})


def _may_go_on(error: BaseException, recorder: ScriptRecorder) -> bool:
    """Return True unless the script was told to end, has refused its arguments, cannot be read, or is to be amended.

    Without the config that is typed nothing of it is known.
    """
    if isinstance(error, FileNotFoundError) and os.path.realpath(str(error.filename)) in map(
        os.path.realpath, typed_configs(sys.argv)
    ):
        return False
    if _amendment(recorder, Ending("it failed", amendment=amendment_of(error))) is not None:
        return False
    if isinstance(error, SystemExit):
        frames = (frame for frame, _line in traceback.walk_tb(error.__traceback__))
        return bool(error.code) and not any(frame.f_globals.get("__name__") == "argparse" for frame in frames)
    return not isinstance(error, KeyboardInterrupt | SyntaxError | MemoryError)


def _is_early(recorder: ScriptRecorder, writes: Writes) -> bool:
    """Return True if no model was called, on whatever device, and made-up data would bring the script no further."""
    if _lacks_data(recorder, Ending("it failed", is_failure=True), writes) or graph_task() != -1:
        return False
    is_called = recorder.has_called or recorder.num_called_on_host > 0 or recorder.rounds is not None
    return not (is_called or recorder.num_steps or recorder.progress()[1] or recorder.open_calls)


def _executed(
    recorder: ScriptRecorder,
    undisturbed: Callable[[], None],
    passing_over: PassingOver,
    begin_again: Callable[[BaseException], None],
) -> Ending:
    """Why the script ended by itself; `undisturbed` is called before what it raised is looked at.

    `begin_again` does not return if another attempt takes the place of this one. An error that the script has shown
    before it ended, without a step, is why it ended.
    """
    script, construction, shown = recorder.script, recorder.construction, recorder.shown
    try:
        variables = _variables_of(script)
        if _is_cause(recorder) and shown.error is not None:
            raise shown.error
    except:  # noqa: E722 -- a script may take away the names of exceptions
        error = sys.exc_info()[1]
        assert error is not None, "it is being handled"
        ending: Ending | None = None
        try:
            if isinstance(error, SystemExit) and _is_cause(recorder):
                error, ending = shown.error or error, shown.ending
            begin_again(error)
            passing_over.after(error)
        except _NameError:
            pass
        undisturbed()
        construction.note_end(error, passing_over.namespaces, passing_over.continued)
        if ending is not None:
            return ending
        # a login or an upload, say, that met no other machine kept nothing from going on
        errors = (error, *passing_over.errors_of_known_values)
        others = (each for each in errors if what_to_do(each) or not isinstance(each, OSError))
        amendments = (amendment_of(each) for each in passing_over.errors)
        passed = next((each for each in amendments if each is not None and each.kind in _OF_VERSIONS), None)
        return replace(ending_of(next(others, error)), amendment=amendment_of(error) or passed)
    construction.note_end(None, [variables])
    return (shown.ending if _is_cause(recorder) else None) or Ending("the script ran to its end")


def _variables_of(script: Script) -> dict[str, Any]:
    """Run the script, and return the variables of its module."""
    if script.code:
        linecache.cache[script.path] = len(script.code), None, script.code.splitlines(keepends=True), script.path
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__ = script.path
        exec(compile(script.code, script.path, "exec"), vars(main))
        return vars(main)
    if not script.module:
        return runpy.run_path(script.path, run_name="__main__")
    module, _, function = script.module.partition(":")
    if not function:
        return runpy.run_module(module, run_name="__main__", alter_sys=True)
    if isinstance(status := pkgutil.resolve_name(script.module)(), int):
        sys.exit(status)
    return vars(sys.modules[module])


def _is_cause(recorder: ScriptRecorder) -> bool:
    """Return True if an error that a script has shown is why it took no step: one that only evaluates goes on."""
    return not recorder.num_steps and (recorder.construction.has_made_optimizer or not recorder.has_called)
