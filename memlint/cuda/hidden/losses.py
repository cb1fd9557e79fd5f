"""Losses whose kernels store the loss of every element; some keep it alive in the scalar they return."""

from functools import partial
from typing import Any

import torch

from memlint.accelerator.device import contiguous, scratch
from memlint.accelerator.dispatch import check_devices
from memlint.accelerator.inference import infer, materialize
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.private import OpOverload
from memlint.accelerator.registration import kernel, overload
from memlint.cuda.hidden.reductions import stage
from memlint.cuda.hidden.table import Steps, copy_of, hidden

Tensor = torch.Tensor
BATCHED = 3
"""Number of dimensions of log probabilities with a batch."""
NONE = 0
"""Value of `at::Reduction::None`."""


def _elements(x: Tensor, target: Tensor) -> Tensor:
    """The loss of every element as a meta tensor."""
    shape = torch.broadcast_shapes(x.shape, target.shape)
    return torch.empty(shape, dtype=torch.promote_types(x.dtype, target.dtype), device="meta")


def _reduce(elements: Tensor, reduction: int) -> None:
    if reduction != NONE:
        stage(elements, None, max(elements.element_size(), 4), (elements.element_size(),))


@hidden("mse_loss", "smooth_l1_loss", source="Loss.cpp")
def _through_iterator(x: Tensor, target: Tensor, reduction: int = 1, *_: Any) -> Steps:
    """The loss of every element, then staging of its mean."""
    yield
    if reduction != NONE:
        elements = _elements(x, target)
        taken = copy_of(elements)
        _reduce(elements, reduction)
        del taken


@hidden("huber_loss", source="Loss.cpp")
def _huber_loss(x: Tensor, target: Tensor, reduction: int = 1, delta: float = 1.0) -> Steps:
    """The loss of every element, then staging of its mean."""
    elements = _elements(x, target)
    taken = copy_of(elements) if reduction != NONE else None
    yield
    _reduce(elements, reduction)
    del taken


@hidden("binary_cross_entropy", source="Loss.cu")
def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1) -> Steps:
    """The reduced loss beside the loss of every element, and staging."""
    yield
    if reduction != NONE:
        reduced = scratch(x.element_size())
        _reduce(_elements(x, target), reduction)
        del reduced


def _keeping_elements(op: OpOverload, position: int, *args: Any, **kwargs: Any) -> Any:
    """Shrink the loss of every element to a scalar; the storage stays as large (on the CPU as well)."""
    description = kernel_of(op)
    check_devices(description, [a for a in args if isinstance(a, Tensor)])
    reduction = args[position] if len(args) > position else kwargs.get("reduction", 1)
    if reduction == NONE:
        return materialize(infer(description, args, kwargs))
    elements = _elements(*args[:2])
    return contiguous(elements.shape, elements.dtype).as_strided((), ())


for _name, _position in (("mse_loss", 2), ("smooth_l1_loss", 2), ("binary_cross_entropy", 3)):
    kernel(_name)(partial(_keeping_elements, overload(_name), _position))


@hidden("_pdist_backward", source="DistanceKernel.cu: pdist_backward_kernel_impl; measured on H200")
def _pair_distances_backward(_grad: Tensor, x: Tensor, *_: Any) -> Steps:
    """The gradient of each row's difference from every other row."""
    yield
    scratch(x.shape[0] * max(x.shape[0] - 1, 0) * x.shape[1] * x.element_size())


@hidden("_ctc_loss", "_ctc_loss_backward", source="LossCTC.cu: ctc_loss_gpu_template; measured on H200")
def _ctc_loss(*operands: Any, **_: Any) -> Steps:
    """Lengths of inputs and targets and where targets begin, in int64."""
    log_probs = operands[1] if operands[1].is_floating_point() else operands[0]
    batch = log_probs.shape[1] if log_probs.dim() == BATCHED else 1
    taken = [scratch(8 * batch) for _ in range(3)]
    yield
    del taken
