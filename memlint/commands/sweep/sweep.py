"""`memlint sweep`: batch sizes, dtypes and GPUs as they were typed, to a Table."""

import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence

from memlint.base.errors import UsageError
from memlint.base.units import DTYPES, LARGEST_SIZE, QUANTIZED, dtype_named
from memlint.commands.sweep.gather import Executor, Gathered, asked, gather
from memlint.memory.devices import device_named
from memlint.report.model import Sweep
from memlint.report.tables import Order, Spread, Tables, on_ranks
from memlint.targets.strategy import Strategy
from memlint.worker.jobs import Sweeps, SweepSizes
from memlint.worker.parallel import answers_to
from memlint.worker.protocol import Request
from memlint.worker.session import Session
from memlint.worker.task import Task

_PATIENCE = 3
"""Each table traces several steps: it may take this many times the time limit of one analysis."""
_RANGE = re.compile(r"(\d+):(\d+)")


def sweep(
    targets: Sequence[str],
    order: Order,
    options: dict[str, object],
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
    executor: Executor = answers_to,
) -> Gathered[Tables]:
    """Make the tables of every Workload of `targets`; whatever is stopped gives those that it had so far.

    `options` are those of Settings. Raises MemlintError for arguments and configuration that make no sense.
    """

    def name(sweep: Sweep) -> str:
        return f"{sweep.target}, {sweep.dtype}, {sweep.gpu}{f', {on_ranks(sweep)}' if sweep.world_size > 1 else ''}"

    tasks = functools.partial(_tasks, order)
    return gather(targets, options, tasks, Tables, "sweeps", name, on_wait=on_wait, executor=executor)


def order_of(
    batches: str, dtypes: str | None, gpus: str | None, dimensions: Sequence[str], spread: Spread = ((None, None),)
) -> Order:
    """The Order for options as typed; `dimensions` as `seq=512:8192`. Raises UsageError for what makes no sense."""
    return Order(
        spread=spread,
        batches=sizes_of(batches, "--batch"),
        dtypes=_dtypes_of(dtypes),
        gpus=gpus_of(gpus),
        dimensions=_dimensions_of(dimensions),
    )


def executor_of(name: str, address: str | None) -> Executor:
    """Return the executor `local` or `ray`, with the Ray cluster's `address`. Raises UsageError for one without Ray."""
    if name == "ray":
        from memlint.worker.ray.cluster import answers_on_ray  # noqa: PLC0415 -- others do without

        return functools.partial(answers_on_ray, address=address)
    if address is not None:
        raise UsageError("--address is that of a Ray cluster", "Add --executor ray.")
    return answers_to


def sizes_of(text: str, option: str) -> tuple[int, ...]:
    """`1,8,32` or `1:512`, which is 1, 2, 4 and so on up to 512; ascending, each once. Raises UsageError."""
    sizes: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            sizes.add(_size(part, option))
            continue
        low, high = _size(limits[1], option), _size(limits[2], option)
        if low > high:
            raise UsageError(f"{option} {part} begins above its end", f"Write {high}:{low}.")
        while low < high:
            sizes.add(low)
            low *= 2
        sizes.add(high)
    if not sizes:
        raise UsageError(f"{option} names no size", f"Write {option} 1,8,32 or {option} 1:512.")
    return tuple(sorted(sizes))


def _size(text: str, option: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 12 else 0
    if not 1 <= number <= LARGEST_SIZE:
        raise UsageError(f"{option} {text!r} is no size", f"Write whole numbers from 1 to {LARGEST_SIZE}.")
    return number


def _dimensions_of(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    dimensions: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, sizes = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--dim {text!r} is no dimension with its sizes", "Write --dim seq=512,1024 or seq=512:8192."
            )
        if name == "batch" or name in dimensions:
            raise UsageError(f"the sizes of {name} are given twice", "Give --batch, and each dimension once.")
        dimensions[name] = sizes_of(sizes, f"--dim {name}=")
    return dimensions


def _dtypes_of(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if text.strip() == "all":
        return tuple(dtype for dtype in DTYPES if dtype not in QUANTIZED)
    try:
        return tuple(dict.fromkeys(dtype_named(part) for part in text.split(",")))
    except UsageError as error:
        raise UsageError(f"--dtype: {error.message}", f"{error.hint.removesuffix('.')}, or all.") from None


def gpus_of(text: str | None) -> tuple[str, ...]:
    """Names in the catalogue of GPUs named by comma. Raises UsageError."""
    return tuple(dict.fromkeys(device_named(part.strip()).name for part in text.split(","))) if text else ()


def spread_of(strategies: str | None, ranks: str | None) -> Spread:
    """Strategies by comma and numbers of ranks as typed. Raises UsageError for what makes no sense.

    Without strategies, DDP and FSDP2 are tried; one rank is as the Workload is. A strategy is left out with numbers of
    ranks that it does not divide, unless there are no others.
    """
    if ranks is None:
        if strategies is not None:
            raise UsageError(f"--strategy {strategies} of how many ranks?", "Add --ranks 8, or --ranks 1:512.")
        return ((None, None),)
    names = [name.strip() for name in (strategies or "ddp,fsdp").split(",")]
    sizes = sizes_of(ranks, "--ranks")
    pairs: dict[tuple[str | None, int | None], None] = {}
    refused: UsageError | None = None
    for size, name in itertools.product(sizes, names):
        try:
            pairs["" if size == 1 else _known(name, size), size] = None
        except UsageError as error:
            refused = error
    if refused is not None and set(pairs) <= {("", 1)}:
        raise refused
    return tuple(pairs)


def _known(strategy: str, world_size: int) -> str:
    Strategy.parse(strategy, world_size)
    return strategy


def _tasks(order: Order, request: Request) -> Iterator[Task]:
    """One for each dtype on each GPU, so that they can run side by side."""
    num_tables = math.prod(map(len, order.dimensions.values()))
    limits = request.limits(_PATIENCE * num_tables)
    for gpu, dtype, pair in itertools.product(order.gpus or (None,), order.dtypes or (None,), order.spread):
        update = {"gpus": (gpu,) if gpu else (), "dtypes": (dtype,) if dtype else (), "spread": (pair,)}
        one = order.model_copy(update=update)
        yield Task(request, limits, functools.partial(_ask, order=one))


def _ask(session: Session, order: Order) -> Sweeps:
    return asked(session, SweepSizes(order), Sweeps)
