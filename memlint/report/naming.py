"""What several renderers call the same things."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Measure = Literal["requested", "allocated", "reserved", "device"]

MEASURES: dict[Measure, str] = {
    "requested": "what tensors ask for",
    "allocated": "torch.cuda.max_memory_allocated",
    "reserved": "torch.cuda.max_memory_reserved",
    "device": "nvidia-smi: reserved and the CUDA context",
}
"""The four peaks, and what to compare each with."""


_ENVIRONMENT = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
"""Where packages are installed: long, and of interest to nobody who reads a table."""


def place_text(path: str | None, line: int | None = None) -> str:
    """`path:line`; empty for what no line of the program made. Installed packages begin with their own name."""
    if path is None:
        return ""
    short = _ENVIRONMENT.sub("", path)
    return short if line is None else f"{short}:{line}"


def tensor_text(dtype: str, shape: Sequence[int]) -> str:
    """`bfloat16[8, 1024, 768]`; empty where the dtype is not known."""
    return f"{dtype}[{', '.join(map(str, shape))}]" if dtype else ""
