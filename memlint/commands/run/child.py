"""What the child process of `memlint run` does: it runs the script, and answers from wherever that is over."""

import os
import re
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from memlint.accelerator import lazy_imports
from memlint.base.units import format_count
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.child import described_with_findings, details
from memlint.commands.analyse.description import described
from memlint.libraries import installation
from memlint.lint.registry import project_rules
from memlint.memory.allocator.settings import VARIABLES, AllocatorSettings
from memlint.memory.records import Phase, computes_on_gpu, has_parameters
from memlint.memory.timeline import live
from memlint.report import model as report
from memlint.report.from_trace import place_of
from memlint.script.processes import set_variables
from memlint.script.run import ScriptRun, run_script
from memlint.targets.script import Script
from memlint.targets.workload import DEFAULT_GPU, Workload
from memlint.worker.child import (
    answer_now,
    exchange_folder,
    fail_now,
    reason_to_end,
    rules_begin,
    write_here,
    write_partial,
)
from memlint.worker.protocol import Request, Result
from memlint.workloads import placeholders, torchvision_schemas

_UNGUARDED_RULES = "rules in rule-paths: nothing is kept from them, as it is from the script"
_LAUNCHER = re.compile(r"(?:^|/)(?:python[\d.]*|torchrun|accelerate|deepspeed|horovodrun|mpirun|mpiexec|srun)$")
"""Programs that start a training script."""
_AFTER_TRAINING = (Phase.EVALUATION, Phase.SAVING)


def analyse(request: Request) -> NoReturn:
    """Run the script of `request`, and answer with the Workload that it is."""
    script = request.script
    assert script is not None
    torchvision_schemas.install()
    lazy_imports.run_eagerly()
    installation.install(request.settings.op)
    set_variables(script)
    settings = request.settings
    if settings.stub:
        placeholders.expect_in_script(settings.stub)
    rules = project_rules(settings, Path(request.root)).chosen(settings)
    gpu = settings.gpu or script.gpu or DEFAULT_GPU

    def analysed(run: ScriptRun, *, thorough: bool) -> Analysis:
        workload = _workload(run, request, gpu)
        budget = settings.budget_of(workload.name)
        return Analysis.of_script(run, workload, budget.max if budget else None, thorough=thorough)

    def workload_of(run: ScriptRun, analysis: Analysis, described: report.Workload) -> report.Workload:
        fields: dict[str, object] = {"optimizer": run.optimizer or None, "script": _record(run, analysis)}
        fields["error"] = _error(run)
        if settings.rule_paths:
            fields["assumptions"] = [*described.assumptions, report.Assumption(text=_UNGUARDED_RULES, found=True)]
        if not run.trace.events:
            fields |= {"estimate": None, "verdict": None, "budget": None}
        return described.model_copy(update=fields)

    def known(run: ScriptRun, analysis: Analysis) -> report.Workload:
        """Give what there is without rules."""
        return workload_of(run, analysis, described(analysis, settings.budget_of(analysis.workload.name)))

    def keep_in_copy(run: ScriptRun) -> None:
        write_here()
        write_partial(Result(torch=torch.__version__, workloads=[known(run, analysed(run, thorough=False))]))

    def answer(run: ScriptRun) -> NoReturn:
        write_here()
        analysis = analysed(run, thorough=request.thorough)
        workload = known(run, analysis).model_copy(update=details(analysis, request))
        so_far = partial(_keep, workload)
        so_far([])
        rules_begin()
        parts = described_with_findings(analysis, rules, request, so_far=so_far)
        answer_now(
            Result(
                torch=torch.__version__,
                workloads=[workload_of(run, analysis, parts.workload)],
                findings=parts.findings,
                traced_lines={path: sorted(lines) for path, lines in parts.lines.items()},
            )
        )

    def fail(error: BaseException) -> NoReturn:
        write_here()
        fail_now(error)

    allocator = AllocatorSettings.parse(_allocator(script))
    fields: dict[str, Any] = {"gpu": gpu, "torch": settings.torch or "", "context": settings.context or 0}
    device = Workload(name=script.name, target=request.target, **fields).device
    run_script(script, device, allocator, exchange_folder(), keep_in_copy, answer, fail, reason_to_end)


def _keep(workload: report.Workload, findings: list[report.RunFinding]) -> None:
    write_partial(Result(torch=torch.__version__, workloads=[workload], findings=findings))


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


def _record(run: ScriptRun, analysis: Analysis) -> report.Script:
    """What the Report says of the run itself."""
    seen = {node.phase for node in run.trace.nodes}
    by_step: dict[int, int] = {}
    nodes = run.trace.nodes
    for index, nbytes in zip(analysis.timeline.event_nodes, live(analysis.timeline), strict=True):
        step = nodes[index].step if index >= 0 else -1
        by_step[step] = max(by_step.get(step, 0), nbytes)
    return report.Script(
        command=run.script.command,
        steps=run.num_steps,
        step_peaks=[by_step[step] for step in sorted(by_step) if step >= 0],
        step_seconds=[round(seconds, 3) for seconds in run.seconds],
        ending=run.ending.reason,
        not_reached=[phase.value for phase in _AFTER_TRAINING if run.ending.goes_on and phase not in seen],
        evaluations=run.num_evaluations,
        remembered=run.num_remembered,
        writes=[report.Write(file=each.path, nbytes=each.nbytes, **place_of(each.frame)) for each in run.writes],
        connections=[report.Connection(host=each.host, **place_of(each.frame)) for each in run.connections],
        programs=[
            report.Program(command=_typed(each.command), is_offline=run.confinement.is_offline, **place_of(each.frame))
            for each in run.programs
        ],
        not_guarded=list(run.confinement.not_guarded()),
    )


def _typed(command: Sequence[str]) -> str:
    """What a shell would take for `command`."""
    return command[2] if len(command) == 3 and command[1] == "-c" and command[0].endswith("sh") else shlex.join(command)


def _error(run: ScriptRun) -> report.Error | None:
    """Why it is less than what was asked for."""
    ending, computes = run.ending, has_parameters(run.trace) or computes_on_gpu(run.trace)
    elsewhere = "" if computes else _hint_of_programs(run)
    if ending.is_failure:
        begun = f"after {format_count(run.num_steps, 'whole step')}" if run.num_steps else "before its first whole step"
        message, lines = f"{ending.reason}, {begun}", list(ending.traceback)
        return report.Error(kind="workload", message=message, hint=ending.hint or elsewhere, traceback=lines)
    if not computes:
        return report.Error(
            kind="workload",
            message=f"{ending.reason}, and no model was called on the GPU",
            hint=elsewhere or "Give the arguments that make it train there: memlint run train.py --device cuda.",
        )
    return None


def _hint_of_programs(run: ScriptRun) -> str:
    """What to run instead, where the script has started another one."""
    for text in (_typed(each.command) for each in run.programs):
        words = text.split()
        own = next((words[i:] for i, word in enumerate(words) if word.endswith(".py")), None)
        own = own or (words[words.index("-m") :] if "-m" in words else [])
        if own and _LAUNCHER.search(words[0]):
            return f"It started `{text}`, of which nothing is simulated: memlint run {' '.join(own)}"
    return ""
