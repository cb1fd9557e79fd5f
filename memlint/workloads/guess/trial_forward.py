"""Trial calls of a model with guessed inputs, and how far they get."""

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import nn

from memlint.accelerator.private import storage_address, tree_leaves, tree_map_only
from memlint.base.frames import text_of
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.targets.workload import InputSpec
from memlint.workloads.receiving_layers import ENTRIES
from memlint.workloads.tensors import make_inputs, positional_and_named

_OF_HALF = re.compile(r"only supports? (fp16|float16|half) (and|or) (bf16|bfloat16)", re.IGNORECASE)
TRIAL_BATCH = 2
"""Enough for BatchNorm in training mode, and different from other sizes."""


@dataclass
class Trial:
    """One call of a model and its outcome."""

    specs: tuple[InputSpec, ...]
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the names in the specs."""
    error: Exception | None = None
    output: object = None
    progress: int = 0
    """Number of layers that finished."""
    layer: nn.Module | None = None
    """The layer that raised; None if the error came from code between layers."""
    received: tuple[int, ...] = ()
    """Shape of that layer's input."""
    fed: str | None = None
    """Kind of the model's layer that produced the failing layer's input; None if the input came from elsewhere."""
    entries: dict[str, nn.Module] = field(default_factory=dict)
    """For each input, the first layer that got it or a view of it."""
    first: nn.Module | None = None
    """The first layer that was called."""
    module: nn.Module | None = None
    """The innermost user module whose code raised."""
    inputs_in_scope: frozenset[str] = frozenset()
    """Inputs held by variables of that code."""
    with_more: Exception | None = None
    """For a batch of 1: the error with a larger one."""


class TrialModel:
    """A model on a device, ready for trials."""

    def __init__(self, model: nn.Module, device: str) -> None:
        self.model = model
        self.device = device
        self._trial = Trial(())
        self._storages: Mapping[int, str] = {}
        self._running: list[tuple[nn.Module, tuple[int, ...]]] = []
        self._widths: dict[int, str] = {}
        self._needs_half = False
        """True for a model whose kernels take float16 and bfloat16 alone: it is tried in autocast."""

    @contextmanager
    def watched(self) -> Iterator[Self]:
        """Record which of the model's layers are called within this context."""
        hooks = []
        for module in self.model.modules():
            if isinstance(module, ENTRIES) or not any(True for _ in module.children()):
                with suppress(RuntimeError):  # of a module of TorchScript, which has none
                    hooks.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                    hooks.append(module.register_forward_hook(self._leave))
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def attempt(
        self,
        specs: Sequence[InputSpec],
        dimensions: Mapping[str, int] | None = None,
        *,
        grad: bool = False,
        batch: int = TRIAL_BATCH,
    ) -> Trial:
        """Call the model once with inputs of `specs`; the Trial holds its exception."""
        trial = self._trial = Trial(tuple(specs), dimensions or {})
        inputs = tree_map_only(
            torch.Tensor,
            lambda tensor: tensor.to(self.device),
            make_inputs(specs, batch, trial.dimensions),
        )
        self._storages = {
            storage_address(leaf.untyped_storage()): name
            for name, leaf in _leaves(inputs, frozenset(spec.name for spec in specs))
            if isinstance(leaf, torch.Tensor)
        }
        self._running, self._widths = [], {}
        positional, named = positional_and_named(inputs)
        try:
            with torch.set_grad_enabled(grad), torch.autocast(self.device, torch.bfloat16, self._needs_half):
                trial.output = self.model(*positional, **named)
        except Exception as error:
            if not self._needs_half and _OF_HALF.search(text_of(error)):
                self._needs_half = True
                return self.attempt(specs, dimensions, grad=grad, batch=batch)
            trial.error = unknown_attribute(error) or error
            if self._running:
                trial.layer, trial.received = self._running[-1]
                own = {size for spec in trial.specs for size in spec.shape}
                if trial.received and trial.received[-1] not in own:
                    trial.fed = self._widths.get(trial.received[-1])
            trial.module, trial.inputs_in_scope = self._place_of(error)
        return trial

    def _place_of(self, error: Exception) -> tuple[nn.Module | None, frozenset[str]]:
        """Return the innermost user module that raised, and the inputs in its variables."""
        place: tuple[nn.Module | None, frozenset[str]] = None, frozenset()
        for frame, _line in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self")
            if isinstance(owner, nn.Module) and not type(owner).__module__.startswith("torch."):
                tensors = [each for each in frame.f_locals.values() if isinstance(each, torch.Tensor)]
                names = (self._storages.get(storage_address(each.untyped_storage())) for each in tensors)
                place = owner, frozenset(filter(None, names))
        return place

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = [value for value in (*arguments, *named.values()) if isinstance(value, torch.Tensor)]
        if not tensors:
            return
        self._running.append((module, tuple(tensors[0].shape)))
        if not isinstance(module, ENTRIES):
            return
        if self._trial.first is None:
            self._trial.first = module
        for tensor in tensors:
            name = self._storages.get(storage_address(tensor.untyped_storage()))
            if name is not None:
                self._trial.entries.setdefault(name, module)

    def _leave(self, module: nn.Module, *_: object) -> None:
        self._trial.progress += 1
        if isinstance(module, nn.Linear):
            self._widths[module.out_features] = f"a Linear({module.in_features}, {module.out_features})"
        if self._running and self._running[-1][0] is module:
            self._running.pop()


def _leaves(inputs: Mapping[str, Any], names: Set[str], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values in `inputs`, each with the longest of `names` that leads there."""
    for key, value in inputs.items():
        name = f"{prefix}{key}"
        entries = dict(enumerate(value)) if isinstance(value, tuple | list) else value
        if isinstance(entries, Mapping) and any(each.startswith(f"{name}.") for each in names):
            yield from _leaves({str(k): each for k, each in entries.items()}, names, f"{name}.")
        else:
            yield from ((name, leaf) for leaf in tree_leaves(value))
