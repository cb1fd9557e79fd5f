"""Linear layers with weights of 8 or 4 bits, as bitsandbytes has them."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from torch import nn

from memlint.workloads.user_errors import reported

_OUTLIER = 6.0
"""Activations above it are multiplied in 16 bits: `llm_int8_threshold` of transformers' BitsAndBytesConfig."""

QUANTIZED_TEXT = "{dtype}: linear layers are those of bitsandbytes, all but the output head, which is in bfloat16"


def quantized(model: nn.Module, kind: str, *, double: bool = True) -> nn.Module:
    """Return `model` with its linear layers in `int8`, `nf4` or `fp4`; the output head stays unchanged.

    In 4 bits each 64 weights share a float32 scale; `double` quantizes the scales as well, as QLoRA does. Raises
    WorkloadError if bitsandbytes is missing.
    """
    with reported("quantized weights need bitsandbytes", "Type: pip install bitsandbytes"):
        layers = import_module("bitsandbytes.nn")
    make = partial(_in_8_bits, layers) if kind == "int8" else partial(_in_4_bits, layers, kind, double)
    whole: Any = model
    head = whole.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and layer is not head:
                small = make(layer)
                small.bias = layer.bias
                setattr(parent, name, small)
    return model


def _in_4_bits(layers: Any, kind: str, double: bool, layer: nn.Linear) -> Any:
    options = {"quant_type": kind, "compress_statistics": double}
    small = layers.Linear4bit(layer.in_features, layer.out_features, layer.bias is not None, device="meta", **options)
    small.weight = layers.Params4bit(layer.weight.data, requires_grad=False, module=small, **options)
    return small


def _in_8_bits(layers: Any, layer: nn.Linear) -> Any:
    sizes, options = (layer.in_features, layer.out_features, layer.bias is not None), {"has_fp16_weights": False}
    small = layers.Linear8bitLt(*sizes, threshold=_OUTLIER, device="meta", **options)
    small.weight = layers.Int8Params(layer.weight.data, requires_grad=False, **options)
    return small
