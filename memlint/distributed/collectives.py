"""Collectives as kernels of the virtual device: they move nothing, allocate as NCCL does, and are Nodes of the Trace.

PyTorch looks up every collective in its dispatcher, whether it is called from Python, or from C++ such as the reducer
of DistributedDataParallel. All ranks are assumed to be alike: known small values are the same on the other ranks as on
this one.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
from torch._ops import OpOverload
from torch.futures import Future

from memlint.accelerator import values
from memlint.accelerator.device import contiguous, entry_of, is_virtual, like
from memlint.accelerator.kernel import kernel_of, tensors_in
from memlint.accelerator.registration import KEY, implement_all, implemented
from memlint.cuda.simulated import simulated
from memlint.distributed.rank import Rank
from memlint.memory.records import Collective

Tensor = torch.Tensor

_NAMES = """
    allreduce_ allreduce_coalesced_ broadcast_ reduce_ allgather_ _allgather_base_ allgather_coalesced_
    allgather_into_tensor_coalesced_ reduce_scatter_ _reduce_scatter_base_ reduce_scatter_tensor_coalesced_ gather_
    scatter_ alltoall_ alltoall_base_ send recv_ recv_any_source_ barrier
"""
_KINDS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "_allgather": "all_gather",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter": "reduce_scatter", "alltoall": "all_to_all",
}  # fmt: skip
"""Kinds of collectives by the beginning of the op's name; others are called as their op."""
_SUM = int(dist.ReduceOp.RedOpType.SUM)  # type: ignore[attr-defined]


def kind_of(packet: str) -> str:
    """Return the kind, such as `all_gather` for `_allgather_base_`."""
    for beginning in sorted(_KINDS, key=len, reverse=True):
        if packet.startswith(beginning):
            return _KINDS[beginning]
    return packet.strip("_").removesuffix("_any_source")


def _kernel(op: OpOverload) -> Callable[..., Any]:
    """Return the function that runs a collective."""
    kernel = kernel_of(op)
    packet = kernel.packet
    names = [argument.name for argument in op._schema.arguments]
    group_at = names.index("process_group")
    reduce_at = names.index("reduce_op") if "reduce_op" in names else None
    returns_outputs = len(op._schema.returns) == 2

    def call(*args: Any) -> Any:
        now = simulated()
        for observer in now.observers:
            observer.started(kernel)
        group = dist.ProcessGroup.unbox(args[group_at])
        outputs, inputs = _operands(packet, args, group_at)
        stream = now.ledger.stream
        if any(map(is_virtual, outputs)):
            _take_buffers(packet, outputs, inputs, group)
        first_host = (entry_of(each).host for each in outputs if is_virtual(each))
        now.of_thread.last_host = next(first_host, now.of_thread.last_host)
        is_sum = reduce_at is not None and args[reduce_at].op() == _SUM
        _give_values(packet, outputs, inputs, group, group.size() if is_sum else 1)
        if any(map(is_virtual, (*outputs, *inputs))):
            now.collectives.append(_described(packet, group, outputs, inputs, stream))
        for observer in now.observers:
            observer.finished(inputs, outputs)
        # gloo's SendWork keeps the tensor until it is deleted; NCCL releases it in `wait`
        work = _finished(inputs if packet == "send" and not now.cuda else outputs)
        return (args[0], work) if returns_outputs else work

    return call


def _operands(packet: str, args: Sequence[Any], group_at: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that a collective writes, and those it reads."""
    first = tensors_in(args[0])
    if packet in ("send", "barrier"):
        return [], first
    if packet.startswith("recv"):
        return first, []
    return first, tensors_in(args[1]) if group_at > 1 else first


def _take_buffers(packet: str, outputs: list[Tensor], inputs: list[Tensor], group: Any) -> None:
    """Allocate the buffers of the backend for the time of the call.

    Both flatten lists of equal tensors (`newLikeFlat`); gloo takes the parts of one large tensor for such a list, and
    reduces a copy of what it scatters: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp and ProcessGroupGloo.cpp.
    """
    is_nccl = simulated().cuda
    gathers, scatters = kind_of(packet) == "all_gather", kind_of(packet) == "reduce_scatter"
    if is_nccl and packet not in ("allgather_", "reduce_scatter_"):
        return
    for tensor in inputs if gathers else outputs if is_nccl and scatters else ():
        contiguous((group.size(), *tensor.shape), tensor.dtype)
    copies = [like(tensor) for tensor in inputs if scatters and not is_nccl]
    del copies


def _described(packet: str, group: Any, outputs: list[Tensor], inputs: list[Tensor], stream: int) -> Collective:
    ranks = dist.get_process_group_ranks(group)
    position = group.rank()
    backend = str(dist.get_backend(group))
    return Collective(
        node=simulated().ledger.node,
        kind=kind_of(packet),
        group=group.group_name,
        size=len(ranks),
        within_node=Rank.current().shares_node(ranks),
        nbytes_in=sum(tensor.nbytes for tensor in inputs),
        nbytes_out=sum(tensor.nbytes for tensor in outputs),
        stream=stream,
        backend=backend,
        neighbours=(ranks[position - 1], ranks[(position + 1) % len(ranks)]),
        shares=backend == "nccl" and simulated().world.shares_splits,
    )


def _finished(outputs: list[Tensor]) -> Any:
    """Return a finished Work; its future holds the written tensors."""
    future: Future[list[Tensor]] = Future()
    future.set_result(outputs)
    return _create_work_from_future(future).boxed()


# --- values


def _give_values(packet: str, outputs: list[Tensor], inputs: list[Tensor], group: Any, factor: int) -> None:
    """Give each output its value where all ranks have this rank's values, times `factor`."""
    if packet.startswith("recv"):
        for output in filter(values.is_known_kind, outputs):
            values.forget(output)
        return
    if packet in ("send", "barrier", "broadcast_"):
        return
    uniform = {values.uniform_value(each) for each in inputs}
    if len(uniform) == 1 and None not in uniform:
        for output in outputs:
            _fill(output, uniform.copy().pop() * factor)
        return
    for output, source in zip(outputs, _sources(packet, outputs, inputs, group), strict=True):
        _give(output, source, factor)


def _sources(packet: str, outputs: list[Tensor], inputs: list[Tensor], group: Any) -> list[Tensor | None]:
    """Return for each output a known tensor with as many values, or None."""
    known = [values.content(each) if each.nbytes <= values.MAX_SHADOW else None for each in inputs]
    size, rank = group.size(), group.rank()
    if packet in ("allgather_", "allgather_coalesced_", "gather_"):  # each input has an output for every rank
        return [known[number // size] for number in range(len(outputs))]
    if packet in ("reduce_scatter_", "scatter_"):
        return [known[number * size + rank] if known else None for number in range(len(outputs))]
    if packet == "alltoall_":
        return [known[rank]] * len(outputs)
    if kind_of(packet) == "all_gather":
        return [None if each is None else each.reshape(1, -1).expand(size, -1) for each in known]
    if kind_of(packet) == "reduce_scatter":
        return [None if each is None else each.reshape(size, -1)[rank] for each in known]
    return list(known)


def _fill(output: Tensor, value: Any) -> None:
    if values.is_known_kind(output):
        values.make_uniform(output, value)
    else:
        output.detach().fill_(value)


def _give(output: Tensor, source: Tensor | None, factor: int) -> None:
    if source is None or source.numel() != output.numel():
        if values.is_known_kind(output):
            values.forget(output)
        return
    value = (source.reshape(output.shape) * factor).to(output.dtype)
    if values.is_known_kind(output):
        values.remember(output, value)
    else:
        output.detach().copy_(value)


def of_host_as_well() -> AbstractContextManager[None]:
    """Run collectives of real host tensors in the same way inside the block."""
    return implemented(_KERNELS, "CPU", "c10d")


_KERNELS = {name: _kernel(getattr(torch.ops.c10d, name).default) for name in _NAMES.split()}
_library = torch.library.Library("c10d", "IMPL")
implement_all(_KERNELS, KEY, _library)
