"""Changes as people would say them."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.whatif.changes import (
    AccumulationSteps,
    AttentionImplementation,
    AutocastTraining,
    BatchSize,
    CheckpointInstead,
    CheckpointModules,
    ChunkedCrossEntropy,
    DropReference,
    FreezeParameters,
    FrozenBatchNorm,
    InPlaceFlag,
    NoGrad,
    OptimizerImplementation,
    ParameterDtype,
    ZeroGradPlacement,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memlint.memory.liveness import Origin
    from memlint.whatif.changes import Change

_PLAIN = {
    "OptimizerInBackward": "step each parameter in backward, with a hook per parameter",
    "ChannelsLast": "convert model and images to channels_last",
}


def describe(  # noqa: C901, PLR0912  (one case for each kind of Change)
    change: Change, modules: Sequence[tuple[str, str]], variables: Mapping[Origin, str]
) -> str:
    """What to do, in the imperative; `modules` as in `Trace`, `variables` say who holds the Buffers of an origin."""
    match change:
        case CheckpointModules(paths=paths):
            return f"checkpoint {_modules(paths, modules)}"
        case CheckpointInstead(paths=paths):
            return f"checkpoint {_modules(paths, modules)}, and nothing else"
        case OptimizerImplementation(fused=True):
            return "construct the optimizer with fused=True"
        case OptimizerImplementation(foreach=foreach):
            return f"construct the optimizer with foreach={foreach}"
        case ZeroGradPlacement(before_forward=before, set_to_none=none):
            place = "right before the forward" if before else "right after the optimizer's step"
            return f"call zero_grad(set_to_none={none}) {place}"
        case FreezeParameters(names=names):
            return f"freeze {len(names)} parameters"
        case NoGrad(paths=paths):
            return f"run {_modules(paths, modules)} under no_grad"
        case FrozenBatchNorm(paths=paths):
            return f"freeze the statistics and weights of {_modules(paths, modules)}"
        case InPlaceFlag(paths=paths, inplace=inplace):
            return f"set inplace={inplace} in {_modules(paths, modules)}"
        case AttentionImplementation(implementation=implementation):
            return f"use the {implementation} attention"
        case AutocastTraining(dtype=dtype):
            return f"train under autocast in {dtype}"
        case ParameterDtype(dtype=dtype):
            return f"keep the parameters in {dtype}"
        case BatchSize(batch=batch):
            return f"take batch {batch}"
        case AccumulationSteps(num_steps=num_steps):
            return f"accumulate the gradients of {num_steps} parts of the batch"
        case ChunkedCrossEntropy(num_chunks=num_chunks):
            return f"compute head and cross-entropy in {num_chunks} checkpointed chunks"
        case DropReference(origins=origins):
            return f"let go of {', '.join(_dropped(each, variables) for each in origins)} after its last use"
    name = type(change).__name__
    return _PLAIN.get(name, f"{name} {dataclasses.astuple(change)}")


def _modules(paths: Sequence[str], modules: Sequence[tuple[str, str]]) -> str:
    kind = dict(modules).get(paths[0], "")
    if len(paths) == 1:
        return f"`{paths[0]}` ({kind})"
    every = "every second one, " if _is_every_second(paths) else ""
    return f"{len(paths)} `{kind}` modules, {every}`{paths[0]}` to `{paths[-1]}`"


def _is_every_second(paths: Sequence[str]) -> bool:
    """Whether the paths are those of layers 0, 2, 4 and so on of one list."""
    numbers = [int(number) if number.isdigit() else -1 for number in (path.rpartition(".")[2] for path in paths)]
    return len({path.rpartition(".")[0] for path in paths}) == 1 and all(
        later - number == 2 for number, later in pairwise(numbers)
    )


def _dropped(origin: Origin, variables: Mapping[Origin, str]) -> str:
    _, frame, _, shape, dtype, _ = origin
    made = f" made at {Path(frame.path).name}:{frame.line}" if frame else ""
    variable = f"`{variables[origin]}`, the " if origin in variables else "the "
    return f"{variable}{dtype} {list(shape)}{made}"
