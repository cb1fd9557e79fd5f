"""DeepSpeed runs its own Python; its compiled ops, which it would build where it runs, take nothing.

Held against 0.19.8, whose wheel has the sources, under deepspeed/ops/csrc: adam/multi_tensor_adam.cu,
lion/multi_tensor_lion.cu, adam/cpu_adam_impl.cpp, lion/cpu_lion_impl.cpp, adagrad/cpu_adagrad.cpp,
cpu/comm/shm_interface.cpp, which speaks between processes through the host's memory, utils.
"""

from typing import Any

import torch

from memlint.accelerator.private import flatten_tensors, unflatten_tensors
from memlint.base.after_import import after_import
from memlint.libraries.library import Library, assume_once, launch

_library = Library("deepspeed", distribution="deepspeed", version="0.19.8")


def install() -> None:
    """Let DeepSpeed, where it is imported from now on, build nothing."""
    after_import("deepspeed.ops.op_builder.builder", _load_nothing)


def _load_nothing(module: Any) -> None:
    module.OpBuilder.load = lambda builder, verbose=True: _Extension(builder.name)


def _apply(_chunk: int, overflow: torch.Tensor, tensors: list[list[torch.Tensor]], *_: Any) -> None:
    """A kernel on lists of gradients, parameters and states."""
    assume_once("kernels of DeepSpeed's optimizers are not run: they take nothing beside their states")
    grads, *written = tensors
    launch([overflow, *grads, *(t for each in written for t in each)], [t for each in written for t in each])


def _update(*operands: Any) -> None:
    """An optimizer on the host: parameter, gradient and states are among what it is called with."""
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    launch(tensors, [tensors[0], *tensors[2:]])


def _nothing(*_: Any) -> int:
    """Make or forget what is on the host and keeps no tensors of the program's."""
    return 0


_FUNCTIONS: dict[str, dict[str, Any]] = {
    "fused_adam": {"multi_tensor_adam": _apply},
    "fused_lion": {"multi_tensor_lion": _apply},
    "cpu_adam": {"create_adam": _nothing, "destroy_adam": _nothing, "adam_update": _update, "adam_rollback": _update},
    "cpu_lion": {"create_lion": _nothing, "destroy_lion": _nothing, "lion_update": _update},
    "cpu_adagrad": {"create_adagrad": _nothing, "destroy_adagrad": _nothing, "adagrad_update": _update},
    "deepspeed_shm_comm": {"initialize": _nothing, "vector_kernel_level": _nothing},
    "utils": {"flatten": flatten_tensors, "unflatten": unflatten_tensors},
}


class _Extension:
    """A compiled op of DeepSpeed: what is not known of it is an error where it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        function = _FUNCTIONS.get(self._name, {}).get(name)
        return function or _library.unknown(f"deepspeed.ops.{self._name}.{name}")
