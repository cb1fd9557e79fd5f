"""All Changes that can be simulated. To add one, add a file here and an entry in CHANGES."""

from memlint.whatif.change import Change
from memlint.whatif.changes.activation_budget import ActivationBudget
from memlint.whatif.changes.attention_implementation import AttentionImplementation
from memlint.whatif.changes.batch import AccumulationSteps, BatchSize
from memlint.whatif.changes.checkpoint import CheckpointInstead, CheckpointModules
from memlint.whatif.changes.chunked_cross_entropy import ChunkedCrossEntropy
from memlint.whatif.changes.compilation import CompileModel, WithoutBreaks, WithoutCompilation
from memlint.whatif.changes.decode_in_parts import DecodeInParts
from memlint.whatif.changes.double_quantization import DoubleQuantization
from memlint.whatif.changes.drop_reference import DropReference
from memlint.whatif.changes.dtype_and_layout import AutocastTraining, ChannelsLast, ParameterDtype
from memlint.whatif.changes.eight_bit_optimizer import EightBitOptimizer
from memlint.whatif.changes.frozen import FreezeParameters, FrozenBatchNorm, NoGrad, NoGradInEvaluation
from memlint.whatif.changes.fused_cross_entropy import FusedCrossEntropy
from memlint.whatif.changes.gradient_sync import ReduceInEveryBackward
from memlint.whatif.changes.in_place_flag import InPlaceFlag
from memlint.whatif.changes.only_the_output import OnlyTheOutput
from memlint.whatif.changes.optimizer import OptimizerImplementation, OptimizerInBackward, ZeroGradPlacement
from memlint.whatif.changes.reset_gradients import ResetGradientsWithGraph
from memlint.whatif.changes.reshard_root import ReshardRoot
from memlint.whatif.changes.rewrapping import (
    CheckpointAroundHooks,
    GradientsAsBucketViews,
    ReduceInParameterDtype,
    ReshardAfterForward,
    ShardBlocks,
    WithoutOffload,
    WithoutUnusedSearch,
)
from memlint.whatif.changes.selective_checkpoint import CheckpointSelectively
from memlint.whatif.changes.without_dropout import WithoutDropout
from memlint.whatif.changes.without_graph import WithoutGraph

CHANGES: tuple[type[Change], ...] = (
    OptimizerImplementation,
    OptimizerInBackward,
    ZeroGradPlacement,
    EightBitOptimizer,
    DoubleQuantization,
    ParameterDtype,
    CheckpointModules,
    FusedCrossEntropy,
    ChunkedCrossEntropy,
    ActivationBudget,
    CompileModel,
    WithoutBreaks,
    WithoutCompilation,
    AttentionImplementation,
    AutocastTraining,
    InPlaceFlag,
    FrozenBatchNorm,
    AccumulationSteps,
    BatchSize,
    CheckpointInstead,
    CheckpointSelectively,
    ChannelsLast,
    FreezeParameters,
    NoGrad,
    NoGradInEvaluation,
    WithoutGraph,
    OnlyTheOutput,
    WithoutDropout,
    DecodeInParts,
    ResetGradientsWithGraph,
    DropReference,
    GradientsAsBucketViews,
    WithoutUnusedSearch,
    ShardBlocks,
    ReshardAfterForward,
    ReduceInParameterDtype,
    WithoutOffload,
    CheckpointAroundHooks,
    ReduceInEveryBackward,
    ReshardRoot,
)
"""Changes in the order in which a plan tries them; of Changes with the same effect, it takes the first."""
