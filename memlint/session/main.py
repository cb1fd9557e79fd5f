"""The child's beginning: within its limits it loads what its request names, and answers jobs about it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from memlint.base.errors import WorkerError
from memlint.base.garbage import collect_seldom, long_lived
from memlint.base.quick_dataclasses import quick_dataclasses
from memlint.worker.child import answer_jobs, own_imports, run

if TYPE_CHECKING:
    from memlint.report.model import Sweep
    from memlint.session.target import Target
    from memlint.targets.workload import Workload
    from memlint.validate.jobs import DescribeMachine, MeasureSubject
    from memlint.worker.dependencies import Watch
    from memlint.worker.jobs import Job
    from memlint.worker.protocol import Request


def main(exchange: str, parent: str, memory_limit: str, bytecode: str) -> NoReturn:
    """Serve the request in the directory `exchange`.

    `parent` is the process to die with, `memory_limit` in bytes; with `bytecode` the compiled modules of memlint and
    PyTorch are kept, as Python does, but never those of user code.
    """
    begin(Path(exchange), int(parent), int(memory_limit), bytecode=bool(bytecode))


def preload() -> None:
    """Import what the jobs need, for a process whose copies then find it there."""
    with long_lived():
        _import_pytorch()
        with quick_dataclasses():
            importlib.import_module("memlint.session.target")


def _import_pytorch() -> None:
    """Raise WorkerError where it is installed and cannot be imported, as where its packages do not belong together."""
    try:
        importlib.import_module("torch")
    except Exception as error:  # of its libraries, which may be anything
        hint = "Type python -c 'import torch': if that fails, too, install PyTorch anew."
        raise WorkerError(f"PyTorch cannot be imported: {type(error).__name__}: {error}", hint) from error


def begin(
    directory: Path,
    parent: int,
    nbytes: int,
    watch: Watch | None = None,
    *,
    bytecode: bool,
    ready: Callable[[], None] = lambda: None,
) -> NoReturn:
    """Run as `main` does; in a copy of another process, with its `watch`, call `ready` within the limits."""
    run(directory, parent, nbytes, _serve, watch, bytecode=bytecode, ready=ready, preload=preload)


def _serve(request: Request) -> NoReturn:
    with own_imports():
        _import_pytorch()
    if request.script is not None:
        with own_imports():
            from memlint.session.script import run_request  # noqa: PLC0415  (limits first)

        run_request(request)
    from memlint.validate.jobs import DescribeMachine, MeasureSubject  # noqa: PLC0415

    @cache
    def target() -> Target:
        with own_imports():
            from memlint.session.target import Target  # noqa: PLC0415

        collect_seldom()  # between traces, which run without the collector, a tenth of a run
        return Target(request)

    def answer(job: Job) -> Any:
        if isinstance(job, DescribeMachine | MeasureSubject):  # where a step runs for real, nothing is virtual
            return _answer_for_real(request, job)
        return _answer(target(), job)

    answer_jobs(answer)


def _answer_for_real(request: Request, job: DescribeMachine | MeasureSubject) -> Any:
    from memlint.session import measuring  # noqa: PLC0415
    from memlint.session.process_setup import ProcessSetup  # noqa: PLC0415
    from memlint.validate.jobs import DescribeMachine  # noqa: PLC0415

    if isinstance(job, DescribeMachine):
        return measuring.describe(job.device)
    ProcessSetup.of_real_step(request).arm()
    return measuring.measure(Path(request.root), job.order)


def _answer(target: Target, job: Job) -> Any:
    """Do one job."""
    from memlint.worker import jobs  # noqa: PLC0415

    match job:
        case jobs.FindWorkloads():
            return target.find()
        case jobs.TraceWorkload(workload):
            return target.trace(workload)
        case jobs.Begin(jobs.EstimateAround(workload)):
            return _begin_tables(target, workload)
        case jobs.Retrace(workload, changes):
            return target.retrace(workload, changes)
        case jobs.FindHolders(workload, changes, event, buffers):
            return target.holders(workload, changes, event, buffers)
        case jobs.RunLonger(workload):
            return target.run_longer(workload)
        case jobs.Declare(workload):
            return target.declare(workload)
        case jobs.DeclareByHand(name, kind, message, hint):
            return target.declare_by_hand(name, kind, message, hint)
    return _answer_rarer(target, job)


def _begin_tables(target: Target, number: int) -> None:
    """Begin with the tables of another dtype once all sizes are known, if a copy of this process can make them."""

    def begin(completed: Workload) -> None:
        from memlint.generation.traces import is_long  # noqa: PLC0415
        from memlint.session.ahead import Ahead, may_work_ahead  # noqa: PLC0415

        def tables() -> tuple[str, list[Sweep]]:
            from memlint.session.tables import ahead  # noqa: PLC0415 -- the trace of this process does without

            return ahead(completed, target.root)

        is_in_table = completed.device.is_cuda and not is_long(completed)
        if is_in_table and completed.compile != "on" and may_work_ahead():
            with suppress(OSError):
                target.begun[number] = Ahead(tables)

    target.begins[number] = begin


def _answer_rarer(target: Target, job: Job) -> Any:
    """Do a job for which more is imported."""
    from memlint.session import fits, tables  # noqa: PLC0415
    from memlint.worker import jobs  # noqa: PLC0415

    match job:
        case jobs.DescribeServed() | jobs.RunProfile():
            from memlint.session.serving.answers import answer  # noqa: PLC0415

            return answer(target, job)
        case jobs.EstimateAround(workload):
            return tables.around(target, workload)
        case jobs.SweepSizes(order):
            return tables.sweep(target, order)
        case jobs.FitWorkloads(order):
            return fits.fit(target, order)
    return _answer_validator(target, job)


def _answer_validator(target: Target, job: Job) -> Any:
    from memlint.session import predicting  # noqa: PLC0415
    from memlint.validate import jobs  # noqa: PLC0415

    match job:
        case jobs.FindSubjects(is_on_host):
            return predicting.find(target, is_on_host=is_on_host)
        case jobs.PredictSubjects(order):
            return predicting.predict(target, order)
    raise AssertionError(f"no child does {job!r}")
