"""One step of a Workload, as a user would write it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parameter import is_lazy

from memlint.accelerator.private import tree_map_only
from memlint.base.errors import WorkloadError
from memlint.base.units import QUANTIZED
from memlint.memory.records import Assumption
from memlint.source.values import shown_arguments
from memlint.targets.strategy import Strategy
from memlint.targets.workload import Workload
from memlint.workloads.construction.generating import generate
from memlint.workloads.construction.optimizers import OptimizerFactory
from memlint.workloads.loss import NamedLoss, kept_loss, mean_of, own_loss
from memlint.workloads.quantized import QUANTIZED_TEXT, quantized
from memlint.workloads.tensors import placed, positional_and_named
from memlint.workloads.user_errors import reported

_CASTS: dict[str, torch.dtype] = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    **dict.fromkeys(QUANTIZED, torch.bfloat16),
}
_WRAPPING = "memlint.distributed.wrapping"
"""Imported only for several ranks: the import of all strategies takes PyTorch a second."""
AUTOCASTS = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}


Loss = Callable[[Any, Mapping[str, Any]], torch.Tensor]
"""Called as `loss(output, inputs)`; returns a scalar."""
Step = Callable[[torch.nn.Module, Mapping[str, Any], torch.optim.Optimizer | None], object]
"""The user's own loop body, called as `step(model, inputs, optimizer)`."""


@dataclass(frozen=True, slots=True)
class Construction:
    """A model on the host, and everything that a step of it needs."""

    model: torch.nn.Module
    inputs: Mapping[str, Any] | None = None
    """Host tensors by parameter name; digits are positions. None if the target gives none; a Program has some."""
    loss: Loss | None = None
    """None: the model's own loss, or the mean of its outputs."""
    optimizer: OptimizerFactory | None = None
    """None: the Workload's optimizer, or no optimizer step."""
    declares_optimizer: bool = False
    """True if the target declares the optimizer, which then overrides the Workload's."""
    step: Step | None = None
    """None: the ordinary step of the mode."""
    assumptions: tuple[Assumption, ...] = ()
    guessed: Mapping[str, object] = field(default_factory=dict)
    """Sizes by name within its arguments that nothing states."""


def sizes_assumed(guessed: Mapping[str, object]) -> Assumption:
    """Return the assumption on sizes of the model that nothing states."""
    return Assumption(f"sizes of the model: {shown_arguments(guessed)}", None)


@dataclass
class Program:
    """A runnable Workload: `setup()` once, then `step()` any number of times, on `device`.

    The code is the same for real and virtual devices.
    """

    workload: Workload
    construct: Callable[[Workload], Construction]
    """Builds everything anew at each `setup`."""
    device: str = "cuda"
    changes: Sequence[Callable[[Program], None]] = ()
    """Changes to the model on the device, applied before the optimizer is created."""
    assumptions: list[Assumption] = field(default_factory=list)
    model: torch.nn.Module | None = None
    called: torch.nn.Module | None = None
    """The module that a step calls: the model, or its wrapper."""
    copies: list[torch.nn.Module] = field(default_factory=list)
    """Averages of the model's weights."""
    optimizer: torch.optim.Optimizer | None = None
    inputs: dict[str, Any] = field(default_factory=dict)
    scaler: torch.amp.GradScaler | None = None
    loss: Loss | None = None
    own_step: Step | None = None
    declares_optimizer: bool = False
    """True if the function that gives the model also gives the optimizer, which then overrides the Workload's."""
    has_invented_loss: bool = False
    """True if a step took the mean of the outputs, because nobody declared a loss."""
    accumulation_steps: int = 1
    """Number of forwards and backwards before each optimizer step; each gets the same inputs."""

    box: Any = None
    """With several ranks, the Mailbox that holds their objects for each other."""

    @property
    def name(self) -> str:
        """The Workload's name."""
        return self.workload.name

    @property
    def compiles(self) -> bool:
        """True if what it asks `torch.compile` for is simulated."""
        return self.workload.compile != "off"

    @property
    def generates(self) -> bool:
        """True if a step is a generation."""
        return self.workload.mode == "generate"

    @property
    def targets(self) -> tuple[torch.Tensor, ...]:
        """The targets of a named loss, once a step was taken."""
        target = self.loss.target if isinstance(self.loss, NamedLoss) else None
        return () if target is None else (target,)

    def as_rank(self, number: int) -> Program:
        """Return the same Program as another rank, with the same box."""
        workload = replace(self.workload, rank=number)
        return Program(workload, self.construct, self.device, self.changes, box=self.box)

    def setup(self) -> None:
        """Build the model on the host, move it and its inputs to the device, create the optimizer.

        Raises WorkloadError for exceptions of the user's code.
        """
        workload = self.workload
        if workload.world_size > 1:
            wrapping = import_module(_WRAPPING)
            self.box = self.box or wrapping.Mailbox()
            wrapping.join(workload.world_size, workload.rank_number, self.box)
        built = self.construct(workload)
        self._assume(*built.assumptions)
        with reported(f"{self.name}: the model cannot be moved to the device"):
            model = self._in_dtype(built.model)
            strategy = Strategy.parse(workload.strategy, workload.world_size) if workload.strategy else None
            if strategy is not None and not dist.is_initialized():
                dist.init_process_group()
            if strategy is not None and strategy.cuts:
                text = wrapping.spread(model, strategy, self.device, AUTOCASTS.get(workload.dtype))
                self._assume(Assumption(text, None))
            self.model = placed(model, self.device)
            self.model.train(workload.mode == "train")
            _freeze(self.model, workload.frozen)
            self.copies = [copy.deepcopy(self.model).requires_grad_(False) for _ in range(workload.copies)]
            self.inputs = tree_map_only(torch.Tensor, self._on_device, dict(built.inputs or {}))
        self._make_lazy_parameters(self.model)
        self.loss, self.own_step = built.loss, built.step
        self.declares_optimizer = built.declares_optimizer
        if self.own_step is not None and self.workload.dtype in AUTOCASTS:
            text = "leaves the weights float32; the step is the program's own and enters autocast itself"
            self._assume(Assumption(f"{self.workload.dtype} {text}", None))
        for change in self.changes:
            change(self)
        self.called = self._divided(self.model, strategy)
        if workload.compile == "on" and not self.generates:
            compiled: Any = torch.compile(self.called)
            self.called = compiled
        if self.workload.mode == "train":
            if built.optimizer is not None:
                self.optimizer = self._made_optimizer(self.model, built.optimizer)
            if self.workload.dtype == "fp16-amp" and self.own_step is None:
                self.scaler = torch.amp.GradScaler(self.device)

    def _make_lazy_parameters(self, model: torch.nn.Module) -> None:
        """Call a model with lazy layers once: the first call makes their parameters, which the optimizer takes."""
        if any(map(is_lazy, model.parameters())):
            with reported(f"{self.name}: the first call of its lazy layers failed"), torch.no_grad():
                positional, named = positional_and_named(self.inputs)
                model(*positional, **named)

    def _divided(self, model: torch.nn.Module, strategy: Strategy | None) -> torch.nn.Module:
        """Return the model in the wrapper that divides batches among several ranks or GPUs, if there is one."""
        num_gpus = self.workload.num_gpus if self.device.startswith("cuda") else 1
        if strategy is not None:
            wrapped: torch.nn.Module = (
                model if strategy.cuts else import_module(_WRAPPING).replicated(model, self.device)
            )
            return wrapped
        with reported(f"{self.name}: its batch cannot be divided among {num_gpus} GPUs"):
            return torch.nn.DataParallel(model, range(num_gpus)) if num_gpus > 1 else model

    def _in_dtype(self, model: torch.nn.Module) -> torch.nn.Module:
        dtype = self.workload.dtype
        model = model.to(_CASTS[dtype]) if dtype in _CASTS else model
        if dtype not in QUANTIZED:
            return model
        self._assume(Assumption(QUANTIZED_TEXT.format(dtype=dtype), None))
        return quantized(model, dtype)

    def _made_optimizer(self, model: torch.nn.Module, make: OptimizerFactory) -> torch.optim.Optimizer:
        if next(model.parameters(), None) is None:
            raise WorkloadError(f"{self.name} has no parameters to train", "Estimate a forward: --mode inference.")
        with reported(f"{self.name}: the optimizer {self.workload.optimizer} cannot be made"):
            return make(model.parameters())

    def step(self) -> None:
        """Take one whole step. Raises WorkloadError for exceptions of the user's code."""
        with reported(f"{self.name}: the step failed"):
            if self.own_step is not None:
                assert self.called is not None
                self.own_step(self.called, self.inputs, self.optimizer)
            elif self.workload.mode == "train":
                self._train_step()
            elif self.generates:
                self._generating_step()
            else:
                self._inference_step()

    def _train_step(self) -> None:
        # As in an ordinary loop, `output` and `loss` stay referenced until the end of the step.
        assert self.called is not None
        if isinstance(self.optimizer, torch.optim.LBFGS):
            self._step_with_closure(self.optimizer)
            return
        positional, named = positional_and_named(self.inputs)
        for _ in range(self.accumulation_steps):
            with self._autocast():
                output = self.called(*positional, **named)
                loss = self._loss(output)
                if self.accumulation_steps > 1:
                    loss = loss / self.accumulation_steps
            if self.scaler is not None:
                self.scaler.scale(loss).backward()
            else:
                loss.backward()
        if self.optimizer is None:
            self.called.zero_grad()
            return
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad()

    def _step_with_closure(self, optimizer: torch.optim.LBFGS) -> None:
        """Take a step with an optimizer that requests the gradients itself, several times a step."""
        if self.scaler is not None:
            raise WorkloadError(
                f"{self.name}: GradScaler does not support closures", "Choose bf16-amp, or another optimizer."
            )
        positional, named = positional_and_named(self.inputs)

        def closure() -> torch.Tensor:
            assert self.called is not None
            optimizer.zero_grad()
            with self._autocast():
                loss = self._loss(self.called(*positional, **named))
            loss.backward()
            return loss

        optimizer.step(closure)

    def _inference_step(self) -> None:
        assert self.called is not None
        positional, named = positional_and_named(self.inputs)
        with torch.no_grad(), self._autocast():
            output = self.called(*positional, **named)
        del output

    def _generating_step(self) -> None:
        with self._autocast():
            output = generate(self.called, self.inputs, self.workload)
        del output

    def _autocast(self) -> AbstractContextManager[object]:
        dtype = AUTOCASTS.get(self.workload.dtype)
        return nullcontext() if dtype is None else torch.autocast(self.device, dtype=dtype)

    def _loss(self, output: Any) -> torch.Tensor:
        """Compute the declared loss, or the model's own loss, or the mean of the outputs."""
        kept = None if self.model is None else kept_loss(self.model, output)
        if kept is not None and own_loss(output) is None and isinstance(self.loss, NamedLoss | None):
            return kept
        if self.loss is not None and (not isinstance(self.loss, NamedLoss) or self.loss.fits(output)):
            loss = self.loss(output, self.inputs)
            if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
                tensor = isinstance(loss, torch.Tensor)
                kind = f"a tensor of shape {list(loss.shape)}" if tensor else f"a {type(loss).__name__}"
                hint = "It is called as loss(output, inputs)."
                raise WorkloadError(f"{self.name}: the loss gives {kind}, not a scalar tensor", hint)
            return loss
        if (own := own_loss(output)) is not None:
            return own
        self.has_invented_loss = True
        other = f": it returns several, and {self.workload.loss} takes one" if isinstance(self.loss, NamedLoss) else ""
        self._assume(Assumption(f"the loss is the mean of the model's outputs{other}", None))
        return mean_of(output, self.model)

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        dtype = _CASTS.get(self.workload.dtype) if tensor.is_floating_point() else None
        return tensor.to(self.device) if dtype is None else tensor.to(self.device, dtype)

    def _assume(self, *assumptions: Assumption) -> None:
        self.assumptions.extend(assumption for assumption in assumptions if assumption not in self.assumptions)


def _freeze(model: torch.nn.Module, names: Collection[str]) -> None:
    """Freeze the modules and parameters of these names; those that the model has not are passed over."""
    parts = {**dict(model.named_modules()), **dict(model.named_parameters())}
    for name in names:
        if name in parts:
            parts[name].requires_grad_(False)
