"""Workspaces of cuDNN's convolutions on tensor cores: half precision, and float32 where TF32 is allowed.

Read off 430 pairs of a shape and a direction that ResNet-50, ConvNeXt, DenseNet, DeepLab, U-Net, VGG, a diffusion model
and Whisper ran on an H200 (torch 2.11, cuDNN 9.19: fixtures/measurements/h200, those that may be fitted) and 90 single
layers. The estimates are within 64 KiB for 70 % of them and within 9 MB for 93 %:

- Kernels read channels_last. In other layouts cuDNN moves input, output and weight first, beside 16 bytes; the weight
  of a 1 x 1 layer has one order only. A few kernels write the output where it is (they need less). Half precision fills
  channels up to 8 (in float16 at times up to 4), in channels_last as well.
- Layers of 1 x 1 are products that read every image where it is, if its rows are whole units of 16 bytes. The
  gradient of the weight is then summed over images in a buffer of float32 for each, unless moving is less. At times
  (EfficientNet, bfloat16) it is where moving is less: the upper bound.
- The gradient of a weight is summed in tiles by as many multiprocessors as there are, in float32. Up to two such sums
  were seen in any direction: they are in the upper bound.
- Float32 of up to 3 channels with small kernels or none that overlap takes nothing.
- Depthwise layers in channels_last and half precision sum the gradient of their weight in 8 parts for each image.

Before Hopper, products in half precision take as much as the gradient of the input when computing it, as
memlint.cuda.kernels.convolution says.
"""

import math

import torch

from memlint.cuda.kernels.cudnn_problem import Problem
from memlint.cuda.kernels.native_convolution import HALF
from memlint.cuda.simulated import simulated

TILE = 128
"""Rows and columns of a tile of a sum; half as many for weights of up to 64 output channels."""
_BESIDE = 16
_COUNTERS = 1 << 10
"""Bytes beside sums: 16 to 751 were seen."""
_UNIT = 16
_PARTS = 8


def applies(problem: Problem) -> bool:
    """Return True if cuDNN is assumed to run it on tensor cores."""
    tf32 = simulated().device.capability >= (8, 0) and torch.backends.cudnn.allow_tf32
    return problem.dtype in HALF or (problem.dtype is torch.float32 and tf32)


def estimate(problem: Problem, direction: str) -> int:
    """Return the bytes that cuDNN most likely takes for `forward`, the gradient of the input or of the weight."""
    sums = _sums(problem) if direction == "weight" else 0
    if problem.channels_last:
        return _filled_up(problem) + sums
    if problem.is_product and _is_read_in_place(problem):
        return _product(problem, direction)
    if problem.is_depthwise or _is_narrow(problem):
        return 0
    return moved(problem) + sums


def highest(problem: Problem, direction: str) -> int:
    """Return the most bytes that were seen for such a layer."""
    operands = _filled_up(problem) if problem.channels_last else moved(problem)
    for_each_image = _of_each_image(problem) if problem.is_product and direction == "weight" else 0
    return max(operands + 2 * _wave() + _COUNTERS, estimate(problem, direction), for_each_image)


def moved(problem: Problem) -> int:
    """Return the bytes of the operands in channels_last."""
    x, weight, out = problem.filled_nbytes()
    return x + out + (0 if problem.is_of_one_element else weight) + _BESIDE


def _filled_up(problem: Problem) -> int:
    """Return the bytes of input and weight with more channels, where they are too few to be read."""
    x, weight, _out = problem.filled_nbytes()
    few = problem.dtype is torch.float32 and problem.groups == 1 and problem.x[1] % 4
    return x + weight + _BESIDE if not problem.is_of_one_element and (few or x > problem.nbytes()[0]) else 0


def _is_read_in_place(problem: Problem) -> bool:
    return math.prod(problem.x[2:]) * problem.dtype.itemsize % _UNIT == 0


def _product(problem: Problem, direction: str) -> int:
    if direction == "forward":
        return 0
    if simulated().device.capability < (9, 0):
        return problem.nbytes()[0] if direction == "data" else 0
    if direction == "data":
        return 0
    for_each_image = _of_each_image(problem)
    return for_each_image if for_each_image <= 1.1 * moved(problem) else moved(problem) + _sums(problem)


def _of_each_image(problem: Problem) -> int:
    return problem.x[0] * math.prod(problem.weight) * torch.float32.itemsize


def _is_narrow(problem: Problem) -> bool:
    """Return True for few channels in float32 and a kernel that is small, or does not overlap the next."""
    sizes = problem.weight[2:]
    is_small = math.prod(sizes) <= 9 or problem.stride[0] >= sizes[0]
    return problem.dtype is torch.float32 and problem.x[1] < 4 and is_small


def _sums(problem: Problem) -> int:
    """Return the bytes in which the gradient of the weight is summed."""
    outputs, inputs, *sizes = problem.weight
    if problem.is_depthwise:
        of_image = problem.x[1] * math.prod(sizes) * torch.float32.itemsize * _PARTS
        return problem.x[0] * of_image if problem.channels_last and problem.dtype in HALF else 0
    side = TILE // 2 if outputs <= TILE // 2 else TILE
    tiles = math.ceil(outputs / side) * math.ceil(inputs * math.prod(sizes) / side)
    times = simulated().device.num_sms // tiles
    if not times:
        return 0 if problem.dtype in HALF else _wave()
    return times * tiles * side * side * torch.float32.itemsize


def _wave() -> int:
    """Return the bytes of a tile for each multiprocessor."""
    return simulated().device.num_sms * TILE * TILE * torch.float32.itemsize
