"""DistributedDataParallel on the one simulated rank: its buckets, the reducer's tables, and wrapping a model again."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state
from memlint.accelerator.backend import empty
from memlint.accelerator.device import entry_of, is_virtual, real, scratch
from memlint.accelerator.private.distributed import PRE_FORWARD, SET_STATIC_GRAPH, pre_forward, set_static_graph
from memlint.accelerator.registration import KEY, implemented
from memlint.base.patching import Patch

init_wrapper: Callable[..., None] = DistributedDataParallel.__init__
"""PyTorch's own `DistributedDataParallel.__init__`."""
_of_wrapper = inspect.signature(init_wrapper)


def _wrap(module: Any, /, *args: Any, **kwargs: Any) -> None:
    """Replace `DistributedDataParallel.__init__`: allocate the reducer's table of used parameters on the GPU."""
    init_wrapper(module, *args, **kwargs)
    arguments = _of_wrapper.bind(module, *args, **kwargs).arguments
    vars(module)["wrapped_with"] = {name: value for name, value in arguments.items() if name not in ("self", "module")}
    if module.find_unused_parameters or module.static_graph:
        num_parameters = sum(parameter.requires_grad for parameter in module.parameters())
        num_tables = 1 if state.current.cuda else 2  # the host has both, the reducer's and that for the exchange
        module._tables_of_used = [scratch(4 * num_parameters) for _ in range(num_tables)]


def wrap_again(module: DistributedDataParallel, **options: Any) -> None:
    """Wrap a used wrapper again, as if it had been made with these options besides its own; its hooks stay."""
    hooks = {name: value for name, value in vars(module).items() if name.endswith("_hooks") or "_hooks_" in name}
    own, training = vars(module)["wrapped_with"], module.training
    for name in ("reducer", "logger", "_tables_of_used"):  # they would otherwise exist beside the new ones
        vars(module).pop(name, None)
    module.__init__(module.module, **{**own, **options})  # type: ignore[misc]
    module.train(training)
    vars(module).update(hooks)


def _beside_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let C++ allocate new buckets in `function` where the parameters are, wherever the last op before it ran."""

    @functools.wraps(function)
    def call(module: Any, /, *args: Any, **kwargs: Any) -> Any:
        first = next(filter(is_virtual, module.parameters()), None)
        if first is not None:
            state.current.of_thread.last_host = entry_of(first).host
        return function(module, *args, **kwargs)

    return call


def _with_table_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let `function` make the reducer's table on the host: to copy it to a GPU, C++ would ask for pinned memory."""

    def make(size: Any, dtype: Any = None, **rest: Any) -> torch.Tensor:
        if dtype is torch.int32:
            return real.empty(size, dtype=dtype, device="cpu")
        return empty(size, dtype, **rest)

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        with implemented({"empty.memory_format": make}, KEY):
            return function(*args, **kwargs)

    return call


def patches() -> list[Patch]:
    """Return the patches: owner, name, replacement."""
    return [
        (DistributedDataParallel, "__init__", functools.wraps(init_wrapper)(_wrap)),
        (DistributedDataParallel, PRE_FORWARD, _beside_parameters(pre_forward)),
        (DistributedDataParallel, SET_STATIC_GRAPH, _with_table_on_host(set_static_graph)),
        (dist, "Reducer", _with_table_on_host(dist.Reducer)),  # type: ignore[attr-defined]
    ]
