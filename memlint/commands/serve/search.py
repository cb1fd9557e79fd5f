"""Changes that let an engine start, and the cheapest GPUs that serve so many users."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

from memlint.base.errors import MemlintError
from memlint.memory.devices import Device
from memlint.report.model import Record
from memlint.serving.options import ServeOptions
from memlint.serving.served import Remedy, Served

Plan = Callable[[ServeOptions, Device], Served]
"""Raises MemlintError for what the engine refuses."""

_UTILIZATIONS = (0.85, 0.95, 0.97)
_MOST_RANKS = 16
_FEWER_TOKENS = 2048
"""Batched tokens that every engine starts small GPUs with."""


class Choice(Record):
    """GPUs of one kind, on which as many users are served as were asked for."""

    gpu: str
    gpu_title: str
    gpu_nbytes: int
    num_gpus: int
    tensor_parallel: int
    concurrency: float
    """Requests of the length at once, at least."""
    price: float | None = None
    """Price of all of them, in the unit of the configuration."""


def remedies(served: Served, device: Device, longest: int, plan: Plan) -> tuple[Remedy, ...]:
    """Return the changes of one option each with which the engine starts for sure; `longest` is the length for it."""
    made: list[Remedy] = []
    if longest:
        made.append(Remedy(option=f"--max-model-len {longest}", effect="the longest that fits"))
    for option, changes in _changes(served.options):
        try:
            changed = plan(served.options.model_copy(update=changes), device)
        except MemlintError:  # a number of GPUs that the heads cannot be divided among
            continue
        if changed.start == "starts":
            effect = f"{changed.concurrency.estimate:.1f} requests of {changed.options.max_model_len} tokens at once"
            made.append(Remedy(option=option, effect=effect))
            if "tensor_parallel" in changes:
                break
    return tuple(made)


def _changes(options: ServeOptions) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield single changes, as typed and as fields; numbers of GPUs last, the fewest first."""
    if options.cache_itemsize > 1:
        yield "--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}
    for share in _UTILIZATIONS:
        if share != options.utilization:
            yield f"--gpu-memory-utilization {share}", {"utilization": share}
    if (options.max_num_batched_tokens or 0) > _FEWER_TOKENS:
        fewer = {"max_num_batched_tokens": _FEWER_TOKENS, "max_num_seqs": min(256, options.max_num_seqs or 256)}
        yield f"--max-num-batched-tokens {_FEWER_TOKENS} --max-num-seqs {fewer['max_num_seqs']}", fewer
    ranks = 2 * options.tensor_parallel
    while ranks <= _MOST_RANKS:
        yield f"--tp {ranks}", {"tensor_parallel": ranks}
        ranks *= 2


def choices(
    options: ServeOptions,
    ranks: Sequence[int],
    users: int,
    devices: Sequence[Device],
    prices: Mapping[str, float],
    plan: Plan,
) -> list[Choice]:
    """Return for each number of ranks the cheapest of `devices` on which `users` requests of the length run at once.

    Cheapest is the lowest price where there are any, else the least memory. The cheapest of all comes first.
    """
    able = [each for each in devices if options.runs_on(each)]
    gpus = sorted(able, key=lambda each: (prices.get(each.name, 0.0), each.total_nbytes))
    made = [
        choice
        for number in ranks
        if (choice := _choice(options.model_copy(update={"tensor_parallel": number}), users, gpus, prices, plan))
    ]
    return sorted(made, key=lambda each: (each.price or 0.0, each.num_gpus * each.gpu_nbytes))


def _choice(
    options: ServeOptions, users: int, gpus: Sequence[Device], prices: Mapping[str, float], plan: Plan
) -> Choice | None:
    plans: dict[str, Served] = {}

    def serves(device: Device) -> bool:
        try:
            served = plans[device.name] = plan(options, device)
        except MemlintError:
            return False
        return served.start == "starts" and served.concurrency.low >= users

    if prices:
        device = next((each for each in gpus if serves(each)), None)
    else:
        place = bisect_left(gpus, True, key=serves)  # more memory seldom serves fewer
        device = gpus[place] if place < len(gpus) else None
    if device is None:
        return None
    served = plans[device.name]
    return Choice(
        gpu=device.name,
        gpu_title=device.title,
        gpu_nbytes=device.total_nbytes,
        num_gpus=served.num_gpus,
        tensor_parallel=options.tensor_parallel,
        concurrency=served.concurrency.low,
        price=prices[device.name] * served.num_gpus if device.name in prices else None,
    )
