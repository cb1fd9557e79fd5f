"""Another attention implementation, chosen by the libraries' own switches."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from memlint.memory.records import Trace
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of

_HALF = {"float16", "bfloat16"}


@dataclass(frozen=True, slots=True)
class AttentionImplementation(Change):
    """Choose the attention of models of transformers (`set_attn_implementation`) and timm (`fused_attn`).

    Not applicable if no switch can be changed.
    """

    implementation: Literal["sdpa", "eager", "flash_attention_2"]
    effect: ClassVar[Effect] = Effect.NUMERICS

    def describe(self, _names: Names) -> str:
        return f"use the {self.implementation} attention"

    @classmethod
    def candidates(cls, situation: Situation) -> Iterator[Self]:
        if not situation.is_in_optimizer and situation.runs("_softmax."):
            yield cls("sdpa")
        if not situation.is_in_optimizer and is_for_flash(situation.trace):
            yield cls("flash_attention_2")

    def after_setup(self, program: Any) -> None:
        model = model_of(program)
        is_switched = self._switch_transformers(model)
        is_fused = self.implementation != "eager"
        for module in model.modules():
            if isinstance(getattr(module, "fused_attn", None), bool) and module.fused_attn != is_fused:
                module.fused_attn = is_fused  # type: ignore[assignment]
                is_switched = True
        if not is_switched:
            raise NotApplicableError

    def _switch_transformers(self, model: Any) -> bool:
        is_switched = False
        for module in model.modules():
            current = getattr(getattr(module, "config", None), "_attn_implementation", None)
            if current in {None, self.implementation} or not hasattr(module, "set_attn_implementation"):
                continue
            try:
                module.set_attn_implementation(self.implementation)
            except (ValueError, ImportError, AttributeError) as error:
                raise NotApplicableError from error
            # A model that does not support it only warns.
            is_switched |= module.config._attn_implementation == self.implementation
        return is_switched


def is_for_flash(trace: Trace) -> bool:
    """Return True if some attention writes scores or is PyTorch's own, and its data suits FlashAttention."""
    has_attention = any(node.op.startswith(("aten._scaled_dot_product_", "aten._softmax.")) for node in trace.nodes)
    return has_attention and any(buffer.dtype in _HALF for buffer in trace.buffers)
