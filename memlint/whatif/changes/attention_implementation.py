"""Another attention implementation, chosen by the libraries' own switches."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from memlint.memory.records import Buffer, Category, Trace
from memlint.whatif.change import Change, Effect, Names, NotApplicableError, Situation, model_of

_HALF = {"float16", "bfloat16"}
_KERNELS = ("aten._scaled_dot_product_", "aten._softmax.")
_OF_ATTENTION = (Category.ACTIVATION, Category.TEMPORARY)


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
    has_attention = any(node.op.startswith(_KERNELS) for node in trace.nodes)
    return has_attention and any(buffer.dtype in _HALF for buffer in trace.buffers)


def most_saved_by_flash(trace: Trace, at_peak: Iterable[Buffer]) -> int:
    """Return an upper bound of the bytes by which FlashAttention lowers the peak, without another trace.

    The same code runs beside it, so that the other parts of the model, and the layers around the attentions, leave the
    same bytes alive at the same place. Masks are made in the attentions, or in what holds the layers.
    """
    kernels = [node for node in trace.nodes if node.op.startswith(_KERNELS)]
    modules = {node.module for node in kernels}
    layers = {module.rpartition(".")[0] for module in modules} - {""}
    around = {parent for layer in layers for parent in _parents(layer)} | {""}
    attentions = tuple(f"{module}." for module in modules)
    read = {each.buffer for node in kernels for each in node.inputs}
    return sum(
        buffer.nbytes
        for buffer in at_peak
        if buffer.category in _OF_ATTENTION
        and (buffer.id in read or buffer.module in around or f"{buffer.module}.".startswith(attentions))
    )


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition(".")[0]:
        yield path
