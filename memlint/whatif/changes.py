"""Changes of a program that a rule can ask to have simulated.

Each says in `effect` what it does to training, and nothing of how it is carried out: `transforms` does that, on a
fresh program, and raises NotApplicableError where the Change means nothing for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from memlint.memory.liveness import Origin


class NotApplicableError(Exception):
    """The Change means nothing for this program."""


class Effect(StrEnum):
    """What a Change does to the numbers that training computes."""

    EXACT = "exact"
    """Every value stays what it was."""
    NUMERICS = "numerics"
    """The same formulas, rounded otherwise: another dtype, kernel or order of sums."""
    DYNAMICS = "dynamics"
    """Training takes another way: another batch, fewer trained parameters, weights of another precision."""


@dataclass(frozen=True, slots=True)
class CheckpointModules:
    """Run the modules at these paths under `torch.utils.checkpoint.checkpoint`."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.EXACT


@dataclass(frozen=True, slots=True)
class CheckpointInstead:
    """Run the modules at these paths under checkpoint, and nothing else that the program checkpoints itself."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.EXACT


@dataclass(frozen=True, slots=True)
class OptimizerImplementation:
    """Construct the optimizer with these arguments; None leaves one as it is."""

    foreach: bool | None = None
    fused: bool | None = None
    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class OptimizerInBackward:
    """Step each parameter and drop its gradient as soon as backward has accumulated it.

    Means nothing where gradients are clipped, scaled or accumulated, which need all of them together.
    """

    effect: ClassVar[Effect] = Effect.EXACT


@dataclass(frozen=True, slots=True)
class ZeroGradPlacement:
    """Zero the gradients right before the next forward, or right after the optimizer's step."""

    before_forward: bool
    set_to_none: bool = True
    """Whether gradients are let go of, or filled with zeros."""
    effect: ClassVar[Effect] = Effect.EXACT


@dataclass(frozen=True, slots=True)
class ChannelsLast:
    """Convert the model and its 4-d inputs to `torch.channels_last`."""

    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class FreezeParameters:
    """Let no gradients be computed for the parameters of these qualified names."""

    names: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS


@dataclass(frozen=True, slots=True)
class NoGrad:
    """Run the modules at these paths under `torch.no_grad`; the root is the empty path.

    Where nothing is trained through them it is exact, which only the caller can know.
    """

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS


@dataclass(frozen=True, slots=True)
class FrozenBatchNorm:
    """Put a fixed scale and shift, made of the running statistics, in the place of the BatchNorm2d at these paths."""

    paths: tuple[str, ...]
    effect: ClassVar[Effect] = Effect.DYNAMICS


@dataclass(frozen=True, slots=True)
class InPlaceFlag:
    """Set `inplace` of the activation modules at these paths."""

    paths: tuple[str, ...]
    inplace: bool
    effect: ClassVar[Effect] = Effect.EXACT


@dataclass(frozen=True, slots=True)
class AttentionImplementation:
    """Choose the attention of models of transformers (`set_attn_implementation`) and timm (`fused_attn`)."""

    implementation: Literal["sdpa", "eager"]
    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class AutocastTraining:
    """Run forward and loss under `torch.autocast`, with a gradient scaler for float16."""

    dtype: Literal["bfloat16", "float16"]
    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class ParameterDtype:
    """Cast the model and its floating-point inputs; gradients and optimizer state follow."""

    dtype: Literal["bfloat16", "float16"]
    effect: ClassVar[Effect] = Effect.DYNAMICS


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Take steps of another batch."""

    batch: int
    effect: ClassVar[Effect] = Effect.DYNAMICS


@dataclass(frozen=True, slots=True)
class AccumulationSteps:
    """Cut the batch into this many equal parts, whose gradients are added before the optimizer steps.

    Statistics of BatchNorm are then those of a part.
    """

    num_steps: int
    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class ChunkedCrossEntropy:
    """Compute the last Linear and the cross-entropy of it together, in checkpointed chunks of the positions.

    The logits do not come to exist as a whole, so a model that returns them returns nothing in their place.
    """

    num_chunks: int
    head: str = ""
    """Path of the Linear; empty for the one with most outputs."""
    effect: ClassVar[Effect] = Effect.NUMERICS


@dataclass(frozen=True, slots=True)
class DropReference:
    """Let go of the Buffers of these origins right after their last use, in every step: an edit of lifetimes."""

    origins: tuple[Origin, ...]
    effect: ClassVar[Effect] = Effect.EXACT


Change: TypeAlias = (
    CheckpointModules
    | CheckpointInstead
    | OptimizerImplementation
    | OptimizerInBackward
    | ZeroGradPlacement
    | ChannelsLast
    | FreezeParameters
    | NoGrad
    | FrozenBatchNorm
    | InPlaceFlag
    | AttentionImplementation
    | AutocastTraining
    | ParameterDtype
    | BatchSize
    | AccumulationSteps
    | ChunkedCrossEntropy
    | DropReference
)
