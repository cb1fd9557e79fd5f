"""Adapters of peft on a model with frozen weights: LoRA and similar methods, with QLoRA on quantized weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from memlint.base.errors import WorkloadError
from memlint.workloads.quantized import quantized
from memlint.workloads.user_errors import reported

QUANTIZE = "quantize"
"""The one setting that is not peft's: `nf4` or `fp4` for linear layers of 4 bits, as in QLoRA."""
_TYPES = ("nf4", "fp4")


def with_adapter(model: nn.Module, settings: Mapping[str, Any]) -> nn.Module:
    """Return `model` with a peft adapter of `settings`: the fields of its config, by default LoRA's.

    Raises WorkloadError if peft, or bitsandbytes for quantized weights, is missing or rejects the settings.
    """
    fields = {"peft_type": "LORA", **settings}
    quantize = fields.pop(QUANTIZE, None)
    with reported("the adapter needs peft", "Type: pip install peft"):
        import peft  # noqa: PLC0415 - slow, and only needed here
    if quantize is not None:
        if quantize not in _TYPES:
            raise WorkloadError(f"the adapter's {QUANTIZE} is {quantize!r}", f"Write one of {', '.join(_TYPES)}.")
        model = quantized(model, quantize)
    with reported("peft does not take the workload's adapter"):
        adapted: nn.Module = peft.get_peft_model(model, peft.get_peft_config(fields))
    return adapted
