"""pyg_lib 0.9.0: products of many matrices at once, and arithmetic of chosen rows.

pyg_lib/ops/__init__.py, csrc/ops/cuda/matmul_kernel.cu and sampled_kernel.cu, csrc/ops/autograd/matmul_kernel.cpp and
sampled_kernel.cpp. What lies on the host has its values.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import launch, temporary
from memlint_libraries.pyg_lib.checks import DTYPES, check, library

Tensor = torch.Tensor
_provides = library.provides("pyg_lib.ops")
_ARGUMENTS = 8 * (6 + 12)
"""Bytes of the arguments of a product of a group: six numbers, and as many as its coordinates have bytes
(matmul_kernel.cu:31)."""


def _products(inputs: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """`grouped_matmul_kernel`: outputs, copies of what is not contiguous, and the arguments on the GPU."""
    if not any(is_virtual(x) for x in inputs):
        return [x @ other for x, other in zip(inputs, others, strict=True)]
    library.assume()
    inputs, others = ([t.contiguous() for t in tensors] for tensors in (inputs, others))
    outs = [x.new_empty(x.shape[0], other.shape[-1]) for x, other in zip(inputs, others, strict=True)]
    arguments = temporary(_ARGUMENTS * len(outs))
    launch((*inputs, *others), outs)
    del arguments
    return outs


class _Grouped(torch.autograd.Function):
    """Saves all operands."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Any:
        ctx.save_for_backward(*operands)
        half = len(operands) // 2
        return tuple(_products(operands[:half], operands[half:]))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        half = len(grads)
        inputs, others = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        none = [None] * half
        of_inputs = _products(grads, [other.t() for other in others]) if any(ctx.needs_input_grad[:half]) else none
        of_others = _products([x.t() for x in inputs], grads) if any(ctx.needs_input_grad[half:]) else none
        return *of_inputs, *of_others


@_provides
def grouped_matmul(inputs: list[Tensor], others: list[Tensor], biases: list[Tensor] | None = None) -> list[Tensor]:
    """Products of [rows, width] with [width, columns], each of its own sizes."""
    outs = list(_Grouped.apply(*inputs, *others))  # type: ignore[no-untyped-call]
    return outs if biases is None else [out + bias for out, bias in zip(outs, biases, strict=True)]


def _segments(x: Tensor, ptr: Tensor, other: Tensor) -> Tensor:
    """`segment_matmul_kernel`: the output, and what is read of where segments begin."""
    if not is_virtual(x):
        parts = x.split(ptr.diff().tolist())
        return torch.cat([part @ matrix for part, matrix in zip(parts, other, strict=True)])
    library.assume()
    (ptr[1:] - ptr[:-1]).cpu()
    out = x.new_empty(x.shape[0], other.shape[-1])
    x, other = x.contiguous(), other.contiguous()
    arguments = temporary(_ARGUMENTS * len(other))
    launch((x, ptr, other), (out,))
    del arguments
    return out


class _Segmented(torch.autograd.Function):
    """Saves all operands; the gradient of matrices is a product each, and their stack."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ptr: Tensor, other: Tensor) -> Any:
        ctx.save_for_backward(x, ptr, other)
        return _segments(x, ptr, other)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ptr, other = ctx.saved_tensors
        of_x = _segments(grad, ptr, other.transpose(-2, -1)) if ctx.needs_input_grad[0] else None
        of_other = None
        if ctx.needs_input_grad[2]:
            sizes = (ptr[1:] - ptr[:-1]).cpu()
            number = len(other)  # on the GPU how long each segment is changes nothing but which rows are read
            parts = [t.tensor_split(number) if is_virtual(t) else t.split(sizes.tolist()) for t in (x, grad)]
            of_other = torch.stack([part.t() @ part_grad for part, part_grad in zip(*parts, strict=True)])
        return of_x, None, of_other


@_provides
def segment_matmul(inputs: Tensor, ptr: Tensor, other: Tensor, bias: Tensor | None = None) -> Tensor:
    """The product of each segment of rows [rows, width] with its matrix of [segments, width, columns]."""
    out: Tensor = _Segmented.apply(inputs, ptr, other)  # type: ignore[no-untyped-call]
    if bias is not None:
        for number in range(len(ptr) - 1):
            out[ptr[number] : ptr[number + 1]] += bias[number]
    return out


_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
}  # fmt: skip


def _sampled(left: Tensor, right: Tensor, of_left: Tensor | None, of_right: Tensor | None, function: str) -> Tensor:
    """`sampled_op_kernel`: the output alone."""
    if not is_virtual(left):
        left, right = (t if index is None else t[index] for t, index in ((left, of_left), (right, of_right)))
        return _FUNCTIONS[function](left, right)  # type: ignore[no-any-return]
    library.assume()
    rows = left.shape[0]
    if of_left is not None:
        rows = right.shape[0] if of_right is None else of_left.shape[0]
    out = left.new_empty(rows, left.shape[1])
    launch((left, right, of_left, of_right), (out,))
    return out


class _Sampled(torch.autograd.Function):
    """Saves operands and indices; a gradient of chosen rows is added into zeros."""

    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, of_left: Tensor | None, of_right: Tensor | None, function: str
    ) -> Any:
        ctx.save_for_backward(left, right, of_left, of_right)
        ctx.function = function
        return _sampled(left, right, of_left, of_right, function)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        left, right, of_left, of_right = ctx.saved_tensors
        grad_left = grad_right = None
        if ctx.needs_input_grad[0]:
            grad_left = grad
            if ctx.function in {"mul", "div"}:
                grad_left = _sampled(grad, right, None, of_right, ctx.function)
            grad_left = _spread(grad_left, left, of_left)
        if ctx.needs_input_grad[1]:
            grad_right = grad
            is_shorter = len(grad) <= len(right)
            if ctx.function == "sub" and is_shorter:
                grad_right = -grad_right
            elif ctx.function == "mul":
                grad_right = _sampled(grad, left, None, of_left, "mul")
            elif ctx.function == "div":
                quotient = _sampled(left, right, of_left, of_right, "div")
                quotient = _sampled(quotient, right, None, of_right, "div")
                grad_right = -grad * quotient
            grad_right = _spread(grad_right, right, of_right)
            if ctx.function == "sub" and not is_shorter:
                grad_right = -grad_right
        return grad_left, grad_right, None, None, None


def _spread(grad: Tensor, operand: Tensor, index: Tensor | None) -> Tensor:
    return grad if index is None else grad.new_zeros(operand.shape).index_add_(0, index, grad)


def _sampling(function: str) -> None:
    def sampled(
        left: Tensor, right: Tensor, left_index: Tensor | None = None, right_index: Tensor | None = None
    ) -> Any:
        return _Sampled.apply(left, right, left_index, right_index, function)  # type: ignore[no-untyped-call]

    library.modules["pyg_lib.ops"][f"sampled_{function}"] = sampled


for _name in _FUNCTIONS:
    _sampling(_name)


@_provides
def index_sort(inputs: Tensor, max_value: int | None = None) -> tuple[Tensor, Tensor]:
    """PyTorch's own sort; on the host of a vector of whole numbers alone."""
    if not inputs.is_cuda:
        check(inputs.is_contiguous(), "Input should be contiguous.")
        check(inputs.dim() == 1, "Input should be 1-dimensional.")
        check(inputs.dtype in DTYPES and not inputs.is_floating_point(), "Input should contain integral values.")
    values, order = torch.sort(inputs)
    return values, order
