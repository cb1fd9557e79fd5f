"""`torch.nn.DataParallel` over several GPUs, of which the first is simulated: it runs its own part of each batch.

PyTorch's own code divides the batch, brings outputs together and adds gradients up. What would lie on another GPU is an
alias of what is on the first, so that it takes no memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import comm

from memlint.accelerator import state
from memlint.accelerator.private import (
    BROADCAST_COALESCED,
    GATHER,
    GET_STREAM,
    SCATTER,
    compiled,
    parallel_functions,
    tree_leaves,
    tree_map_only,
)

_FUNCTION = "torch.nn.parallel.data_parallel"
"""The module whose name a function of its package has taken."""
_init: Any = nn.DataParallel.__init__
_add: Any = comm.reduce_add
"""The originals."""


def patches() -> list[tuple[Any, str, Any]]:
    """Return the stand-ins for what `DataParallel` asks of several GPUs."""
    return [
        (nn.DataParallel, "__init__", _made),
        (nn.DataParallel, "replicate", _replicated),
        (nn.DataParallel, "parallel_apply", _first_applied),
        (nn.parallel, "data_parallel", _applied),
        (sys.modules[_FUNCTION], "data_parallel", _applied),
        (comm, "reduce_add", _added),
        (parallel_functions, GET_STREAM, _copying_stream),
        (compiled, SCATTER, _scattered),
        (compiled, GATHER, _gathered),
        (compiled, BROADCAST_COALESCED, _broadcast),
    ]


def _made(self: Any, module: nn.Module, device_ids: Any = None, *args: Any, **kwargs: Any) -> None:
    """Stand in for the constructor: every GPU is the first."""
    num_gpus = 1 if device_ids is None else len(device_ids)
    if num_gpus > 1:
        state.assume(f"DataParallel divides batches among {num_gpus} GPUs: the figures are those of the first")
        device_ids = [0] * num_gpus
    _init(self, module, device_ids, *args, **kwargs)
    if num_gpus > 1:
        self.module.to(self.src_device_obj)


def _applied(
    module: nn.Module,
    inputs: Any,
    device_ids: Sequence[Any] | None = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """Stand in for the function `data_parallel`, which does for one call what the wrapper does."""
    inputs = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    return nn.DataParallel(module, device_ids, output_device, dim)(*inputs, **module_kwargs or {})


def _replicated(self: nn.DataParallel[Any], module: nn.Module, device_ids: Sequence[Any]) -> list[nn.Module]:
    """Stand in for the copies of the model: the first GPU has the model itself."""
    return [module] * len(device_ids)


def _first_applied(self: nn.DataParallel[Any], replicas: Sequence[nn.Module], inputs: Any, kwargs: Any) -> list[Any]:
    """Run the part of the first GPU; return its output, and for each other GPU one of the size that it would have.

    The weights are outputs of the broadcast, as those of every copy are: their gradients are added up at the end.
    """
    model, devices = replicas[0], self.device_ids[: len(replicas)]
    with_gradients = torch.is_grad_enabled()
    weights = _sent(dict(model.named_parameters()), devices, with_gradients=with_gradients)
    _sent(dict(model.named_buffers()), devices, with_gradients=False)
    output = torch.func.functional_call(model, weights, inputs[0], kwargs[0])
    sizes = [_size((each, named), self.dim) for each, named in zip(inputs, kwargs, strict=True)]
    return [output, *(tree_map_only(torch.Tensor, _other(self.dim, sizes[0], size), output) for size in sizes[1:])]


def _sent(tensors: dict[str, torch.Tensor], devices: Sequence[int], *, with_gradients: bool) -> dict[str, torch.Tensor]:
    """Send tensors to all GPUs; return those of the first."""
    if not tensors:
        return {}
    if not with_gradients:
        comm.broadcast_coalesced(list(tensors.values()), devices)
        return tensors
    sent = parallel_functions.Broadcast.apply(devices[:1], *tensors.values())
    return dict(zip(tensors, sent, strict=True))


def _size(values: object, dim: int) -> int:
    """Return the size of the batch that a GPU gets; 0 if it gets no tensor."""
    return next((each.shape[dim] for each in tree_leaves(values) if _has(each, dim)), 0)


def _has(value: object, dim: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > dim


def _other(dim: int, size: int, other_size: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what makes of an output for a batch of `size` one for a batch of `other_size`, without memory."""

    def of(output: torch.Tensor) -> torch.Tensor:
        is_divided = _has(output, dim) and output.shape[dim] == size
        return output.detach().narrow(dim, 0, other_size) if is_divided else output.detach()

    return of


def _copying_stream(to: torch.device) -> Any:
    """Stand in for what gives a stream for copies from the host: one of its own would change no size."""
    return None if to.type == "cpu" else torch.cuda.current_stream()


def _scattered(
    tensor: torch.Tensor, devices: Sequence[int], sizes: Sequence[int] | None = None, dim: int = 0, *_: object
) -> tuple[torch.Tensor, ...]:
    """Stand in for what copies parts of a tensor to each GPU: those of the other ones are aliases of the first."""
    parts = tensor.chunk(len(devices), dim) if sizes is None else tensor.split(list(sizes), dim)
    first = parts[0].cuda()
    return first, *(first.narrow(dim, 0, part.shape[dim]) for part in parts[1:])


def _gathered(tensors: Sequence[torch.Tensor], dim: int, destination: int) -> torch.Tensor:
    """Stand in for what brings the parts of a batch to one GPU, which copies even one part (`comm.cpp`)."""
    whole = torch.cat(list(tensors), dim)
    return whole.cpu() if destination == -1 else whole


def _broadcast(tensors: Sequence[torch.Tensor], devices: Sequence[int], size: int) -> list[list[torch.Tensor]]:
    """Stand in for what copies tensors to all GPUs in buffers of `size`, which the first GPU makes and lets go of."""
    for group in _groups(tensors, size):
        if len(group) > 1:
            torch.empty(sum(each.numel() for each in group), dtype=group[0].dtype, device="cuda")
    return [list(tensors) for _ in devices]


def _groups(tensors: Sequence[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Yield the tensors by dtype, a group whenever it has `size` bytes (`take_tensors` in `tensor_flatten.cpp`)."""
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault(tensor.dtype, [])
        group.append(tensor)
        if sum(each.nbytes for each in group) >= size:
            yield groups.pop(tensor.dtype)
    yield from groups.values()


def _added(inputs: Sequence[torch.Tensor], destination: Any = None) -> torch.Tensor:
    """Stand in for the sum over GPUs, which NCCL writes into a tensor of its own on the first."""
    return _add(inputs, destination) if inputs[0].is_sparse else torch.empty_like(inputs[0])
