"""A script that is run: what was seen of it, from wherever that is over, and runs of it with Changes."""

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from memlint.base.own_process import flush_output
from memlint.base.units import Mode, format_count
from memlint.capture.capture import Capture, OtherHost, ScriptFacts, StartedProgram, WrittenFile
from memlint.memory.allocator.settings import VARIABLES, AllocatorSettings
from memlint.memory.context import loads_everything
from memlint.memory.records import Assumption, Phase, computes_on_gpu, has_parameters
from memlint.script.launching import launched
from memlint.script.run import Recipient, ScriptRun, run_script
from memlint.session.process_setup import ProcessSetup
from memlint.session.target import of_compilation, of_context, of_torch
from memlint.targets.launchers import is_launch
from memlint.targets.script import HAD_BUILT, Script, Started
from memlint.targets.shell_scripts import shell_script
from memlint.targets.workload import DEFAULT_GPU, Workload
from memlint.worker.child import (
    answer_jobs,
    exchange_folder,
    fail_now,
    reason_to_end,
    write_here,
    write_partial_capture,
)
from memlint.worker.jobs import Job, Retrace, TraceWorkload, WhatWasBuilt
from memlint.worker.protocol import Request
from memlint.workloads import availability
from memlint.workloads.older_versions import applying
from memlint.workloads.placeholders import absent_packages

_WITHOUT_MODEL = Assumption("the script's own operations are all there is: no model was called on the GPU", None)
_ON_GPU = (
    "Let it train there: by the script's own option for its device, accelerator='gpu' for a trainer, or .to('cuda') of "
    "the model and of its inputs."
)
_PRINTED = "If that does not say why, -v shows all that it printed."
_TAIL, _MOST_WORDS = 4096, 160
"""Bytes of output in which the last line is looked for, and the characters of it that are shown."""
_STDOUT, _STDERR = 1, 2
_PYTHON = re.compile(r"(?:^|/)python[\d.]*$")
_WARNING = re.compile(r"^.*\b\w*Warning: .*\n(?:  .*\n?)?", re.MULTILINE)
"""A warning of Python, with the line that it quotes: of another thing than the end."""


def run_request(request: Request) -> NoReturn:
    """Run the script of `request`, and answer jobs from wherever that is over."""
    assert request.script is not None
    script = launched(request.script)
    ProcessSetup.of_script(request, script).arm()
    settings = request.settings
    for amendment in script.amendments:
        applying.amend(amendment)
    recipient = _Recipient(request, settings.gpu or script.gpu or DEFAULT_GPU)
    fields: dict[str, Any] = {"gpu": recipient.gpu, "torch": settings.torch or "", "context": settings.context or 0}
    device = Workload(name=script.name, target=request.target, **fields).device
    allocator, limit = AllocatorSettings.parse(_allocator(script)), settings.timeout
    folder, compiles = exchange_folder(), settings.compile or "auto"
    run_script(script, device, allocator, folder, recipient, time_limit=limit, compiles=compiles)


@dataclass(frozen=True, slots=True)
class _Recipient(Recipient):
    """Writes what was seen into the exchange, in place of the process that began to run the script."""

    request: Request
    gpu: str

    def answer(self, run: ScriptRun) -> NoReturn:
        write_here()
        if run.script.builds_only:
            answer_jobs(lambda _job: WhatWasBuilt(built=run.built()))
        capture = _capture(run, self.request, self.gpu)
        answer_jobs(partial(_answer, run, capture))

    def fail(self, error: BaseException) -> NoReturn:
        write_here()
        fail_now(error)

    def keep(self, run: ScriptRun) -> None:
        write_here()
        write_partial_capture(_capture(run, self.request, self.gpu))

    def reason_to_end(self) -> str:
        return reason_to_end()


def _answer(run: ScriptRun, capture: Capture, job: Job) -> Capture | None:
    """Do one job; of a script's variables nothing is known."""
    match job:
        case TraceWorkload():
            return capture
        case Retrace(_, changes) if all(each.is_made_after_setup for each in changes):
            trace = run.reruns.trace(changes)
            return None if trace is None else replace(capture, trace=trace)
    return None


def _capture(run: ScriptRun, request: Request, gpu: str) -> Capture:
    workload = _workload(run, request, gpu)
    device, trace = workload.device, run.trace
    without = () if has_parameters(trace) or not computes_on_gpu(trace) else (_WITHOUT_MODEL,)
    of_packages = (*applying.assumptions(), *absent_packages.assumptions())
    # Sizes rest on what was made up: it comes first.
    of_data = (each for each in trace.assumptions if any(made.startswith(each.text) for made in run.fake_data))
    given = (*of_data, *of_packages, *availability.assumptions(), *run.looked_for, *trace.assumptions)
    own = run.own_step.assumptions if run.own_step is not None else ()
    of_gpu = (*of_torch(workload, device), *of_context(device))
    if run.script.is_started:
        path = run.script.path or f"-m {run.script.module}"
        of_gpu = (Assumption(f"it does nothing but to start {path}, which is simulated in its place", None), *of_gpu)
    compiled = of_compilation(simulated=request.settings.compile != "off")
    known = tuple(dict.fromkeys((*own, *given, *of_gpu, *compiled, *without)))
    return Capture(
        workload=workload,
        trace=replace(trace, assumptions=known),
        optimizer=run.optimizer or None,
        assumptions=known,
        loads_everything=device.is_cuda and loads_everything(device),
        script=_facts(run),
    )


def _facts(run: ScriptRun) -> ScriptFacts:
    is_offline = run.confinement.is_offline
    return ScriptFacts(
        command=run.script.command,
        num_steps=run.num_steps,
        happened=run.happened,
        seconds=run.seconds,
        ending=run.ending.reason,
        goes_on=run.ending.goes_on,
        frees_later=run.frees_later,
        evaluations=run.num_evaluations,
        remembered=run.num_remembered,
        writes=tuple(WrittenFile(each.path, each.nbytes, each.frame) for each in run.writes),
        connections=tuple(OtherHost(each.host, each.frame) for each in run.connections),
        programs=tuple(StartedProgram(_typed(each.command), is_offline, each.frame) for each in run.programs),
        not_guarded=tuple(run.confinement.not_guarded()),
        error=_error(run),
        stop=(run.ending.reason, run.ending.hint, tuple(run.ending.traceback)) if _is_own(run) else None,
        lacks=run.ending.lacks if _is_own(run) else "",
        lacks_data=run.lacks_data,
        amendment=run.amendment,
        started=_started(run),
        own=(*(run.own_step.own if run.own_step is not None else ()), *(("data",) if run.fake_data else ())),
    )


def _workload(run: ScriptRun, request: Request, gpu: str) -> Workload:
    """The Workload that the script has declared by what it did."""
    script = run.script
    return Workload(
        name=script.name,
        target=request.target,
        path=script.path,
        mode=_mode(run),
        batch=run.batch or 1,
        dtype=run.precision or "float32",  # type: ignore[arg-type]  # of its parameters
        optimizer=run.optimizer.lower() or "none",
        gpu=gpu,
        torch=request.settings.torch or "",
        context=request.settings.context or 0,
        allocator=_allocator(script),
        origin="script",
        dimensions={"new_tokens": run.num_tokens} if run.num_tokens else {},
    )


def _mode(run: ScriptRun) -> Mode:
    if run.own_step is not None and _is_own(run):
        return run.own_step.mode
    if run.happened == "evaluated":  # which may differentiate, for forces
        return "inference"
    if run.num_steps or any(node.phase is Phase.BACKWARD for node in run.trace.nodes):
        return "train"
    return "generate" if run.happened == "generated" else "inference"


def _allocator(script: Script) -> str:
    """The settings of the allocator; a script may set the variable itself before it first uses the GPU."""
    return script.allocator or next(filter(None, map(os.environ.get, VARIABLES)), "")


def _typed(command: Sequence[str]) -> str:
    """Return the text that a shell would take for `command`."""
    return command[2] if len(command) == 3 and command[1] == "-c" and command[0].endswith("sh") else shlex.join(command)


def _is_own(run: ScriptRun) -> bool:
    """Return True if memlint took the step."""
    return run.own_step is not None and not run.own_step.failure


def _error(run: ScriptRun) -> tuple[str, str, tuple[str, ...]] | None:
    """Message, hint and traceback, where it is less than what was asked for."""
    if _is_own(run):
        return None
    ending, elsewhere = run.ending, _hint_of_programs(run) if run.happened == "nothing" else ""
    without = f"{HAD_BUILT}{run.own_step.model}: {run.own_step.failure}" if run.own_step is not None else ""
    if ending.is_failure:
        install = run.own_step.hint if run.own_step is not None else ""
        hint = " ".join(dict.fromkeys(filter(None, (install, ending.hint)))) or elsewhere
        if (not hint or ending.has_exited) and (words := _last_words(_STDERR)) and words not in ending.reason:
            hint = f"It wrote: {words}. {hint}" if hint else f"It wrote: {words}"
        return f"{ending.reason}, {_reached(run)}{without}", hint, tuple(ending.traceback)
    if run.happened not in ("nothing", "built"):
        return None
    taken = f"{ending.reason}, on the CPU:" if run.num_steps else f"{ending.reason}, and"
    message = f"{taken} no model was called on the GPU{without}"
    if not run.num_steps and (caught := absent_packages.last_use()) is not None:
        return f"{message}; before, it caught: {caught.message}", caught.hint, ()
    lacks = absent_packages.lacking(run.script.path) if absent_packages.has_called() else ""
    if not run.num_steps and (words := _last_words(_STDOUT) or _last_words(_STDERR)):
        return f"{message}; its output ends: {words}", elsewhere or lacks or _PRINTED, ()
    return message, elsewhere or lacks or _ON_GPU, ()


def _last_words(number: int) -> str:
    """Return the last line that the script has written to the file of this number; empty if there is none."""
    flush_output()
    with suppress(OSError):
        nbytes = os.fstat(number).st_size
        text = os.pread(number, _TAIL, max(0, nbytes - _TAIL)).decode(errors="replace")
        words = next((line.strip() for line in reversed(_WARNING.sub("", text).splitlines()) if line.strip()), "")
        return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}..."
    return ""


def _reached(run: ScriptRun) -> str:
    """Return the point in the script at which it ended, in words."""
    if run.num_steps:
        return f"after {format_count(run.num_steps, 'whole step')}"
    is_generating = run.happened == "built" and bool(run.trace.rounds)
    return "in its first generation" if is_generating else "before its first whole step"


def _hint_of_programs(run: ScriptRun) -> str:
    """Return a hint at the program to run instead, if the script has started another one."""
    started = _started_program(run)
    if started is None:
        return ""
    words = started.words
    own = next((words[i:] for i, word in enumerate(words) if word.endswith(".py") or word == "-m"), ())
    instead = own if _PYTHON.search(words[0]) else words  # a launcher decides on processes and settings
    return f"It started `{shlex.join(words)}`, of which nothing is simulated: memlint run {shlex.join(instead)}"


def _started(run: ScriptRun) -> Started | None:
    """Return the program that the script has started, if it did nothing else; that of such a program is not followed.

    One in a folder that the script has made is not there any more.
    """
    started = None if run.happened != "nothing" or run.script.is_started else _started_program(run)
    return started if started is not None and (not started.folder or Path(started.folder).is_dir()) else None


_INSTALLER = "pip"


def _started_program(run: ScriptRun) -> Started | None:
    """Return the first program that runs a script or a module of Python, as far as a command line says it.

    One that installs packages is none.
    """
    for program in run.programs:
        with suppress(ValueError):  # of a shell's quotes
            words = tuple(shlex.split(_typed(program.command)))
            is_python = any(word.endswith(".py") or word == "-m" for word in words)
            is_started = is_launch(words) or shell_script(words, Path(program.folder)) is not None
            if is_started and is_python and _INSTALLER not in words:
                return Started(words, program.folder, program.variables)
    return None
