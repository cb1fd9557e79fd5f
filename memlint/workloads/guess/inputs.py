"""Example inputs for a model without declared inputs.

A first guess (`first_guess`, `library_models`) is searched from until the model accepts it (`search`), gets optional
inputs (`optional`), and is held against what is stated (`unstated`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from memlint.accelerator.private import tree_leaves
from memlint.base.errors import WorkloadError
from memlint.memory.records import Assumption, Frame
from memlint.source.fed_calls import FedCall
from memlint.source.shown_inputs import ShownCall
from memlint.targets.workload import BATCH, CONSTANT, SEQUENCE
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.dimension_names import are_unknown, dimension_names, with_stated_times
from memlint.workloads.guess.examples import as_shown, fed_inputs
from memlint.workloads.guess.first_guess import first_guess, guessed
from memlint.workloads.guess.inferred import Inferred, assumptions
from memlint.workloads.guess.library_models import completed, of_diffusion, of_library
from memlint.workloads.guess.optional import with_optional
from memlint.workloads.guess.repair import Specs
from memlint.workloads.guess.search import NoInputsError, search, searched
from memlint.workloads.guess.trial_forward import Trial, TrialModel
from memlint.workloads.guess.unstated import made_up_input, unstated_input, unstated_size
from memlint.workloads.huggingface.by_name import by_name
from memlint.workloads.huggingface.configs import is_model
from memlint.workloads.huggingface.containing_models import containing_models, inputs_of_part
from memlint.workloads.huggingface.diffusion import is_diffusion_model
from memlint.workloads.huggingface.inputs import is_multimodal
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.name_table import TIMES

_SHORTEST = 8
"""Shorter sequences are not texts but fields of a table."""


def infer_inputs(
    model: nn.Module,
    *,
    train: bool,
    device: str,
    dimensions: Mapping[str, int] | None = None,
    stated: Mapping[str, object] | None = None,
    shown: ShownCall | None = None,
    fed: FedCall | None = None,
) -> Inferred:
    """Find inputs for `model`, which is on `device` in the mode that it will run in.

    `stated` are sizes by name from the model's arguments or from its training loop. `shown` is the call of the model in
    an example: tried first if the example builds the model in the same way, else after the first guess. `fed` is its
    call in the training loop, which decides what it is given beside its required inputs. In training, the inputs
    include labels if the loop feeds some, or none is seen, and the model then returns its loss. The length of texts
    becomes the dimension `seq`, with its size in `dimensions` if given; if `dimensions` is None the length stays a
    number. Raises WorkloadError with the inputs that were tried.
    """
    feeding = fed_inputs(model, fed) if fed is not None else None
    length, named = (dimensions or {}).get(SEQUENCE), dimensions is not None
    sizes = ModelSizes(model, stated)
    failure: NoInputsError | None = None
    if is_model(model):
        try:
            return of_library(TrialModel(model, device), sizes, train=train, length=length, named=named)
        except NoInputsError as error:
            if length is None and (inferred := _as_part(model, train=train, device=device)) is not None:
                return inferred
            if is_multimodal(model):
                raise
            known = by_name(model)
            names = {*parameters(model.forward)} - {each.name for each in known}
            rest = (spec for spec in first_guess(model, sizes, feeding or {}) if spec.name in names)
            first, failure = (*known, *rest) or error.specs, error
    else:
        first = first_guess(model, sizes, feeding or {})
    others = of_diffusion(TrialModel(model, device), first) if is_diffusion_model(model) else []
    example = as_shown(model, shown) if shown is not None else ()
    if shown is not None and not shown.builds_so:
        shapes = [with_stated_times(dimension_names(model, spec.name), spec.shape, sizes) for spec in example]
        example = tuple(replace(spec, shape=shape) for spec, shape in zip(example, shapes, strict=True))
    with TrialModel(model, device).watched() as stage:
        starts = [*others, completed(stage, first).specs if is_model(model) else first]
        is_made_up = any(are_unknown(dimension_names(model, spec.name)) for spec in first)
        is_better = is_made_up or (shown is not None and shown.builds_so)
        is_needed = example and (is_better or all(stage.attempt(s).error for s in starts))
        is_needed = is_needed and not (
            _differ_in_sizes(example, first) and sizes.are_trained and not stage.attempt(first).error
        )
        if is_needed and stage.attempt(example).error is None:
            starts = [example]
        trial = _enlarging(stage, searched(stage, starts, sizes, failure), sizes)
        specs = with_optional(stage, trial, sizes, feeding, train=train)
    specs, dimensions = _with_length_named(specs, length) if named else (specs, {})
    if dimensions and is_diffusion_model(model) and not _is_free(TrialModel(model, device), specs):
        specs, dimensions = tuple(spec.with_sizes(dimensions) for spec in specs), {}
    if (
        failure is not None
        and length is not None
        and (SEQUENCE not in dimensions or TrialModel(model, device).attempt(specs, dimensions).error is not None)
    ):
        raise failure
    if shown is not None and trial.specs == example:
        inputs, place = ", ".join(spec.described(dimensions) for spec in specs), Frame(shown.path, shown.line, "")
        where = "as in an example" if shown.builds_so else "as in an example elsewhere"
        note = Assumption(f"inputs {inputs}, {where}", place, found=shown.builds_so)
        are_fixed = is_made_up and made_up_input(TrialModel(model, device), specs, sizes) is None
        unstated = "" if shown.builds_so or are_fixed else inputs
        return Inferred(specs, (note,), dimensions, unstated, is_of_example=True)
    of_trial = TrialModel(model, device)
    unstated = unstated_size(of_trial, specs, dimensions, sizes) if length is None else ""
    unstated = unstated or unstated_input(of_trial, specs, dimensions, trial.entries)
    notes = tuple(assumptions(specs, dimensions, trial, model))
    return Inferred(specs, notes, dimensions, unstated, takes_one=trial.with_more is not None)


def missing_inputs(model: nn.Module, device: str, known: Specs, stated: Mapping[str, object]) -> Specs:
    """Find the required inputs that a call with `known` ones lacks; empty if it lacks none, or no guess works.

    The model is on `device`, and `stated` are sizes by name.
    """
    given = {spec.name.partition(".")[0].partition("[")[0] for spec in known}
    required = [each for each in parameters(model.forward).values() if each.default is each.empty]
    lacking = [each for each in required if each.name not in given]
    sizes, names = ModelSizes(model, stated), frozenset(each.name for each in required)
    guesses = tuple(spec for each in lacking for spec in guessed(each, model, names, sizes))
    if not guesses or any(name.isdigit() for name in given):
        return ()
    with TrialModel(model, device).watched() as stage, suppress(WorkloadError):
        found = search(stage, [(*known, *guesses)], sizes).specs
        return found[len(known) :] if found[: len(known)] == known else ()
    return ()


def in_dtype(model: nn.Module, device: str, inferred: Inferred, kind: torch.dtype) -> Inferred:
    """Return inputs with times of `kind` in place of whole ones if only those run with the model in that dtype.

    What many models compute of times has the dtype of these.
    """
    specs, dimensions = inferred.inputs, inferred.dimensions
    whole = next((spec for spec in specs if spec.dtype == "int64" and spec.name.lower() in TIMES), None)
    if whole is None:
        return inferred
    real = replace(whole, dtype="float32", low=0.0, high=1.0)
    others = tuple(real if spec is whole else spec for spec in specs)
    before = next((weight.dtype for weight in model.parameters()), kind)
    stage, name = TrialModel(model.to(kind), device), str(kind).removeprefix("torch.")
    runs = [
        stage.attempt([replace(s, dtype=name) if s.dtype == "float32" else s for s in each], dimensions).error is None
        for each in (specs, others)
    ]
    model.to(before)
    if runs != [False, True]:
        return inferred
    shown, now = whole.described(dimensions), real.described(dimensions)
    notes = tuple(each._replace(text=each.text.replace(shown, now)) for each in inferred.assumptions)
    return replace(inferred, inputs=others, assumptions=notes)


def _differ_in_sizes(specs: Specs, others: Specs) -> bool:
    """Return True for inputs of the same names, dtypes and numbers of dimensions, of other sizes."""
    forms = [[(each.name, each.dtype, len(each.shape)) for each in those] for those in (specs, others)]
    return forms[0] == forms[1] and [each.shape for each in specs] != [each.shape for each in others]


def _as_part(model: nn.Module, *, train: bool, device: str) -> Inferred | None:
    """Read off the inputs that a whole Hugging Face model gives to a part of it; None if no whole model runs."""
    for whole in containing_models(model):
        with suppress(WorkloadError):
            taken = infer_inputs(whole.to(device).train(train), train=train, device=device)
            run = partial(TrialModel(whole, device).attempt, taken.inputs, taken.dimensions)
            specs = inputs_of_part(whole, model, run)
            if specs and TrialModel(model, device).attempt(specs).error is None:
                inputs = "; ".join(map(str, specs))
                return Inferred(specs, (Assumption(f"inputs {inputs} (as {type(whole).__name__} gives them)", None),))
    return None


def _enlarging(stage: TrialModel, trial: Trial, sizes: ModelSizes) -> Trial:
    """Return the trial with the smaller images of a data set of two sizes, if the model makes the larger of them."""
    low, (high, _) = sizes.low_image_size, sizes.image_size or (0, 0)
    sides = [leaf.shape[-1] for leaf in tree_leaves(trial.output) if isinstance(leaf, torch.Tensor) and leaf.dim() == 4]
    if low is None or high * high not in [side * low for side in sides]:
        return trial
    smaller = (replace(s, shape=(*s.shape[:2], low, low)) if s.shape[2:] == (high, high) else s for s in trial.specs)
    other = stage.attempt(tuple(smaller))
    return trial if other.error is not None else other


def _with_length_named(specs: Specs, length: int | None) -> tuple[Specs, dict[str, int]]:
    """Make the length of the texts in `specs` a dimension, if that number means nothing else in them."""
    texts = [spec for spec in specs if spec.dtype in {"int64", "bool"} and len(spec.shape) == 2]
    lengths = {number for spec in texts if spec.shape[0] == BATCH and isinstance(number := spec.shape[1], int)}
    if len(lengths) != 1 or min(lengths) < _SHORTEST:
        return specs, {}
    (own,) = lengths
    named = tuple(
        replace(spec, shape=(BATCH, SEQUENCE)) if spec in texts and spec.shape == (BATCH, own) else spec
        for spec in specs
    )
    if any(own in (*spec.shape, spec.low, spec.high) for spec in named if spec.dtype != CONSTANT):
        return specs, {}
    return named, {SEQUENCE: length or own}


def _is_free(stage: TrialModel, specs: Specs) -> bool:
    """Return True if the model accepts texts of another length; a fixed length is not a text's, but a picture's."""
    with suppress(WorkloadError):  # no room for what each text begins with
        return stage.attempt(specs, {SEQUENCE: _SHORTEST}).error is None
    return False
