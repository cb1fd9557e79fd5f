"""The cross-entropy of a Linear's output, computed in chunks or by Liger's kernel: logits never exist as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from memlint.base.patching import patched
from memlint.base.signatures import signature_of
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of, run_within

if TYPE_CHECKING:
    from torch import Tensor, nn

NUM_CHUNKS = 8
"""Number of chunks that a plan tries."""
Loss: TypeAlias = "Callable[..., Tensor]"
"""Returns the sum over positions, from a Linear, its inputs [positions, width], targets, `ignore_index`,
`label_smoothing`."""


@dataclass(frozen=True, slots=True)
class ChunkedCrossEntropy(Change):
    """Compute the last Linear and the cross-entropy of it together, in checkpointed chunks of the positions.

    The logits never exist as a whole, so a model that returns them returns a placeholder instead.
    """

    num_chunks: int
    head: str = ""
    """Path of the Linear; empty for the one with the most outputs."""
    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        return f"compute head and cross-entropy in {self.num_chunks} checkpointed chunks"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if situation.is_training and not situation.is_in_optimizer and situation.runs("_log_softmax."):
            yield cls(NUM_CHUNKS)

    def after_setup(self, program: Any) -> None:
        if self.num_chunks < 2:
            raise NotApplicableError
        _put_off(program, self.head, partial(_of_chunks, num_chunks=self.num_chunks))


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
        _put_off(program, "", partial(_fused, make))


def is_installed() -> bool:
    """Return True if Liger can be imported."""
    return find_spec("liger_kernel") is not None


def _put_off(program: Any, path: str, loss: Loss) -> None:
    """Compute the cross-entropy of a Linear's output by `loss`; without a path, of the Linear with the most outputs."""
    from torch import nn

    linears = {
        name: module
        for name, module in model_of(program).named_modules()
        if isinstance(module, nn.Linear) and path in {"", name}
    }
    if not linears:
        raise NotApplicableError
    head = max(reversed(linears.values()), key=lambda linear: linear.out_features)
    late = _DeferredLinear(head, loss)
    head.forward = late.forward  # type: ignore[assignment, method-assign]
    run_within(program, late.computed)


def _of_chunks(
    head: nn.Linear, hidden: Tensor, target: Tensor, *, num_chunks: int, ignore_index: int, label_smoothing: float
) -> Tensor:
    import torch
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    def of_chunk(hidden: Tensor, target: Tensor) -> Tensor:
        logits = functional.linear(hidden, head.weight, head.bias).float()
        return functional.cross_entropy(
            logits, target, ignore_index=ignore_index, reduction="sum", label_smoothing=label_smoothing
        )

    chunks = zip(hidden.chunk(num_chunks), target.chunk(num_chunks), strict=True)
    return torch.stack([checkpoint(of_chunk, h, t, use_reentrant=False) for h, t in chunks]).sum()


def _fused(
    make: Any, head: nn.Linear, hidden: Tensor, target: Tensor, *, ignore_index: int, label_smoothing: float
) -> Tensor:
    loss = make(ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="sum")
    total: Tensor = loss(head.weight, hidden, target, head.bias)
    return total


class _DeferredCall(NamedTuple):
    """A call of the Linear whose product is not computed; `logits` stands for the result and holds one element."""

    logits: Tensor
    hidden: Tensor


class _DeferredLinear:
    """Defers the Linear until the cross-entropy needs it."""

    def __init__(self, head: nn.Linear, loss: Loss) -> None:
        from torch.nn import functional

        self.head = head
        self.sum_of = loss
        self.waiting: list[_DeferredCall] = []
        self.cross_entropy = functional.cross_entropy

    def forward(self, hidden: Tensor) -> Tensor:
        """Return a tensor of the logits' shape that takes no memory; float32, as losses cast to. Only in training."""
        import torch

        if not torch.is_grad_enabled():
            return type(self.head).forward(self.head, hidden)
        logits = torch.empty((), device=hidden.device).expand(*hidden.shape[:-1], self.head.out_features)
        self.waiting.append(_DeferredCall(logits, hidden))
        return logits

    def loss(self, *args: Any, **kwargs: Any) -> Tensor:
        """Replace `torch.nn.functional.cross_entropy`."""
        bound = signature_of(self.cross_entropy).bind(*args, **kwargs)
        bound.apply_defaults()
        logits, target, weight, _, ignore_index, _, reduction, label_smoothing = bound.arguments.values()
        call = next((each for each in self.waiting if _share(each.logits, logits)), None)
        if call is None:
            return self.cross_entropy(*args, **kwargs)
        hidden = call.hidden.flatten(0, -2)
        classes_last = logits.dim() == 2 and logits.shape == (len(hidden), self.head.out_features)
        if not classes_last or target.dim() != 1 or weight is not None or reduction not in {"mean", "sum"}:
            raise NotApplicableError
        self.waiting.remove(call)
        options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        total = self.sum_of(self.head, hidden, target, **options)
        return total / (target != ignore_index).sum() if reduction == "mean" else total

    @contextmanager
    def computed(self) -> Iterator[None]:
        """Replace cross-entropy inside the block; raises NotApplicableError if a deferred product was never used."""
        from torch.nn import functional

        try:
            with patched([(functional, "cross_entropy", self.loss)]):
                yield
            if self.waiting:
                raise NotApplicableError
        finally:
            self.waiting.clear()


def _share(a: Tensor, b: Tensor) -> bool:
    from memlint.accelerator.private import storage_address

    return storage_address(a.untyped_storage()) == storage_address(b.untyped_storage())
