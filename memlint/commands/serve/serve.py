"""`memlint serve`: from a model, an engine and its options to what the engine will log."""

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memlint.base.errors import MemlintError, TargetError, UsageError, WorkerError
from memlint.base.version import __version__, install_command
from memlint.commands.serve.search import Choice, choices, remedies
from memlint.commands.targets import resolve
from memlint.memory.devices import CATALOGUE, Device, device_named
from memlint.report.model import Record
from memlint.report.tables import Document
from memlint.serving.engines import engine_named
from memlint.serving.model import Profile, ProfileOrder, ServedModel
from memlint.serving.options import FLOATS, ServeOptions, version_of
from memlint.serving.served import Served
from memlint.targets.workload import DEFAULT_GPU
from memlint.worker.jobs import DescribeServed, Job, RunProfile
from memlint.worker.parallel import answers_to
from memlint.worker.session import JobError, Session
from memlint.worker.task import Task

_Answer = TypeVar("_Answer", bound=Record)
RANKS = (1, 2, 4, 8)
"""Numbers of GPUs of the table, where none were asked for."""


class Refused(Record):
    """A number of ranks with which the engine refuses to start at once."""

    tensor_parallel: int
    reason: str


class Serving(Document):
    """All that a run of `memlint serve` says."""

    model: str
    served: tuple[Served, ...] = ()
    """One for each number of ranks."""
    refused: tuple[Refused, ...] = ()
    users: int | None = None
    choices: tuple[Choice, ...] = ()
    """With `users`: GPUs that serve them, the cheapest first."""

    @property
    def status(self) -> int:
        """Exit status: 0 if it starts with some number of GPUs, or so many users are served; else 1."""
        return 0 if self.choices or any(each.start == "starts" for each in self.served) else 1


@dataclass(frozen=True, slots=True)
class Order:
    """The settings of one plan, beside the options that all plans have in common."""

    options: ServeOptions
    dtype: str | None
    """None for that of the model's config."""
    gpu: str | None
    ranks: tuple[int, ...]
    users: int | None


def order_of(
    engine: str, version: str | None, ranks: str | None, gpu: str | None, users: int | None, **others: object
) -> Order:
    """Return the Order of options as typed. Raises UsageError."""
    known = engine_named(engine)
    number = known.newest if version is None else version_of(version)
    dtype = others.pop("dtype", None)
    if dtype is not None and dtype not in FLOATS:
        raise UsageError(f"--dtype {dtype} is none that engines serve in", f"Choose one of: {', '.join(FLOATS)}.")
    options = ServeOptions.model_validate({"engine": engine, "version": number, **others})
    _ = options.cache_itemsize  # raises for a dtype that is not known
    if gpu is not None:
        device_named(gpu)
    return Order(options, None if dtype is None else str(dtype), gpu, _numbers(ranks) if ranks else RANKS, users)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--tp {text!r} is no number of GPUs", "Write --tp 1, or --tp 1,2,4,8 for a table.")
    return tuple(sorted({int(part) for part in parts}))


def serve(
    target: str,
    order: Order,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Serving:
    """Plan the model of `target`; `options` are those of Settings.

    Raises MemlintError for what makes no sense, and what stands in the way.
    """
    if importlib.util.find_spec("torch") is None:
        raise TargetError("PyTorch is not installed, so no model can be built", install_command("torch"))
    resolved = resolve(target, options)
    if len(resolved.requests) != 1:
        raise TargetError(f"{target} is not one model", "Give transformers::LlamaConfig or the path of a config.json.")
    request = resolved.requests[0]
    ask = functools.partial(_ask, order=order, prices=resolved.settings.gpu_prices)
    task = Task(request, request.limits(), ask)
    for _number, answer in answers_to([task], on_wait=lambda _task, seconds: on_wait(target, seconds)):
        if answer.error is not None:
            raise WorkerError(answer.error.message, answer.error.hint or "")
        assert isinstance(answer.result, Serving)
        return answer.result
    raise AssertionError("a task is answered")


def _ask(session: Session, order: Order, prices: Mapping[str, float]) -> Serving:
    """Plan with what a child says of the model."""
    model = _asked(session, DescribeServed(0), ServedModel)
    engine = engine_named(order.options.engine)

    @functools.cache
    def profile(text: str) -> Profile:
        return _asked(session, RunProfile(0, ProfileOrder.model_validate_json(text)), Profile)

    def plan(options: ServeOptions, device: Device) -> Served:
        return engine.plan(model, options, device, lambda each: profile(each.model_dump_json()))

    options = order.options.model_copy(update={"dtype": order.dtype or model.dtype})
    start = Serving(tool=f"memlint {__version__}", torch=model.torch, model=model.name, users=order.users)
    if order.users is not None:
        devices = [CATALOGUE[name] for name in prices if name in CATALOGUE] or [*CATALOGUE.values()]
        devices = [device_named(order.gpu)] if order.gpu else devices
        found = choices(options, order.ranks, order.users, devices, prices, plan)
        return start.model_copy(update={"choices": tuple(found)})
    device = device_named(order.gpu or DEFAULT_GPU)
    served, errors = _plans(options, order.ranks, device, plan)
    if not served:
        raise next(iter(errors.values()))
    refused = [Refused(tensor_parallel=number, reason=error.message) for number, error in errors.items()]
    done = [
        each.with_remedies(remedies(each, device, engine.longest(each, model), plan))
        if each.start != "starts"
        else each
        for each in served
    ]
    return start.model_copy(update={"served": tuple(done), "refused": tuple(refused)})


def _asked(session: Session, job: Job, model: type[_Answer]) -> _Answer:
    """Give the answer to a job. Raises the MemlintError that it ended in."""
    try:
        return session.ask(job).as_(model)
    except JobError as error:
        raise error.error from error


def _plans(
    options: ServeOptions, ranks: Sequence[int], device: Device, plan: Callable[[ServeOptions, Device], Served]
) -> tuple[list[Served], dict[int, MemlintError]]:
    """Return the plans, and by number of ranks the errors of those that the engine refuses."""
    served: list[Served] = []
    errors: dict[int, MemlintError] = {}
    for number in ranks:
        try:
            served.append(plan(options.model_copy(update={"tensor_parallel": number}), device))
        except MemlintError as error:  # what the model's sizes or the GPU do not allow
            errors[number] = error
    return served, errors
