"""Bytes of a quantized matrix by the method's rules: packed values, scales and zero points.

vLLM 0.19, model_executor/layers/quantization; embeddings and the head stay as they are.
"""

import math
from typing import NamedTuple

from memlint.base.errors import UsageError
from memlint.serving.weights import Weight


class Method(NamedTuple):
    """How values are packed."""

    bits: int
    group: int
    """Values that share a scale: 0 for a row of the matrix."""
    scale_nbytes: int
    zero_bits: int = 0
    """Bits of a zero point beside each scale."""
    only_experts: bool = False
    quantizes_inputs: bool = False


class Experts(NamedTuple):
    """How a rank's matrices of experts are padded: multiples of sizes, as the kernel that multiplies needs them."""

    hidden_size: int
    ranks: int
    hidden: int
    """Multiple of the hidden size."""
    intermediate: int
    """Multiple of a rank's features between two matrices."""
    inputs: int = 1
    """Multiple of the packed values that one output is summed over; the scales have no such padding."""

    def stored(self, weight: Weight) -> tuple[int, int] | None:
        """Return how many values of a matrix of a rank's experts are stored, and how many have scales.

        None for another matrix.
        """
        if len(weight.shape) != 3 or self.hidden_size not in weight.shape[1:]:
            return None
        num_experts, *sides = weight.shape
        features = sides[1] if sides[0] == self.hidden_size else sides[0]
        halves = 2 if "gate_up" in weight.name else 1
        between = halves * _padded(-(-features // (halves * self.ranks)), self.intermediate)
        hidden = _padded(self.hidden_size, self.hidden)
        inputs, outputs = (between, hidden) if "down" in weight.name else (hidden, between)
        return num_experts * outputs * _padded(inputs, self.inputs), num_experts * outputs * inputs


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


_METHODS = {
    "fp8": Method(8, 0, 4, quantizes_inputs=True),
    "int8": Method(8, 0, 4, quantizes_inputs=True),
    "w8a8": Method(8, 0, 4, quantizes_inputs=True),
    "compressed-tensors": Method(8, 0, 4, quantizes_inputs=True),
    "gptq": Method(4, 128, 2, 4),
    "gptq_marlin": Method(4, 128, 2),
    "w4a16": Method(4, 128, 2),
    "awq": Method(4, 128, 2, 4),
    "awq_marlin": Method(4, 128, 2, 4),
    "mxfp4": Method(4, 32, 1, only_experts=True),
    "nvfp4": Method(4, 16, 1),
    "bitsandbytes": Method(4, 64, 4),
}
"""gptq_marlin is symmetric and keeps no zero points; bitsandbytes is nf4 with float32 scales."""


def method_named(name: str) -> Method | None:
    """Return the method of a name, None for no name. Raises UsageError for one that is not known."""
    if not name:
        return None
    if name not in _METHODS:
        raise UsageError(f"--quantization {name} is not known", f"Choose one of: {', '.join(_METHODS)}.")
    return _METHODS[name]


def sizes_of(weight: Weight, itemsize: int, method: Method | None, experts: Experts | None = None) -> list[int]:
    """Return the bytes of the allocations of one weight; `experts` pads those of a method for experts alone."""
    if method is None or not weight.is_matrix or (method.only_experts and len(weight.shape) < 3):
        return [weight.numel * itemsize]
    padded = experts.stored(weight) if experts is not None and method.only_experts else None
    values, scaled = padded or (weight.numel, weight.numel)
    scales = math.ceil(scaled / (method.group or weight.shape[-1]))
    sizes = [math.ceil(values * method.bits / 8), scales * method.scale_nbytes]
    return [*sizes, math.ceil(scales * method.zero_bits / 8)] if method.zero_bits else sizes
