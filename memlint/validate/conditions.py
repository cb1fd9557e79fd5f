"""PyTorch's global settings while a Workload runs, and what may be missing for it to run."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from memlint.base.frames import chain
from memlint.validate.measurement import Conditions, Flags

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def under(conditions: Conditions) -> Iterator[None]:
    """Set PyTorch's global settings as `conditions` say."""
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision(conditions.matmul_precision)
    torch.backends.cudnn.benchmark = conditions.cudnn_benchmark
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


def flags_now() -> Flags:
    """PyTorch's global settings as they are."""
    cudnn = torch.backends.cudnn
    return Flags(
        matmul_precision=torch.get_float32_matmul_precision(),
        cudnn_enabled=cudnn.enabled,
        cudnn_benchmark=cudnn.benchmark,
        cudnn_deterministic=cudnn.deterministic,
        cudnn_allow_tf32=cudnn.allow_tf32,
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
    )


def reason_to_skip(error: BaseException) -> str | None:
    """Why a Workload cannot run here through no fault of its own, or None."""
    for link in chain(error):
        if isinstance(link, torch.OutOfMemoryError):
            return "too big for this GPU"
        if isinstance(link, ModuleNotFoundError):
            return f"the package {link.name} is not installed"
    return None
