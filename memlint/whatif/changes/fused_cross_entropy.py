"""The cross-entropy of a Linear's output, computed with it by Liger's kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Self

from memlint.whatif.change import Change, Effect, NotApplicableError, Situation
from memlint.whatif.changes.chunked_cross_entropy import put_off

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class FusedCrossEntropy(Change):
    """Compute the last Linear and its cross-entropy by Liger's fused kernel, which computes the gradients at once.

    Not applicable if liger_kernel is not installed.
    """

    text: ClassVar[str] = "compute head and cross-entropy by liger_kernel's LigerFusedLinearCrossEntropyLoss"
    effect: ClassVar[Effect] = Effect.NUMERICS

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if is_installed() and situation.is_training and situation.runs("_log_softmax."):
            yield cls()

    def after_setup(self, program: Any) -> None:
        if not is_installed():
            raise NotApplicableError
        # Import now: an error logged during the import would keep the frames of a step, and their tensors.
        make = import_module("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss
        put_off(program, "", partial(_fused, make))


def is_installed() -> bool:
    """Return True if Liger can be imported."""
    return find_spec("liger_kernel") is not None


def _fused(
    make: Any, head: nn.Linear, hidden: Tensor, target: Tensor, *, ignore_index: int, label_smoothing: float
) -> Tensor:
    loss = make(ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="sum")
    total: Tensor = loss(head.weight, hidden, target, head.bias)
    return total
