"""Inputs beside the required ones: what the training loop feeds, and in training labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from memlint.accelerator.private import tree_leaves
from memlint.source.fed_calls import FedInput
from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.first_guess import as_fed
from memlint.workloads.guess.forward_names import guess_input
from memlint.workloads.guess.repair import Specs
from memlint.workloads.guess.trial_forward import Trial, TrialModel
from memlint.workloads.loss import kept_loss, own_loss
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.name_table import LABELS


def with_optional(
    stage: TrialModel, trial: Trial, sizes: ModelSizes, feeding: Mapping[str, FedInput] | None, *, train: bool
) -> Specs:
    """Return the inputs of `trial` with what the loop feeds beside them, and in training with labels."""
    specs = trial.specs if feeding is None else _with_fed(stage, trial, sizes, feeding)
    labels = LABELS if feeding is None else LABELS & feeding.keys()
    return (_with_labels(stage, replace(trial, specs=specs), labels) if train else None) or specs


def _with_fed(stage: TrialModel, trial: Trial, sizes: ModelSizes, feeding: Mapping[str, FedInput]) -> Specs:
    """Return the inputs of `trial` with those optional ones that the loop feeds, except labels, as far as they run."""
    specs, known = trial.specs, parameters(stage.model.forward)
    given = {spec.name.partition(".")[0] for spec in specs}
    for name in (each for each in feeding if each not in given | LABELS):
        spec = replace(guess_input(known[name], stage.model, frozenset(feeding), sizes), name=name)
        if spec.dtype != CONSTANT and stage.attempt((*specs, as_fed(spec, feeding[name]))).error is None:
            specs = (*specs, as_fed(spec, feeding[name]))
    return specs


def _with_labels(stage: TrialModel, trial: Trial, labels: Collection[str]) -> Specs | None:
    """Add one of these labels to the inputs of `trial`; None if the model takes none or returns no loss with them."""
    names = {*labels} - {spec.name for spec in trial.specs}
    for name in (name for name in parameters(stage.model.forward) if name in names):
        for label in _labels(name, trial):
            attempt = stage.attempt((*trial.specs, label), grad=True)
            losses = own_loss(attempt.output), kept_loss(stage.model, attempt.output)
            if attempt.error is None and any(each is not None for each in losses):
                return attempt.specs
    return None


def _labels(name: str, trial: Trial) -> Iterator[InputSpec]:
    """Yield labels that could match the model's output: a class per position, per item, or numbers of its shape."""
    outputs: list[Any] = [
        leaf for leaf in tree_leaves(trial.output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    shapes = [(BATCH, *leaf.shape[1:]) for leaf in outputs if leaf.dim() > 0]
    for spec in trial.specs:
        if spec.dtype == "int64" and len(spec.shape) > 1:
            classes = shapes[0][-1] if shapes else spec.high
            yield InputSpec(name, spec.shape, "int64", high=classes if isinstance(classes, int) else spec.high)
    for shape in shapes:
        if len(shape) > 1 and isinstance(shape[-1], int):
            yield InputSpec(name, shape[:-1], "int64", high=shape[-1])
        if len(shape) > 2 and isinstance(shape[1], int):
            yield InputSpec(name, (shape[0], *shape[2:]), "int64", high=shape[1])
        yield InputSpec(name, shape)
        yield InputSpec(name, shape, low=0.0, high=1.0)
