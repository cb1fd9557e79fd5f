"""The scalar that a training step differentiates: a class of torch.nn by name, or the model's own output."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from memlint.accelerator.private import tree_leaves
from memlint.base.errors import UsageError, WorkloadError
from memlint.workloads.receiving_layers import forward_code

OF_CLASSES = ("CrossEntropyLoss", "NLLLoss")
"""Losses of torch.nn whose targets are class indices."""
ALIKE = ("BCEWithLogitsLoss", "BCELoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
"""Losses whose targets have the form of the output."""
_WITHOUT_GRADIENTS = re.compile(r"(torch\.)?(inference_mode|no_grad)(\((mode=)?(True)?\))?")


class NamedLoss:
    """A loss of torch.nn on the one tensor that a model returns, with targets of its shape.

    Classes are the second dimension of images and of single items, the last of texts: [batch, length, classes]. The
    targets stay in memory from step to step, like those of a batch.
    """

    def __init__(self, name: str) -> None:
        """Raise UsageError for an unknown name."""
        if name not in (*OF_CLASSES, *ALIKE):
            close = get_close_matches(name, (*OF_CLASSES, *ALIKE), 1)
            hint = f"Did you mean {close[0]}?" if close else f"Write one of {', '.join((*OF_CLASSES, *ALIKE))}, or"
            raise UsageError(f"loss {name!r} is unknown", f"{hint} file.py::callable.")
        self._has_classes, self._loss = name in OF_CLASSES, getattr(nn, name)()
        self.target: Tensor | None = None
        """Created for the first output."""

    def fits(self, output: object) -> bool:
        """Return True if `output` is, or contains, a tensor that needs a gradient, and is not the loss itself."""
        return own_loss(output) is None and self._prediction(output) is not None

    def __call__(self, output: object, _inputs: Mapping[str, object]) -> Tensor:
        """Return the loss of an `output` that fits."""
        prediction = self._prediction(output)
        assert prediction is not None
        if self._has_classes and prediction.dim() == 3:
            prediction = prediction.flatten(0, 1)
        shape = (*prediction.shape[:1], *prediction.shape[2:]) if self._has_classes else tuple(prediction.shape)
        if self.target is None or self.target.shape != shape:
            is_cast = torch.is_autocast_enabled(prediction.device.type)
            dtype = torch.int64 if self._has_classes else torch.float32 if is_cast else prediction.dtype
            self.target = torch.zeros(shape, dtype=dtype, device=prediction.device)
        loss: Tensor = self._loss(prediction, self.target)
        return loss

    def _prediction(self, output: object) -> Tensor | None:
        tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
        fits = len(tensors) == 1 and tensors[0].is_floating_point() and tensors[0].dim() > self._has_classes
        return tensors[0] if fits else None


def own_loss(output: object) -> torch.Tensor | None:
    """Find the loss that a model itself returned.

    That is: `output.loss` or `output["loss"]`; the sum of a mapping of scalar losses, as detection models give; the
    first scalar of a tuple, before or after the logits, unless another output comes from parameters that it does not
    come from, as logits do beside the loss that balances experts; or the output, if it is a scalar. None without one.
    """
    if isinstance(output, Mapping):
        if output.get("loss") is not None:
            return _scalar(output["loss"])
        losses = [value for value in output.values() if _is_loss(value)]
        return torch.stack(losses).sum() if losses and len(losses) == len(output) else None
    if getattr(output, "loss", None) is not None:
        return _scalar(output.loss)  # type: ignore[attr-defined]
    if isinstance(output, tuple | list):
        scalar = next((value for value in output if _is_loss(value)), None)
        return scalar if scalar is not None and _reaches_all(scalar, output) else None
    return output if isinstance(output, torch.Tensor) and _is_loss(output) else None


def kept_loss(model: nn.Module, output: object) -> torch.Tensor | None:
    """Find the loss that a model has kept in an attribute, `self.last_loss = ...`; None without one.

    It is computed from the output: what balances experts, or commits to a codebook, is no more than a part of a loss.
    """
    kept = [value for name, value in vars(model).items() if "loss" in name.lower() and _is_loss(value)]
    outputs = {leaf.grad_fn for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)} - {None}
    return next((value for value in kept if not outputs.isdisjoint(_computed_from(value))), None)


def _computed_from(tensor: torch.Tensor) -> set[Any]:
    """Return the functions of autograd that a tensor goes back to."""
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting:
        function = waiting.pop()
        if function is not None and function not in seen:
            seen.add(function)
            waiting += [each for each, _number in function.next_functions]
    return seen


def _reaches_all(loss: torch.Tensor, output: object) -> bool:
    """Return True if all parameters that an output comes from get a gradient of the loss."""
    tensors = (leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad)
    others = [each for each in tensors if each is not loss]
    reached = _computed_from(loss) if others else set()
    return all(each in reached for other in others for each in _computed_from(other) if hasattr(each, "variable"))


def mean_of(output: object, model: nn.Module | None = None) -> torch.Tensor:
    """Return the sum of the means of all outputs that need a gradient: the cheapest scalar that reaches all of them.

    `model` is the one that gave them; an error names its `forward`.
    """
    is_record = dataclasses.is_dataclass(output) and not isinstance(output, Mapping)
    if is_record or isinstance(output, torch.distributions.Distribution):
        output = vars(output)
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise WorkloadError(
            f"the model gives a {type(output).__name__} with no tensor that needs a gradient{_place_of_forward(model)}",
            'Declare a loss, or set mode = "inference".',
        )
    means = [(tensor.abs() if tensor.is_complex() else tensor).mean() for tensor in tensors]
    total = means[0]
    for mean in means[1:]:
        total = total + mean
    return total


def without_gradients(kind: object) -> str:
    """Return the decorator with which a class's `forward` runs without gradients, as `torch.no_grad()`; else empty."""
    functions = forward_code(kind).body if isinstance(kind, type) and issubclass(kind, nn.Module) else []
    decorators = (each for node in functions if isinstance(node, ast.FunctionDef) for each in node.decorator_list)
    return next(filter(_WITHOUT_GRADIENTS.fullmatch, map(ast.unparse, decorators)), "")


def _place_of_forward(model: nn.Module | None) -> str:
    """Return ` (path:line)` of the function of a model's class that gives its output; empty if it is not Python's."""
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None) if model is not None else None
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _is_loss(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0 and value.requires_grad and not value.is_complex()


def _scalar(value: object) -> torch.Tensor | None:
    """Return `value` as a scalar; a loss per device or item is averaged."""
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        return None
    return value if value.dim() == 0 else value.mean()
