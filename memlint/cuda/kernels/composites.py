"""Kernels that CUDA has and PyTorch would not choose for another device, and the memory they allocate."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, contiguous, is_virtual, like, scratch, strides
from memlint.accelerator.dtypes import refuse_dtypes
from memlint.accelerator.inference import Shape, infer, materialize
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.private import FAKE_MODE, DispatchKey, dispatch_mode, functorch, kernel_under
from memlint.accelerator.registration import composite, kernel, overload
from memlint.accelerator.sparse import is_host
from memlint.accelerator.values import content, uniform_value
from memlint.cuda.simulated import simulated
from memlint.cuda.versions import torch_version

aten = torch.ops.aten
Tensor = torch.Tensor

CUDNN_BATCH_NORM_MAX_BATCH = 880_801
"""Largest batch that cuDNN normalises in training (aten/src/ATen/native/Normalization.cpp)."""
CUDNN_BATCH_NORM_MAX_BATCH_EVAL = 65_535


def temporary(nbytes: int) -> Tensor:
    """Bytes that a kernel allocates for itself; they are freed when the result is dropped."""
    return allocate((nbytes,), (1,), torch.uint8)


_SOFTMAX_WITHOUT_INPUT_SINCE = (1, 11)
"""First PyTorch whose softmax saves only its result for backward (pytorch/pytorch pull request 65242)."""


class _SavedInput(torch.autograd.Function):
    """Identity that saves its input, which so lives until the gradient of the input has been computed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.view_as(x)

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _softmax_like(op: Any, x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    if state.current.cuda and x.requires_grad and torch_version() < _SOFTMAX_WITHOUT_INPUT_SINCE:
        return _softmax_of(op, _SavedInput.apply(x), dim, dtype)  # type: ignore[no-untyped-call]
    return _softmax_of(op, x, dim, dtype)


def _softmax_of(op: Any, x: Tensor, dim: int, dtype: torch.dtype | None) -> Any:
    if state.current.cuda and x.dtype is torch.float16 and dtype is torch.float32:
        return op(x, dim, True)  # CUDA casts inside the kernel, for float16 only
    return op(x if dtype is None or x.dtype is dtype else x.to(dtype), dim, False)


composite("softmax.int")(partial(_softmax_like, aten._softmax.default))
composite("log_softmax.int")(partial(_softmax_like, aten._log_softmax.default))


@kernel("addmm.dtype", "baddbmm.dtype")
def _product_added_of_dtype(added: Tensor, a: Tensor, b: Tensor, out_dtype: torch.dtype, **_: Any) -> Tensor:
    """The sum of a product and a tensor with an output dtype, whose meta kernel takes the dtype for `beta`.

    Until torch 2.12.
    """
    return contiguous((*a.shape[:-1], b.shape[-1]), out_dtype)


@kernel("_grouped_mm")
def _grouped_product(
    a: Tensor, b: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Any:
    """Products of groups of rows: CUTLASS on Hopper and Blackwell, else one after another (GroupedBlas.cpp).

    The last dimension of the result is aligned to 16 bytes (`create_grouped_gemm_output_tensor`, GroupedMMUtils.h).
    """
    if not state.current.cuda or is_host(a):
        return kernel_under(aten._grouped_mm.default)(_COMPOSED, a, b, ends, bias, out_dtype)
    dtype = out_dtype or a.dtype
    shape: tuple[int, ...] = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim():
        shape = (a.shape[0] if ends is None else ends.shape[0], *shape)
    step = shape[-1] + -shape[-1] % (16 // dtype.itemsize)
    result = allocate(shape, (step, 1) if len(shape) == MATRIX else (shape[1] * step, step, 1), dtype)
    is_bfloat16 = a.dtype is b.dtype is dtype is torch.bfloat16
    if not (is_bfloat16 and simulated().device.capability in _CUTLASS_GROUPS):
        simulated().workspaces.product()
    return result


_COMPOSED = DispatchKey.CompositeExplicitAutograd
_CUTLASS_GROUPS = (9, 0), (10, 0)
MATRIX = 2


@kernel("log_sigmoid_forward")
def _log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """The result, and the buffer that the host saves for backward (Activation.cpp, ActivationLogSigmoidKernel.cu)."""
    if state.current.cuda and not is_host(x):
        return materialize(infer(kernel_of(aten.empty_like.default), (x,), {})), contiguous((0,), x.dtype)
    return like(x), like(x)


@composite("cumprod_backward")
def _cumprod_backward(grad: Tensor, x: Tensor, dim: int, output: Tensor) -> Any:
    """The gradient of cumprod; for inputs that may have zeros an upper bound (FunctionsManual.cpp: cumprod_backward).

    Without zeros, the gradient takes a product, a mask, and a reversed cumulative sum with two copies. With zeros it
    takes two masks, a count of zeros before each element, and three more tensors like the input, as measured; on the
    GPU the positions of a mask's elements as well.
    """
    size = x.shape[dim] if x.dim() else 1
    more = 2 * x.element_size() + 10 + max(0, (21 + x.element_size()) / max(size, 1) - 5)
    if state.current.cuda and is_virtual(x):
        more += 8 * x.dim() - 4
    is_known = content(x) is not None or uniform_value(x) is not None
    hidden = None if is_known or size < 2 else scratch(0, (0, math.ceil(more * x.numel())))
    result = overload("cumprod_backward").decompose(grad, x, dim, output)
    del hidden
    return result


@kernel("glu_backward")
def _glu_backward(grad: Tensor, x: Tensor, dim: int) -> Any:
    """The gradient of GLU, contiguous on the host whatever the input's layout (GatedLinearUnit.cpp: `resize_as_`)."""
    if state.current.cuda and not is_host(x):
        return materialize(infer(kernel_of(aten.glu_backward.default), (grad, x, dim), {}))
    return like(x)


@kernel("native_dropout")
def _native_dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    shape = infer(kernel_of(aten.empty_like.default), (x,), {})
    mask = allocate(shape.shape, shape.stride, torch.bool)
    return materialize(shape), mask


@composite("dropout")
def _dropout(x: Tensor, p: float, train: bool) -> Any:
    if not train or p == 0 or x.numel() == 0:
        return x
    if p == 1:
        return x.mul(torch.zeros((), dtype=x.dtype, device=x.device))
    if state.current.cuda or dispatch_mode(FAKE_MODE) is not None:  # as it is composed where it is compiled
        return aten.native_dropout(x, p, True)[0]
    return x.mul(torch.empty_like(x).bernoulli_(1 - p).div_(1 - p))


@composite("rms_norm")
def _rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Any:
    if torch_version() < (2, 9):
        return _rms_norm_by_ops(x, normalized_shape, weight, eps)
    fused = (
        state.current.cuda
        and not x.is_complex()
        and (weight is None or weight.dtype is x.dtype)
        and suggested_format(x) is torch.contiguous_format
    )
    carry_out = aten._fused_rms_norm if fused else overload("_fused_rms_norm").decompose
    return carry_out(x, normalized_shape, weight, eps)[0]


def _rms_norm_by_ops(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Tensor:
    """RMSNorm before torch 2.9, by single ops: aten/src/ATen/native/layer_norm.cpp of torch 2.4.

    Halves are computed in float32 since 2.5 (pytorch/pytorch pull request 134106), and rounded last since 2.7 (147203).
    """
    version, dims = torch_version(), tuple(range(-len(normalized_shape), 0))
    is_widened = version >= (2, 5) and x.dtype in (torch.float16, torch.bfloat16)
    wide = x.float() if is_widened else x
    result = wide.mul(wide.pow(2).mean(dims, keepdim=True).add_(eps or 0.0).rsqrt())
    if version < (2, 7):
        result = result.to(x.dtype)
    if weight is not None:
        result = result.mul(weight)
    return result.to(x.dtype) if is_widened else result


@composite("einsum")
def _einsum(equation: str, operands: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Any:
    """Einsum before torch 2.9: the operand named first gives the rows of the product, whatever the requested order.

    See pytorch/pytorch issue 161729, fixed by pull request 161755 in August 2025: a result with dimensions in another
    order is a view with strides of its own, which some layers copy.
    """
    carry_out = overload("einsum").decompose
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    if torch_version() >= (2, 9) or len(operands) != 2 or not arrow or "." in text:
        return carry_out(equation, operands, path=path)
    left, right = inputs.split(",")
    made = sorted(output, key=lambda label: (label not in left or label not in right, label not in left))
    return carry_out(f"{inputs}->{''.join(made)}", operands).permute([made.index(label) for label in output])


@composite("group_norm")
def _group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    """GroupNorm: CUDA works on a contiguous copy, which is saved for backward.

    For an extension's device, as for the host, PyTorch would keep the layout (aten/src/ATen/native/group_norm.cpp).
    """
    if state.current.cuda and not is_host(x):
        x = x.contiguous()
    elif suggested_format(x) is not torch.contiguous_format and not functorch.is_functorch_wrapped_tensor(x):
        return _GroupNormOfHost.apply(x, num_groups, weight, bias, eps)  # type: ignore[no-untyped-call]
    return overload("group_norm").decompose(x, num_groups, weight, bias, eps, cudnn_enabled)


class _GroupNormOfHost(torch.autograd.Function):
    """GroupNorm with channels last, a layout in which only the host saves the input for backward (derivatives.yaml)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        layout = suggested_format(x)
        x = x.contiguous(memory_format=layout)
        ctx.sizes = *x.shape[:2], math.prod(x.shape[2:]), groups
        out, mean, rstd = aten.native_group_norm(x, weight, bias, *ctx.sizes, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, rstd = ctx.saved_tensors
        grad = grad.contiguous(memory_format=suggested_format(x))
        wanted = [ctx.needs_input_grad[position] for position in (0, 2, 3)]
        of_x, *others = aten.native_group_norm_backward(grad, x, mean, rstd, weight, *ctx.sizes, wanted)
        return of_x, None, *others, None


def suggested_format(x: Tensor) -> torch.memory_format:
    """Return the layout that `Tensor::suggest_memory_format` reads from the strides."""
    if x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    if x.dim() == 5 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last_3d):
        return torch.channels_last_3d
    return torch.contiguous_format


@composite("batch_norm")
def _batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Any) -> Any:
    running_mean, running_var, training, _momentum, eps, cudnn_enabled = rest
    on_cudnn = (
        state.current.cuda
        and cudnn_enabled
        and x.dtype is not torch.bfloat16
        and weight is not None
        and bias is not None
        and x.dim() >= 3
        and (x.dtype is not torch.float16 or weight.dtype is torch.float32)
        and (training or (running_mean is not None and running_var is not None))
        and x.shape[0] <= (CUDNN_BATCH_NORM_MAX_BATCH if training else CUDNN_BATCH_NORM_MAX_BATCH_EVAL)
        and eps >= 1e-5
        and x.numel() < 2**31
    )
    if on_cudnn:
        x = x.contiguous(memory_format=suggested_format(x))
    carry_out = aten.cudnn_batch_norm if on_cudnn else aten.native_batch_norm
    return carry_out(x, weight, bias, *rest[:5])[0]


@kernel("cudnn_batch_norm")
def _cudnn_batch_norm(x: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    training = rest[3]
    # Recorded runs show no reserve for contiguous input; the buffer is there, empty.
    out = allocate(x.shape, x.stride(), x.dtype)
    channels = x.shape[1] if training else 0
    statistics = [allocate((channels,), (1,), weight.dtype) for _ in range(2)]
    return out, *statistics, allocate((0,), (1,), torch.uint8)


@kernel("cudnn_batch_norm_backward")
def _cudnn_batch_norm_backward(x: Tensor, grad: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, ...]:
    """The three gradients, a copy of a gradient in another layout, and with channels last cuDNN's workspace.

    It was 536,612 bytes for 64 channels of float32 and float16 on H200, and none in the usual layout.
    """
    layout = suggested_format(x)
    copy = None if grad.is_contiguous(memory_format=layout) else allocate(x.shape, x.stride(), grad.dtype)
    grads = (
        allocate(x.shape, x.stride(), x.dtype),
        *(allocate(weight.shape, weight.stride(), weight.dtype) for _ in range(2)),
    )
    workspace = 8192 * weight.numel()
    takes_it = layout is not torch.contiguous_format and is_virtual(x)
    hidden = scratch(workspace, (0, 2 * workspace)) if takes_it else None
    del hidden, copy
    return grads


@kernel("native_group_norm")
def _native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Tensor, ...]:
    statistics_dtype = torch.float32 if weight is not None and weight.dtype is torch.float32 else x.dtype
    out = allocate(x.shape, strides(x.shape, _group_norm_format(x)), x.dtype)
    mean, rstd = (allocate((n, group), (group, 1), statistics_dtype) for _ in range(2))
    if state.current.cuda:
        refuse_dtypes("native_group_norm", (x, weight, bias))
        affine = [temporary(4 * n * c) for _ in range(2)]  # group_norm_kernel.cu: a and b of [N, C]
        del affine
    return out, mean, rstd


def _group_norm_format(x: Tensor) -> torch.memory_format:
    """Layout of the result: contiguous on CUDA, that of the input on the host (aten/src/ATen/native/group_norm.cpp)."""
    return torch.contiguous_format if state.current.cuda else suggested_format(x)


@kernel("native_batch_norm")
def _native_batch_norm(*args: Any) -> Any:
    """Batch norm; on the host contiguous or with channels last, whatever the input's layout.

    Evaluation saves nothing.
    """
    shapes = infer(kernel_of(aten.native_batch_norm.default), args, {})
    if not state.current.cuda:
        x, is_training = args[0], args[5]
        out = replace(shapes[0], stride=strides(x.shape, suggested_format(x)))
        saved = shapes[1:] if is_training else [replace(each, shape=(0,)) for each in shapes[1:]]
        shapes = [out, *saved]
    return materialize(shapes)


@kernel("native_layer_norm")
def _native_layer_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, *rest: Any) -> Any:
    """Layer norm; on the host, moments of halves are halves, unless the weight is wide (`param_scalar_type`)."""
    out, *saved = infer(kernel_of(aten.native_layer_norm.default), (x, shape, weight, *rest), {})
    if not state.current.cuda and (weight is None or weight.dtype is x.dtype):
        saved = [replace(each, dtype=x.dtype) for each in saved]
    return materialize([out, *saved])


def _with_gradient_in(layout: torch.memory_format, op: Any, args: tuple[Any, ...]) -> Any:
    """Return the results of a normalisation's backward, with the gradient of its input in `layout`.

    PyTorch's meta kernels give it the layout of the incoming gradient.
    """
    shapes = infer(kernel_of(op), args, {})
    if isinstance(shapes[0], Shape):
        shapes = [replace(shapes[0], stride=strides(shapes[0].shape, layout)), *shapes[1:]]
    return materialize(shapes)


@kernel("native_layer_norm_backward")
def _native_layer_norm_backward(*args: Any) -> Any:
    return _with_gradient_in(torch.contiguous_format, aten.native_layer_norm_backward.default, args)


@kernel("native_group_norm_backward")
def _native_group_norm_backward(*args: Any) -> Any:
    return _with_gradient_in(_group_norm_format(args[1]), aten.native_group_norm_backward.default, args)


@kernel("native_batch_norm_backward")
def _native_batch_norm_backward(*args: Any) -> Any:
    return _with_gradient_in(suggested_format(args[1]), aten.native_batch_norm_backward.default, args)
