"""`memlint sweep`: batch sizes, dtypes and GPUs as they were typed, to a Table."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from memlint import __version__
from memlint.config import Dtype
from memlint.cuda.devices import device_named
from memlint.errors import TargetError, UsageError
from memlint.report.paths import relative
from memlint.scaling.records import MAX_BATCH, Order, Sweep, Table
from memlint.targets import distinct, resolve
from memlint.worker.answer import Limits
from memlint.worker.parent import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlint.worker.protocol import Request

DTYPES = get_args(Dtype)
_SWEEP = "memlint.scaling.sweep:sweep"
_PATIENCE = 3
"""Each table traces several steps: it may take this many times the time limit of one analysis."""
_RANGE = re.compile(r"(\d+):(\d+)")


class Failure(NamedTuple):
    """A target without tables."""

    target: str
    message: str
    hint: str


class Result(NamedTuple):
    """What there is to say, and what went wrong."""

    table: Table
    failures: tuple[Failure, ...]

    @property
    def status(self) -> int:
        """0: every table is there; 2: something could not be analysed."""
        return 2 if self.failures or any(each.error for each in self.table.sweeps) else 0


def sweep(
    targets: Sequence[str],
    batches: str,
    dtypes: str | None,
    gpus: str | None,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Result:
    """Make the tables of every Workload of `targets`; the texts are as typed after the options.

    `options` are those of Settings. Raises MemlintError for arguments and configuration that make no sense.
    """
    order = Order(batches=batches_of(batches), dtypes=_dtypes_of(dtypes), gpus=_gpus_of(gpus))
    if importlib.util.find_spec("torch") is None:
        raise TargetError("PyTorch is not installed, so no model can be built", "pip install 'torch-memlint[torch]'")
    sweeps: list[Sweep] = []
    failures: list[Failure] = []
    torch = None
    for target in distinct([resolve(argument, options) for argument in targets]):
        for request in target.requests:
            answer = ask(
                _ordered(request, order), _limits(request, order), analyse=_SWEEP, on_wait=_for(request, on_wait)
            )
            if answer.error is not None or answer.result is None:
                error = answer.error or TargetError("there is no answer")
                failures.append(Failure(request.target, error.message, error.hint or ""))
                continue
            torch = answer.result.torch
            told = relative(answer.result.detail["sweeps"], Path.cwd())
            found = [Sweep.model_validate(each) for each in told]
            sweeps += found
            if not found and request.named:
                failures.append(Failure(request.target, "no torch.nn.Module found", "Name the class: model.py::Net."))
    return Result(Table(tool=f"memlint {__version__}", torch=torch, sweeps=tuple(sweeps)), tuple(failures))


def batches_of(text: str) -> tuple[int, ...]:
    """`1,8,32` or `1:512`, which is 1, 2, 4 and so on up to 512; ascending, each once. Raises UsageError."""
    batches: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            batches.add(_batch(part))
            continue
        low, high = _batch(limits[1]), _batch(limits[2])
        if low > high:
            raise UsageError(f"--batch {part} begins above its end", f"Write {high}:{low}.")
        while low < high:
            batches.add(low)
            low *= 2
        batches.add(high)
    if not batches:
        raise UsageError("--batch names no batch size", "Write --batch 1,8,32 or --batch 1:512.")
    return tuple(sorted(batches))


def _batch(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 12 else 0
    if not 1 <= number <= MAX_BATCH:
        raise UsageError(f"--batch {text!r} is no batch size", f"Write whole numbers from 1 to {MAX_BATCH}.")
    return number


def _dtypes_of(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = DTYPES if text.strip() == "all" else tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in DTYPES:
            raise UsageError(f"--dtype {name!r} is unknown", f"There are {', '.join(DTYPES)}, and all.")
    return names


def _gpus_of(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(device_named(part.strip()).name for part in text.split(","))) if text else ()


def _ordered(request: Request, order: Order) -> Request:
    return request.model_copy(update={"detail": order.model_dump(mode="json")})


def _limits(request: Request, order: Order) -> Limits:
    tables = max(1, len(order.dtypes)) * max(1, len(order.gpus))
    return Limits(seconds=request.settings.timeout * _PATIENCE * tables, nbytes=request.settings.memory_limit)


def _for(request: Request, on_wait: Callable[[str, float], None]) -> Callable[[float], None]:
    return lambda seconds: on_wait(request.target, seconds)
