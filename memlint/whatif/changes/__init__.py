"""All Changes that can be simulated. To add one, add it to the file of its kind, and to CHANGES."""

from memlint.whatif.change import Change
from memlint.whatif.changes.attention_implementation import AttentionImplementation
from memlint.whatif.changes.batch import AccumulationSteps, BatchSize
from memlint.whatif.changes.checkpoint import CheckpointInstead, CheckpointModules
from memlint.whatif.changes.compilation import ActivationBudget, CompileModel, WithoutBreaks, WithoutCompilation
from memlint.whatif.changes.cross_entropy import ChunkedCrossEntropy, FusedCrossEntropy
from memlint.whatif.changes.drop_reference import DropReference
from memlint.whatif.changes.dtype_and_layout import AutocastTraining, ChannelsLast, ParameterDtype
from memlint.whatif.changes.eight_bits import DoubleQuantization, EightBitOptimizer
from memlint.whatif.changes.frozen import FreezeParameters, FrozenBatchNorm, NoGrad, NoGradInEvaluation, WithoutGraph
from memlint.whatif.changes.optimizer import OptimizerImplementation, OptimizerInBackward, ZeroGradPlacement
from memlint.whatif.changes.reset_gradients import ResetGradientsWithGraph
from memlint.whatif.changes.rewrapping import (
    CheckpointAroundHooks,
    GradientsAsBucketViews,
    ReduceInEveryBackward,
    ReduceInParameterDtype,
    ReshardAfterForward,
    ReshardRoot,
    ShardBlocks,
    WithoutOffload,
    WithoutUnusedSearch,
)
from memlint.whatif.changes.selective_checkpoint import CheckpointSelectively
from memlint.whatif.changes.switches import DecodeInParts, InPlaceFlag, OnlyTheOutput, WithoutDropout

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
