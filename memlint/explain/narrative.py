"""An explained failure as text: the sentence that says why, the memory of the GPU, and what to type next."""

from collections.abc import Callable, Iterator, Mapping

from memlint.base.units import format_count, format_nbytes
from memlint.explain.failure import Failure
from memlint.explain.messages import Amount, Message
from memlint.explain.verdicts import OUTSIDE, Verdict

_OF_LIBRARIES = {
    "cublas": "cuBLAS got no memory for its handle or workspace",
    "cudnn": "cuDNN got no memory for its handle or workspace",
    "nccl": "NCCL got no memory for its buffers",
    "runtime": "CUDA itself got no memory, outside of PyTorch's allocator",
    "allocator": "PyTorch got no memory",
}
"""The part of the program that asked in vain, for messages without numbers."""
_UNSURE = {
    "cublas": "A broken installation of CUDA says the same.",
    "cudnn": "A broken or mismatched installation of cuDNN says the same.",
    "allocator": "PyTorch failed while it asked the driver which processes hold memory, which it does when memory is "
    "short; a driver or MIG device that does not answer says the same.",
    "loader": "Anyone who may end the process can have done so: `dmesg` says if it was the kernel.",
    "killed": "Anyone who may end the process can have done so: `dmesg | grep -i killed` says if it was the kernel.",
}
_MAPPED = "Too many tensors in shared memory at once say the same: vm.max_map_count limits them."
_MONITORS = {"CUDA": "nvidia-smi", "HIP": "rocm-smi --showpids", "XPU": "xpu-smi ps"}
"""The commands that list the processes on a GPU."""
_RECORD = (
    "torch.cuda.memory._record_memory_history(max_entries=100_000)  # before the first step",
    'torch.cuda.memory._dump_snapshot("oom.pickle")  # where it has failed; then: memlint explain oom.pickle',
)


def lines_of(failure: Failure, snapshot: str = "") -> Iterator[str]:
    """Yield the lines of the explanation, for a terminal or a file; `snapshot` is a recording of the failure."""
    cause = failure.cause
    yield cause.text if len(cause.text) <= 300 else f"{cause.text[:297]}..."
    yield f"  {_origin(failure)}"
    rows = list(_rows(failure))
    if rows:
        yield ""
        width = max(len(name) for name, _ in rows)
        yield from (f"  {name:<{width}}  {nbytes:>10}" for name, nbytes in rows)
    yield ""
    yield f"Why: {sentence_of(failure)}"
    yield from (f"  {each}" for each in _remarks(failure))
    yield ""
    yield "Next:"
    for title, commands in _advice(failure, snapshot):
        yield f"  {title}"
        yield from (f"    {command}" for command in commands)


def sentence_of(failure: Failure) -> str:
    """Return the verdict in a sentence."""
    return _SENTENCES[failure.verdict](failure.cause, failure)


def _alive(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    asked = f", and {_text(numbers.requested)} more was asked for" if numbers.requested else ""
    if numbers.allocated is None and numbers.in_use is not None:
        return f"too much was alive: this process held {_text(numbers.in_use)} of {_text(numbers.capacity)}{asked}."
    return f"too much was alive: {_text(numbers.allocated)} of {_text(numbers.capacity)} was in tensors{asked}."


def _fragmentation(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    return (
        f"fragmentation: {_text(numbers.unallocated)} was reserved and not in use, in pieces none of which served a "
        f"request of {_text(numbers.requested)}."
    )


def _one_allocation(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    if numbers.requested is None or numbers.capacity is None:
        return "one request was for more than 2**60 bytes: a size was computed wrong, or read from a damaged file."
    requested = _text(numbers.requested)
    if numbers.requested.nbytes > numbers.capacity.nbytes:
        return f"one request was for {requested}, and the whole GPU has {_text(numbers.capacity)}."
    share = numbers.requested.nbytes / numbers.capacity.nbytes
    return f"one request was for {requested}, {share:.0%} of the GPU, beside {_text(numbers.allocated)} alive."


def _other_processes(cause: Message, failure: Failure) -> str:
    is_known = cause.processes or cause.numbers.in_use is not None
    holders = "other processes hold" if is_known else "something beside this process's PyTorch holds about"
    return f"{holders} {_text(failure.others)} of the GPU's {_text(cause.numbers.capacity)}."


def _refused(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    room = f"{_text(numbers.free)} was free" if numbers.free else "PyTorch holds little of the GPU"
    return f"the driver refused {_text(numbers.requested)} although {room}: the GPU's size is not the reason."


def _full(cause: Message, _failure: Failure) -> str:
    return f"the GPU was {_probably(cause)}full: {_OF_LIBRARIES[cause.wording]}."


def _kernel_shared_memory(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    return (
        f"a kernel wants {_text(numbers.requested)} of the shared memory on the chip, and this GPU has "
        f"{_text(numbers.allowed)} for a block of threads. The GPU's own memory is not short."
    )


def _shared_memory(cause: Message, _failure: Failure) -> str:
    full = f"/dev/shm was {_probably(cause)}full"
    return f"{full}, through which DataLoader workers hand their batches over. The GPU is not short."


def _limit(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    allowed = _text(numbers.allowed)
    if cause.wording == "cache_blocks":
        return (
            "a limit: weights and one forward pass took the engine's share of the GPU (gpu_memory_utilization), and "
            "nothing is left for its cache."
        )
    if cause.backend == "MPS":
        return (
            f"a limit: PyTorch takes up to {allowed} on this Mac; {_text(numbers.allocated)} was in tensors and "
            f"{_text(numbers.elsewhere)} in other allocations of Metal."
        )
    if numbers.requested and numbers.allowed and numbers.requested.low > numbers.allowed.high:
        return f"a limit: no single request above {allowed} is served, and {_text(numbers.requested)} was asked for."
    return (
        f"a limit below the GPU's size: this process may take {allowed} (torch.cuda.set_per_process_memory_fraction)."
    )


def _host(cause: Message, _failure: Failure) -> str:
    numbers = cause.numbers
    if cause.wording == "host_allocator":
        asked = f" for {_text(numbers.requested)}" if numbers.requested else ""
        return f"the host's memory was short: a request{asked} failed. The GPU is not short."
    held = f", when it held {_text(numbers.allocated)}" if numbers.allocated else ""
    killer = (
        "the OOM killer ended a process" if cause.wording == "kernel_killer" else "a process was killed from outside"
    )
    return f"the host's memory was {_probably(cause)}short: {killer}{held}. The GPU is not short."


_SENTENCES: Mapping[Verdict, Callable[[Message, Failure], str]] = {
    "too much alive": _alive,
    "fragmentation": _fragmentation,
    "spike": _one_allocation,
    "another process": _other_processes,
    "a limit": _limit,
    "refused": _refused,
    "full": _full,
    "kernel shared memory": _kernel_shared_memory,
    "shared memory": _shared_memory,
    "host memory": _host,
}


def _probably(cause: Message) -> str:
    return "" if cause.is_sure else "probably "


def _origin(failure: Failure) -> str:
    cause, place = failure.cause, failure.surroundings.place
    parts = [f"line {cause.line} of the text"]
    parts += [f"rank {cause.rank}"] if cause.rank is not None else []
    parts += [f"GPU {cause.device}"] if cause.device is not None else []
    parts += [f"at {place} in {place.function}"] if place else []
    if failure.later:
        ranks = f", {format_count(len(failure.ranks), 'rank')} in all" if len(failure.ranks) > 1 else ""
        parts.append(f"the first of {len(failure.later) + 1} messages{ranks}")
    return "; ".join(parts)


def _rows(failure: Failure) -> Iterator[tuple[str, str]]:
    numbers = failure.cause.numbers
    if failure.cause.failure != "device":
        return
    yield from _row("asked for", numbers.requested)
    yield from _row("GPU", numbers.capacity)
    yield from _row("allowed", numbers.allowed)
    yield from _row("free", numbers.free)
    yield from _row("alive in PyTorch", numbers.allocated)
    yield from _row("  of it in pools of CUDA graphs", numbers.private_pools)
    yield from _row("reserved, not in use", numbers.unallocated)
    if numbers.in_use and numbers.reserved is None:
        yield from _row("this process", numbers.in_use)
    elif numbers.in_use and numbers.reserved:
        yield from _row("CUDA context and libraries", numbers.in_use - numbers.reserved)
    yield from _row("other allocations of this process", numbers.elsewhere)
    if failure.cause.processes:
        yield from ((f"process {each.pid}", format_nbytes(each.held.nbytes)) for each in failure.cause.processes)
    elif numbers.in_use is None and numbers.capacity and numbers.free and numbers.reserved:
        yield from _row("everything else", numbers.capacity - (numbers.free + numbers.reserved))


def _row(name: str, amount: Amount | None) -> Iterator[tuple[str, str]]:
    if amount is not None:
        yield name, format_nbytes(amount.nbytes)


def _remarks(failure: Failure) -> Iterator[str]:
    """Yield what else the numbers tell: fragmentation, memory of the host, and how sure the wording is."""
    cause, numbers = failure.cause, failure.cause.numbers
    if not cause.is_sure:
        yield _MAPPED if cause.failure == "shared" else _UNSURE[cause.wording]
    if numbers.requested and numbers.free and numbers.unallocated and failure.verdict not in ("a limit", "refused"):
        room = _text(numbers.free + numbers.unallocated)
        if failure.fragmentation == "cannot":
            yield f"Fragmentation cannot be the cause: free and unused memory together is {room}."
        elif failure.fragmentation == "can" and failure.verdict != "fragmentation":
            yield f"Fragmentation is the last straw at most: free and unused memory together is {room}."
    if failure.verdict == "too much alive" and numbers.requested and numbers.free:
        others, missing = failure.others, numbers.requested - numbers.free
        if others and others.low >= max(missing.high, OUTSIDE):
            held = format_nbytes(others.low)
            yield f"Besides, other processes or libraries hold at least {held}, more than was missing."
    if numbers.allocated and numbers.capacity and numbers.allocated.low > numbers.capacity.high:
        yield "More is alive than the GPU has: the driver (of Windows, or WSL) moved memory to the host."
    if failure.verdict == "another process" and not cause.processes and numbers.in_use is None:
        yield "That is what the sum lacks: other processes, or libraries of this one that allocate for themselves."


def _advice(failure: Failure, snapshot: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield headings, and the lines to type below each."""
    cause, monitor = failure.cause, _MONITORS.get(failure.cause.backend, "nvidia-smi")
    if cause.wording == "cache_blocks":
        yield (
            "Give the engine more of the GPU, or a shorter context:",
            ("--gpu-memory-utilization 0.95 --max-model-len 8192",),
        )
        return
    match failure.verdict:
        case "kernel shared memory":
            yield (
                "Choose smaller blocks or fewer stages (num_stages) for that kernel; no smaller batch helps.",
                (),
            )
            return
        case "shared memory":
            yield "Give the container more, or start fewer workers (num_workers):", ("docker run --shm-size=8g ...",)
            return
        case "host memory":
            yield "Rules about data loading and the host's memory, from the source alone:", (_source_rules(failure),)
            return
        case "another process":
            yield "See who it is, end them, or take another GPU:", (monitor, *_visible_devices(failure))
        case "refused":
            yield (
                "See what else runs there, and the host's memory and page file, which the driver needs too:",
                (monitor,),
            )
    yield from _setting(failure)
    if failure.verdict not in ("another process", "refused"):
        heading = "The same step without a GPU: which lines hold its memory, and what would lower it:"
        yield heading, (failure.command, _with_plan(failure)) if cause.numbers.capacity else (failure.command,)
        if snapshot:
            yield "What held the memory, and what other settings would have done:", (f"memlint explain {snapshot}",)
        elif cause.backend in ("CUDA", "HIP") and not cause.is_boundless:
            yield "A recording of the next failure:", _RECORD


def _setting(failure: Failure) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the allocator's setting if it can help."""
    cause = failure.cause
    if failure.verdict != "fragmentation" or cause.backend not in ("CUDA", "HIP"):
        return
    variable = f"PYTORCH_{cause.backend}_ALLOC_CONF"
    since = "" if cause.offers_expandable else ", from PyTorch 2.1 on"
    yield f"Segments that grow{since} leave no such pieces:", (f"export {variable}=expandable_segments:True",)


def _with_plan(failure: Failure) -> str:
    """Return the command with the GPU's size as its budget."""
    capacity = failure.cause.numbers.capacity
    size = 0 if capacity is None else capacity.low
    return failure.command.replace("memlint run ", f"memlint run --plan --budget {size / 2**30:.2f}GiB ", 1)


def _source_rules(failure: Failure) -> str:
    return f"memlint check --no-exec {failure.surroundings.script or '.'}"


def _visible_devices(failure: Failure) -> tuple[str, ...]:
    started = failure.surroundings.command.removeprefix("memlint run ")
    return (f"CUDA_VISIBLE_DEVICES=1 python {started}",) if failure.surroundings.is_plain else ()


def _text(amount: Amount | None) -> str:
    return "an unknown amount" if amount is None else format_nbytes(amount.nbytes)
