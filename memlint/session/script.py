"""A script that is run: what was seen of it, from wherever that is over, and runs of it with Changes."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from memlint.base.units import format_count
from memlint.capture.capture import Capture, OtherHost, ScriptFacts, StartedProgram, WrittenFile
from memlint.memory.allocator.settings import VARIABLES, AllocatorSettings
from memlint.memory.context import loads_everything
from memlint.memory.records import Assumption, Phase, computes_on_gpu, has_parameters
from memlint.script.processes import set_variables
from memlint.script.run import ScriptRun, run_script
from memlint.session.target import of_compilation, of_context, of_torch, prepare
from memlint.targets.script import Script
from memlint.targets.workload import DEFAULT_GPU, Workload
from memlint.worker.child import (
    answer_jobs,
    exchange_folder,
    fail_now,
    reason_to_end,
    write_here,
    write_partial_capture,
)
from memlint.worker.jobs import Job, Retrace, TraceWorkload
from memlint.worker.protocol import Request
from memlint.workloads import availability, placeholders

_WITHOUT_MODEL = Assumption("the script's own operations are all there is: no model was called on the GPU", None)
_LAUNCHER = re.compile(r"(?:^|/)(?:python[\d.]*|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun)$")
"""Programs that start a training script."""


def run_request(request: Request) -> NoReturn:
    """Run the script of `request`, and answer jobs from wherever that is over."""
    script = request.script
    assert script is not None
    prepare(request)
    set_variables(script)
    settings = request.settings
    if settings.stub:
        placeholders.expect_in_script(settings.stub)
    gpu = settings.gpu or script.gpu or DEFAULT_GPU

    def keep_in_copy(run: ScriptRun) -> None:
        write_here()
        write_partial_capture(_capture(run, request, gpu))

    def answer(run: ScriptRun) -> NoReturn:
        write_here()
        capture = _capture(run, request, gpu)
        answer_jobs(partial(_answer, run, capture))

    def fail(error: BaseException) -> NoReturn:
        write_here()
        fail_now(error)

    allocator = AllocatorSettings.parse(_allocator(script))
    fields: dict[str, Any] = {"gpu": gpu, "torch": settings.torch or "", "context": settings.context or 0}
    device = Workload(name=script.name, target=request.target, **fields).device
    compiles = settings.compile or "off"
    run_script(script, device, allocator, exchange_folder(), keep_in_copy, answer, fail, reason_to_end, compiles)


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
    given = (*placeholders.assumptions(), *availability.assumptions(), *trace.assumptions)
    compiled = of_compilation(simulated=request.settings.compile in ("auto", "on"))
    known = (*given, *of_torch(workload, device), *of_context(device), *compiled, *without)
    return Capture(
        workload=workload,
        trace=replace(trace, assumptions=known),
        optimizer=run.optimizer or None,
        assumptions=tuple(dict.fromkeys(known)),
        loads_everything=device.is_cuda and loads_everything(device),
        script=_facts(run),
    )


def _facts(run: ScriptRun) -> ScriptFacts:
    is_offline = run.confinement.is_offline
    return ScriptFacts(
        command=run.script.command,
        num_steps=run.num_steps,
        seconds=run.seconds,
        ending=run.ending.reason,
        goes_on=run.ending.goes_on,
        evaluations=run.num_evaluations,
        remembered=run.num_remembered,
        writes=tuple(WrittenFile(each.path, each.nbytes, each.frame) for each in run.writes),
        connections=tuple(OtherHost(each.host, each.frame) for each in run.connections),
        programs=tuple(StartedProgram(_typed(each.command), is_offline, each.frame) for each in run.programs),
        not_guarded=tuple(run.confinement.not_guarded()),
        error=_error(run),
    )


def _workload(run: ScriptRun, request: Request, gpu: str) -> Workload:
    """The Workload that the script has declared by what it did."""
    script = run.script
    return Workload(
        name=script.name,
        target=request.target,
        path=script.path,
        mode="train" if run.num_steps or any(node.phase is Phase.BACKWARD for node in run.trace.nodes) else "inference",
        batch=run.batch or 1,
        dtype=run.precision or "float32",  # type: ignore[arg-type]  # of its parameters
        optimizer=run.optimizer.lower() or "none",
        gpu=gpu,
        torch=request.settings.torch or "",
        context=request.settings.context or 0,
        allocator=_allocator(script),
        origin="script",
    )


def _allocator(script: Script) -> str:
    """The settings of the allocator; a script may set the variable itself before it first uses the GPU."""
    return script.allocator or next(filter(None, map(os.environ.get, VARIABLES)), "")


def _typed(command: Sequence[str]) -> str:
    """Return the text that a shell would take for `command`."""
    return command[2] if len(command) == 3 and command[1] == "-c" and command[0].endswith("sh") else shlex.join(command)


def _error(run: ScriptRun) -> tuple[str, str, tuple[str, ...]] | None:
    """Message, hint and traceback, where it is less than what was asked for."""
    ending, computes = run.ending, has_parameters(run.trace) or computes_on_gpu(run.trace)
    elsewhere = "" if computes else _hint_of_programs(run)
    if ending.is_failure:
        begun = f"after {format_count(run.num_steps, 'whole step')}" if run.num_steps else "before its first whole step"
        return f"{ending.reason}, {begun}", ending.hint or elsewhere, tuple(ending.traceback)
    if not computes:
        hint = elsewhere or "Give the arguments that make it train there: memlint run train.py --device cuda."
        return f"{ending.reason}, and no model was called on the GPU", hint, ()
    return None


def _hint_of_programs(run: ScriptRun) -> str:
    """Return a hint at the program to run instead, if the script has started another one."""
    for text in (_typed(each.command) for each in run.programs):
        words = text.split()
        own = next((words[i:] for i, word in enumerate(words) if word.endswith(".py")), None)
        own = own or (words[words.index("-m") :] if "-m" in words else [])
        if own and _LAUNCHER.search(words[0]):
            return f"It started `{text}`, of which nothing is simulated: memlint run {' '.join(own)}"
    return ""
