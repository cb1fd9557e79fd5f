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


def sizes_of(weight: Weight, itemsize: int, method: Method | None) -> list[int]:
    """Return the bytes of the allocations of one weight."""
    if method is None or not weight.is_matrix or (method.only_experts and len(weight.shape) < 3):
        return [weight.numel * itemsize]
    row = weight.shape[-1]
    scales = math.ceil(weight.numel / (method.group or row))
    sizes = [math.ceil(weight.numel * method.bits / 8), scales * method.scale_nbytes]
    return [*sizes, math.ceil(scales * method.zero_bits / 8)] if method.zero_bits else sizes
