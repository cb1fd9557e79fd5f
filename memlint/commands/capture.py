"""`memlint capture`: one Workload, as a file."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec

from memlint.base.errors import TargetError, UsageError
from memlint.base.version import install_command
from memlint.capture.capture import Capture
from memlint.capture.codec import workload_of
from memlint.commands.asking import with_scripts_asked
from memlint.commands.targets import distinct, resolve
from memlint.worker.capture_store import Store
from memlint.worker.jobs import FindWorkloads, Found, TraceWorkload
from memlint.worker.protocol import Result
from memlint.worker.session import Session
from memlint.worker.supervise import carry_out
from memlint.worker.task import Task


def capture(
    target: str,
    settings: Mapping[str, object],
    workload: str | None = None,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
    *,
    cache: bool = True,
) -> Capture:
    """Capture the only Workload of `target`, or the one of that name; `settings` are those of the command line.

    Raises MemlintError: UsageError where there are several, else what `memlint check` says of it.
    """
    if find_spec("torch") is None:
        raise TargetError(
            "PyTorch is not installed, so no model can be built", f"Install it: {install_command('torch')}"
        )
    (targets,) = distinct([resolve(target, settings)])
    if len(targets.requests) != 1:
        raise UsageError(f"{target} has {len(targets.requests)} targets", "Name one file, class or function.")
    (request,) = with_scripts_asked(targets.requests, on_wait, cache=cache).requests
    captures: list[Capture] = []

    def ask(session: Session) -> Result:
        captures.append(
            session.ask(TraceWorkload(0 if session.is_script else _position(session, workload))).capture_of_job
        )
        return Result()

    store = Store(request) if cache and request.script is None else None
    answer = carry_out(
        Task(request, request.limits(), ask), store=store, on_wait=lambda seconds: on_wait(request.target, seconds)
    )
    if answer.error is not None:
        raise answer.error
    return captures[0]


def _position(session: Session, name: str | None) -> int:
    """Which of the Workloads is meant. Raises UsageError."""
    found = session.ask(FindWorkloads()).as_(Found)
    workloads = [workload_of(each) for each in found.workloads]
    fitting = [number for number, each in enumerate(workloads) if name in (None, each.name, each.qualname)]
    if len(fitting) == 1:
        return fitting[0]
    target = session.request.target
    names = ", ".join(each.name for each in workloads)
    if not workloads:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in found.left_out)
        raise TargetError(f"{target} has no workload{f': {reasons}' * bool(reasons)}", "See memlint check.")
    raise UsageError(
        f"{target} has {len(workloads)} workloads, and a capture is of one", f"Give --workload, one of {names}."
    )
