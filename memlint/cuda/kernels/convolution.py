"""Convolutions as cuDNN runs them: layouts, hidden copies, and workspaces, whose exact sizes only cuDNN knows.

The sizes of workspaces are those of the algorithm that cuDNN is assumed to choose. For float32 without TF32, layers of
3 x 3 take what was recorded of a CNN on a Turing GPU (torch 2.2), of ResNet-50 (batch 32, V100) and, but for 1 to 2 KiB
in the forward, of ResNet-18 (batch 8, heuristics, torch 2.0); layers that skip pixels took up to 75 KiB more there.
Layers of 1 x 1 took nothing in the forward of recorded automata (torch 2.5). In the backward of ResNet-50 they took as
much as the gradient of the input when computing it, and mostly nothing for the gradient of the weight; on tensor cores
before Hopper as well, judging by the growth with the batch that nvidia-smi showed for rexnet, semnasnet and mobilevitv2
on an A100 (itu-rad/GPUMemNet). For tensor cores memlint.cuda.kernels.tensor_core_convolution says what was measured.
The rest is a guess. Each workspace lies between nothing and the largest that any algorithm is known to take for its
shape.

`torch.backends.cudnn` is read as PyTorch reads it (aten/src/ATen/native/cudnn/Conv_v8.cpp of torch 2.6 to 2.13):

- `benchmark`: the first call of each shape and direction takes the largest workspace among all algorithms that fit into
  free memory or into the largest cached block, whichever is more, and empties the cache; after that it takes the
  workspace of the fastest algorithm. The shape bounds the request of any algorithm: the columns of all images for a
  matrix product (GEMM), the transforms of input, weight and output for FFT, Winograd's tiles, operands in another
  layout. The estimate of a search counts nothing for layers of 1 x 1 and of groups: CNNs of such layers were seen to
  grow with the batch as they do without a search (itu-rad/GPUMemNet, A100). Their bound is counted as the upper end of
  the interval.
  FFT is assumed to work on squares of a power of two up to 256 (cuDNN's API reference), of at least 64 for kernels that
  overlap, and to hold each transform twice. It was believed to need a stride of 1; but a DCGAN's layers of 4 x 4 with a
  stride of 2 were tried with 0.45 and 0.40 times that on an H200 (2,734,686,224 bytes for 64 images, 256 and 512
  channels; torch 2.11, cuDNN 9.19), so 0.45 times is the estimate of a search for float32. A ConvNeXt, whose kernels do
  not overlap, was tried there with up to a third more than its operands. Evidence for a stride of 1: xception65p showed
  16.4 GiB more with 16 images than with 8, and mobilevitv2_125 21.1 GiB more with 8 than with 16, where the formula
  gives 17.4 and 27.2 GiB for one layer of 1 x 1. 37,502,976 bytes, published for 12 x 4 x 256 x 256 and 5 kernels of 32
  x 64 (Theano/Theano pull request 6348), are 1.1 times one buffer. Layers of 1 x 1 were recorded with 128 MiB
  (automata, torch 2.3).
  The fastest algorithm takes at most the columns of the batch if kernels are larger than one element. That is a
  hypothesis: in the same source the memory of CNNs of 3 x 3 layers is higher than everything else explains, by about
  that of one layer.
- `deterministic` leaves out algorithms 0 and 3, which have no larger workspace than the others.
- `allow_tf32` decides if float32 runs on tensor cores.
- `enabled`: memlint.cuda.kernels.native_convolution has the convolutions that PyTorch runs without cuDNN.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, contiguous, scratch, strides
from memlint.accelerator.inference import Shape, infer
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.registration import composite, kernel
from memlint.cuda.kernels import native_convolution, tensor_core_convolution
from memlint.cuda.kernels.composites import suggested_format
from memlint.cuda.kernels.cudnn_problem import Problem, filled
from memlint.cuda.kernels.native_convolution import Call
from memlint.cuda.simulated import simulated

aten = torch.ops.aten
Tensor = torch.Tensor
Arguments = Sequence[Any]
"""Arguments of a convolution after its tensors: stride, padding, dilation, transposed, output padding, groups."""
TRIED_ANYWAY = 128 << 20
"""Workspaces in bytes that algorithms were recorded to take whatever the shape."""
SMALLEST_TRANSFORM = 64
_SHARE_TRIED = 0.45
LARGEST_TRANSFORM = 256
"""Largest number of rows and columns of an image with its padding for which cuDNN's FFT works."""


class Workspace(NamedTuple):
    """Bytes that cuDNN takes for one call."""

    low: int
    estimate: int
    high: int


def workspace(problem: Problem, direction: str) -> Workspace:
    """Compute cuDNN's workspace for `forward`, the gradient of the input (`data`) or of the weight (`weight`)."""
    if not problem.weight[0]:
        return Workspace(0, 0, sum(problem.nbytes()))
    if tensor_core_convolution.applies(problem):
        highest = max(tensor_core_convolution.highest(problem, direction), _largest_winograd(problem))
        return Workspace(0, tensor_core_convolution.estimate(problem, direction), highest)
    if len(problem.weight) != 4:
        return Workspace(0, 0, sum(problem.nbytes()))
    transposed = 0 if problem.channels_last else sum(problem.filled_nbytes())
    if problem.dtype is torch.float32 and problem.is_product and direction == "forward":
        return Workspace(0, 0, max(transposed, problem.nbytes()[1]))
    if problem.channels_last:
        return Workspace(0, 0, _largest_winograd(problem))
    if problem.is_plain_3x3:
        winograd = _winograd(problem, direction)
        return Workspace(0, winograd, max(winograd, _largest_winograd(problem)))
    weights = problem.nbytes()[1]
    takes_weights = direction == "forward" or (direction == "weight" and weights >= 1 << 18)
    return Workspace(0, weights if takes_weights else 0, max(transposed, weights))


def _winograd(problem: Problem, direction: str) -> int:
    """Compute the workspace of the Winograd algorithm that cuDNN chooses.

    Forward and data, which is a forward with input and output channels exchanged: the weights in another order, their
    tiles of 4 x 4 for outputs of 2 x 2, with channels padded for the kernel, and a number for each channel of the
    result. Weight: all operands in tiles of 6 x 6 for outputs of 4 x 4. Input channels were recorded padded from 30 to
    32, which multiples of 2, 4 and 16 would give as well as 8.
    """
    if direction == "weight":
        return _largest_winograd(problem)
    outputs, inputs = problem.weight[:2] if direction == "forward" else problem.weight[1::-1]
    return 4 * (9 * outputs * inputs + 16 * filled(outputs, 32) * filled(inputs, 8) + outputs)


def _largest_winograd(problem: Problem) -> int:
    if not problem.is_plain_3x3:
        return 0
    channels_out, channels_in = problem.weight[:2]
    tiles = problem.x[0] * math.ceil(problem.out[2] / 4) * math.ceil(problem.out[3] / 4)
    return 36 * 4 * (channels_in * channels_out + tiles * (channels_in + channels_out))


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    """Return the layout cuDNN works in: channels_last as soon as the input or the weight is (not in float64)."""
    if x.dtype is torch.float64:
        return torch.contiguous_format
    layout = suggested_format(x)
    return layout if layout is not torch.contiguous_format else suggested_format(weight)


def _contiguous(x: Tensor, layout: torch.memory_format) -> Tensor | None:
    """Allocate the copy that a kernel makes of an operand in another layout; None if it needs none."""
    if x.is_contiguous(memory_format=layout):
        return None
    return allocate(x.shape, strides(x.shape, layout), x.dtype)


def _take(problem: Problem | None, direction: str) -> None:
    """Allocate a workspace for one call and free it."""
    if problem is None:
        return
    low, estimate, high = workspace(problem, direction)
    if torch.backends.cudnn.benchmark:
        total = simulated().device.total_nbytes
        if simulated().workspaces.is_first_search((problem, direction)):
            state.assume(
                "torch.backends.cudnn.benchmark is on: the first call of each convolution tries algorithms in free "
                "memory; the largest known workspace is counted (none for 1 x 1 and grouped layers), and as the upper "
                "bound the most that an algorithm can request for its shape"
            )
            most = total + min(max(high, most_tried(problem)), total - 1)
            scratch(likely_tried(problem, high), (low, most))
        columns = _columns_of_batch(problem) if problem.is_dense else 0
        if columns > high:
            high = 2 * total + columns
    scratch(estimate, (low, high))


def most_tried(problem: Problem) -> int:
    """The most that any algorithm of cuDNN asks for: a bound from the shapes, as described above."""
    sizes = _columns_of_batch(problem), _transforms(problem), _largest_winograd(problem), sum(problem.nbytes())
    return max(*sizes, TRIED_ANYWAY)


def likely_tried(problem: Problem, largest: int) -> int:
    """Return what a search most likely takes; `largest` is the most that the chosen algorithm may take."""
    if not problem.is_dense:
        return 0
    by_transforms = _SHARE_TRIED * _transforms(problem) if problem.dtype is torch.float32 and problem.overlaps else 0
    return max(largest, int(by_transforms))


def _columns_of_batch(problem: Problem) -> int:
    return problem.x[0] * problem.groups * _columns(problem)


def _transforms(problem: Problem) -> int:
    """Bytes of FFT: complex numbers of half a square for each channel and kernel, twice; 0 if FFT does not apply."""
    if set(problem.dilation) != {1} or (set(problem.stride) != {1} and not problem.overlaps):
        return 0
    least = SMALLEST_TRANSFORM if problem.overlaps else 1
    sides = [_power_of_two(n + k - 1) for n, k in zip(problem.out[2:], problem.weight[2:], strict=True)]
    side = max(least, *sides)
    if side > LARGEST_TRANSFORM:
        return 0
    planes = problem.x[0] * (problem.x[1] + problem.weight[0]) + math.prod(problem.weight[:2])
    others = math.prod([side] * (len(problem.weight) - 3))
    return 2 * 8 * planes * others * (side // 2 + 1)


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is not below `n`."""
    return 1 << (n - 1).bit_length()


def _columns(problem: Problem) -> int:
    """Bytes of the columns that a matrix product unfolds for one image; 0 if the layer is such a product already."""
    if problem.is_product:
        return 0
    values = problem.x[1] // problem.groups * math.prod(problem.weight[2:]) * math.prod(problem.out[2:])
    return values * problem.dtype.itemsize


def _call(x: Tensor, weight: Tensor, out: Sequence[int], arguments: Arguments) -> Call | None:
    """Describe a convolution on the GPU; None on the host, and for empty tensors."""
    if not state.current.cuda or state.current.of_thread.last_host or not x.numel():
        return None
    stride, padding, dilation, transposed, output_padding, groups = arguments
    return Call(
        x=tuple(x.shape),
        weight=tuple(weight.shape),
        out=tuple(out),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        transposed=transposed,
        output_padding=tuple(output_padding),
        groups=groups,
        dtype=x.dtype,
        channels_last=_layout(x, weight) is not torch.contiguous_format,
    )


def _problem(call: Call | None) -> Problem | None:
    """Describe the problem for cuDNN; None on the host, and for depthwise layers that PyTorch runs itself."""
    if call is None or _is_native_depthwise(call):
        return None
    x, out = (call.out, call.x) if call.transposed else (call.x, call.out)
    return Problem(x, call.weight, out, call.stride, call.dilation, call.groups, call.dtype, call.channels_last)


def _is_native_depthwise(call: Call) -> bool:
    return call.is_depthwise and not (call.channels_last and torch.backends.cudnn.enabled)


@kernel("convolution")
def _convolution(x: Tensor, weight: Tensor, bias: Tensor | None, *arguments: Any) -> Tensor:
    shape: Shape = infer(kernel_of(aten.convolution.default), (x, weight, bias, *arguments), {})
    call = _call(x, weight, shape.shape, arguments)
    reason = None if call is None else native_convolution.why_native(call)
    layout = _layout(x, weight)
    if reason is not None or (call is not None and _is_native_depthwise(call)):
        layout = torch.contiguous_format
    copies = [_contiguous(t, layout) for t in (x, weight)]
    if call is not None and reason is not None:
        out = native_convolution.forward(call, has_bias=bias is not None, is_certain=reason.is_certain)
    else:
        out = allocate(shape.shape, strides(shape.shape, layout), shape.dtype)
        _take(_problem(call), "forward")
    del copies
    return out


composite("_convolution")(lambda *args: aten.convolution(*args[:9]))  # the other arguments are options, not operands


@kernel("convolution_backward")
def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *rest: Any
) -> tuple[Tensor | None, ...]:
    *arguments, output_mask = rest
    transposed, groups = arguments[3], arguments[5]
    call = _call(x, weight, grad.shape, arguments)
    reason = None if call is None else native_convolution.why_native(call)
    if call is not None and reason is not None:
        copies = [_contiguous(t, torch.contiguous_format) for t in (x, weight)]
        gradients = native_convolution.backward(call, grad, output_mask, is_certain=reason.is_certain)
        del copies
        return gradients
    layout = _layout(x, weight)
    if call is not None and _is_native_depthwise(call):
        layout = torch.contiguous_format
    problem = _problem(call)
    copies = [_contiguous(t, layout) for t in (grad, x, weight)]
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_input = allocate(x.shape, strides(x.shape, layout), x.dtype)
        _take(problem, "data")
    if output_mask[1]:
        grad_weight = allocate(weight.shape, strides(weight.shape, layout), weight.dtype)
        _take(problem, "weight")
    del copies
    if output_mask[2]:
        grad_bias = contiguous((weight.shape[1] * groups if transposed else weight.shape[0],), grad.dtype)
    return grad_input, grad_weight, grad_bias
