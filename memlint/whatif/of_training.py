"""Changes of how a step is taken: its batch and dtype before setup, its optimizer after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from memlint.whatif.changes import NotApplicableError
from memlint.whatif.of_modules import model_of
from memlint.workloads.build.program import Program
from memlint.workloads.spec import BATCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from memlint.whatif.changes import (
        AccumulationSteps,
        AutocastTraining,
        BatchSize,
        OptimizerImplementation,
        OptimizerInBackward,
        ParameterDtype,
        ZeroGradPlacement,
    )

_AMP = {"bfloat16": "bf16-amp", "float16": "fp16-amp"}
_TOGETHER = frozenset({"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "unscale_", "GradScaler"})
"""What a loop says that needs the gradients of all parameters at one time."""

# --- before setup: the Workload is another


def with_dtype(program: Any, change: ParameterDtype) -> None:
    """Build the model in another dtype."""
    program = _in_float32(program)
    program.workload = replace(program.workload, dtype=change.dtype)


def with_autocast(program: Any, change: AutocastTraining) -> None:
    """Take the step under autocast; a loop of the user's own gets it in `autocast_own_step`."""
    program = _in_float32(program)
    program.workload = replace(program.workload, dtype=_AMP[change.dtype])


def with_batch(program: Any, change: BatchSize) -> None:
    """Build model and inputs for another batch."""
    program = _declared(program)
    inputs = program.workload.inputs
    if inputs is not None and not any(BATCH in spec.shape or "[]" in spec.name for spec in inputs):
        raise NotApplicableError
    program.workload = replace(program.workload, batch=change.batch)


def with_smaller_batch(program: Any, change: AccumulationSteps) -> None:
    """Build inputs for one part of the batch, and take as many steps of it before the optimizer's."""
    program = _declared(program)
    batch = program.workload.batch
    if program.workload.mode != "train" or change.num_steps < 2 or batch % change.num_steps:
        raise NotApplicableError
    inputs = program.workload.inputs
    if inputs is not None and not any(BATCH in spec.shape or "[]" in spec.name for spec in inputs):
        raise NotApplicableError
    program.workload = replace(program.workload, batch=batch // change.num_steps)
    program.accumulation_steps = change.num_steps


def _declared(program: Any) -> Program:
    if not isinstance(program, Program):
        raise NotApplicableError
    return program


def _in_float32(program: Any) -> Program:
    declared = _declared(program)
    if declared.workload.dtype != "float32":
        raise NotApplicableError
    return declared


# --- after setup


def autocast_own_step(program: Program, change: AutocastTraining) -> None:
    """In a loop of the user's own the model is called under autocast; a scaler for float16 it would have to write."""
    if program.own_step is None:
        return
    if change.dtype == "float16":
        raise NotApplicableError
    model = model_of(program)
    model.forward = torch.autocast(program.device, dtype=torch.bfloat16)(model.forward)


def refuse_own_step(program: Program, _change: AccumulationSteps) -> None:
    """What a loop of the user's own does with its batch nobody knows."""
    if program.own_step is not None:
        raise NotApplicableError


def optimizer_implementation(program: Any, change: OptimizerImplementation) -> None:
    """The optimizer is made again with other arguments."""
    optimizer = program.optimizer
    wanted = {
        name: value for name, value in (("foreach", change.foreach), ("fused", change.fused)) if value is not None
    }
    if optimizer is None or not all(name in optimizer.defaults for name in wanted):
        raise NotApplicableError
    defaults = {**optimizer.defaults, "foreach": None, "fused": None, **wanted}
    known = {k: v for k, v in defaults.items() if k in optimizer.defaults}
    groups = [{k: v for k, v in group.items() if k not in wanted} for group in optimizer.param_groups]
    program.optimizer = _rebuilt(optimizer, groups, known)


def optimizer_in_backward(program: Any, _change: OptimizerInBackward) -> None:
    """Each parameter gets an optimizer of its own, which a hook steps; the step of the whole finds nothing to do."""
    optimizer = program.optimizer
    own_step = getattr(program, "own_step", None)
    if optimizer is None or getattr(program, "scaler", None) is not None:
        raise NotApplicableError
    if getattr(program, "accumulation_steps", 1) > 1 or _TOGETHER.intersection(_names(own_step)):
        raise NotApplicableError
    program.optimizer = _PerParameter(optimizer)


def zero_grad_placement(program: Any, change: ZeroGradPlacement) -> None:
    """The program's own calls of `zero_grad` do nothing; hooks zero the gradients at the place asked for."""
    optimizer, model = program.optimizer, model_of(program)
    if optimizer is None:
        raise NotApplicableError
    zero_grad = optimizer.zero_grad
    optimizer.zero_grad = _do_nothing
    model.zero_grad = _do_nothing  # type: ignore[method-assign]
    stepped = []

    def after_step(*_: Any) -> None:
        if change.before_forward:
            stepped.append(True)
        else:
            zero_grad(set_to_none=change.set_to_none)

    def before_forward(*_: Any) -> None:
        if stepped:
            stepped.clear()
            zero_grad(set_to_none=change.set_to_none)

    optimizer.register_step_post_hook(after_step)
    model.register_forward_pre_hook(before_forward)


class _PerParameter:
    """Stands for an optimizer whose parameters are stepped one by one in backward."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.param_groups, self.defaults = optimizer.param_groups, optimizer.defaults
        self._parts: list[torch.optim.Optimizer] = []
        self._stepped: set[torch.Tensor] = set()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    part = _rebuilt(optimizer, [{**group, "params": [parameter]}], optimizer.defaults)
                    self._parts.append(part)
                    parameter.register_post_accumulate_grad_hook(self._hook(part))
        optimizer.state.clear()  # some optimizers make it at once

    @property
    def state(self) -> dict[Any, Any]:
        """What the optimizers of all parameters keep."""
        return {parameter: state for part in self._parts for parameter, state in part.state.items()}

    def step(self) -> None:
        """Everything was done in backward."""
        self._stepped.clear()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """No gradient is left."""

    def _hook(self, part: torch.optim.Optimizer) -> Any:
        def step(parameter: torch.Tensor) -> None:
            if parameter in self._stepped:  # a second backward before the optimizer's step: gradients are accumulated
                raise NotApplicableError
            self._stepped.add(parameter)
            part.step()
            part.zero_grad()

        return step


def _rebuilt(optimizer: Any, groups: Any, defaults: Any) -> Any:
    """An optimizer of the same class and options; `decoupled_weight_decay` is set by some classes themselves."""
    options = {k: v for k, v in defaults.items() if k != "decoupled_weight_decay" or type(optimizer).__name__ == "Adam"}
    try:
        return type(optimizer)(groups, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise NotApplicableError from error


def _do_nothing(*_: Any, **__: Any) -> None:
    """Stand for a call that another place makes."""


def _names(function: Any) -> Iterator[str]:
    """Every name that the code of a function mentions, in functions inside it too."""
    codes: list[CodeType] = [function.__code__] if hasattr(function, "__code__") else []
    for code in codes:
        yield from code.co_names
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
