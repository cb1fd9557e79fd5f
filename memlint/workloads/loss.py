"""The scalar that a training step differentiates, where nobody declares one."""

import dataclasses
from collections.abc import Mapping

import torch
from torch.utils._pytree import tree_leaves

from memlint.base.errors import WorkloadError


def own_loss(output: object) -> torch.Tensor | None:
    """Find the loss a model returned itself.

    That is: `output.loss` or `output["loss"]`; the sum of a mapping of scalar losses, as detection models give; the
    first scalar of a tuple, before or after the logits; or the output, where it is a scalar. None without one.
    """
    if isinstance(output, Mapping):
        if output.get("loss") is not None:
            return _scalar(output["loss"])
        losses = [value for value in output.values() if _is_loss(value)]
        return torch.stack(losses).sum() if losses and len(losses) == len(output) else None
    if getattr(output, "loss", None) is not None:
        return _scalar(output.loss)  # type: ignore[attr-defined]
    if isinstance(output, tuple | list):
        return next((value for value in output if _is_loss(value)), None)
    return output if isinstance(output, torch.Tensor) and _is_loss(output) else None


def mean_of(output: object) -> torch.Tensor:
    """Sum of the means of all outputs that need a gradient: the cheapest scalar that reaches every one of them.

    Raises WorkloadError when there is none.
    """
    if dataclasses.is_dataclass(output) and not isinstance(output, Mapping):
        output = vars(output)
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise WorkloadError(
            f"the model gives a {type(output).__name__} with no tensor that needs a gradient",
            'Declare a loss, or set mode = "inference".',
        )
    means = [(tensor.abs() if tensor.is_complex() else tensor).mean() for tensor in tensors]
    total = means[0]
    for mean in means[1:]:
        total = total + mean
    return total


def _is_loss(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.requires_grad and not value.is_complex()


def _scalar(value: object) -> torch.Tensor | None:
    """`value` as a scalar; a loss per device or item is averaged."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return None
    return value if value.dim() == 0 else value.mean()
