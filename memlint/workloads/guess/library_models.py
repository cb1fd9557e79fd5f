"""Inputs of the models of transformers and diffusers, from their configs and from the errors that they raise."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from torch import nn

from memlint.base.frames import line_of, text_of
from memlint.memory.records import Assumption
from memlint.targets.workload import BATCH, SEQUENCE, InputSpec
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.inferred import Inferred
from memlint.workloads.guess.repair import Specs
from memlint.workloads.guess.search import MOST_SECONDS, MOST_TRIALS, NoInputsError, failure_of
from memlint.workloads.guess.trial_forward import Trial, TrialModel
from memlint.workloads.huggingface import diffusion
from memlint.workloads.huggingface.by_name import mentioned
from memlint.workloads.huggingface.inputs import Candidate, candidates, is_multimodal
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.user_errors import describe

_MOST_STARTS = 12
"""As many guesses from a diffusion model's config are modified if none works."""
_OTHER_SIZE = re.compile(r"\((\d+)\) (?:must match the size of tensor b|doesn't match model) \((\d+)\)")
_OTHER_WIDTH = re.compile(r"batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]")
_PLACES = re.compile(r"^index (\d+) is out of range$")
_ROWS = re.compile(r"index \d+ is out of bounds for dimension 0 with size (\d+)")


def of_library(stage: TrialModel, sizes: ModelSizes, *, train: bool, length: int | None, named: bool) -> Inferred:
    """Find inputs of a Hugging Face model, with texts as long as in its training if nobody asks for a `length`."""
    model = stage.model
    proposals = candidates(model, train=train, length=length)
    trained = sizes.trained_length if length is None else None
    if trained is not None and not is_multimodal(model):
        proposals = chain(candidates(model, train=train, length=trained), proposals)
    inferred = _first_that_works(stage, proposals, named=named, is_fixed=length is not None)
    if trained is not None and not any(spec.dtype == "float32" for spec in inferred.inputs):
        with suppress(NoInputsError):
            of_trained = candidates(model, train=train, length=trained)
            inferred = _first_that_works(stage, of_trained, named=named, is_fixed=False)
    if trained is None or inferred.dimensions.get(SEQUENCE) != trained:
        return inferred
    note = Assumption(f"{SEQUENCE} {trained}: the settings of its training say so", None, found=True)
    return replace(inferred, assumptions=(note, *inferred.assumptions))


def of_diffusion(stage: TrialModel, guess: Specs) -> list[Specs]:
    """Return inputs for a model of diffusers, with a `guess` for inputs that its config does not describe.

    If some work, only those are returned.
    """
    required = {name for name, each in parameters(stage.model.forward).items() if each.default is each.empty}
    tried: list[Specs] = []
    end = time.monotonic() + MOST_SECONDS
    for first in dict.fromkeys(diffusion.candidates(stage.model)):
        if tried and time.monotonic() > end:
            break
        names = diffusion.names_of(first)
        specs = (*first, *(spec for spec in guess if spec.name in required - names))
        trial = stage.attempt(specs)
        while trial.error is not None and len(tried) < MOST_TRIALS and time.monotonic() < end:
            tried.append(trial.specs)
            asked = diffusion.asked(stage.model, trial.specs, trial.error)
            if asked in tried:
                break
            trial = stage.attempt(asked)
        if trial.error is None:
            return [trial.specs]
    return tried[::-1][:_MOST_STARTS]


def _first_that_works(stage: TrialModel, candidates: Iterator[Candidate], *, named: bool, is_fixed: bool) -> Inferred:
    """Find inputs of a Hugging Face model; if it runs only with fewer than it should get, an assumption says why."""
    trials: list[Trial] = []
    for specs, dimensions, notes in candidates:
        if not named:
            specs, dimensions = tuple(spec.with_sizes(dimensions) for spec in specs), {}  # noqa: PLW2901
        trial = completed(stage, specs, dimensions, is_fixed=is_fixed)
        specs = trial.specs  # noqa: PLW2901
        taken = frozenset().union(*(spec.dimensions for spec in specs))
        dimensions = {name: size for name, size in trial.dimensions.items() if name in taken}  # noqa: PLW2901
        if trial.error is None:
            inputs = "; ".join(spec.described(dimensions) for spec in specs)
            text = f"inputs {inputs} (from the config of {type(stage.model).__name__})"
            assumptions = [Assumption(each, None) for each in (text, *notes)]
            fuller = next((other for other in trials if len(other.specs) > len(specs)), None)
            if fuller is not None and fuller.error is not None:
                missing = ", ".join(sorted({spec.name for spec in fuller.specs} - {spec.name for spec in specs}))
                assumptions.append(
                    Assumption(f"{missing} left out: with them it raises {describe(fuller.error)}", None)
                )
            return Inferred(specs, tuple(assumptions), dimensions, is_first_choice=not trials)
        trials.append(trial)
    raise failure_of(stage, _of_text_that_is_taken(stage, trials) or trials)


def completed(
    stage: TrialModel, specs: Specs, dimensions: Mapping[str, int] | None = None, *, is_fixed: bool = False
) -> Trial:
    """Try a Hugging Face model with `specs`, changed for as long as errors suggest a change.

    Sizes of `dimensions` that are fixed were requested by the user.
    """
    trial = stage.attempt(specs, dimensions)
    tried = [(specs, trial.dimensions)]
    while trial.error is not None:
        asked = _as_asked(stage.model, trial, trial.error)
        if asked in tried or (is_fixed and asked[1] != trial.dimensions):
            break
        tried.append(asked)
        trial = stage.attempt(*asked)
    return trial


def _of_text_that_is_taken(stage: TrialModel, trials: Sequence[Trial]) -> list[Trial]:
    """Return trials with only a text that got through a layer: if the text's own layers raise, no image would help."""
    texts = [trial for trial in trials if [spec.name for spec in trial.specs] == ["input_ids"]]
    with stage.watched():
        again = [stage.attempt(trial.specs, trial.dimensions) for trial in texts]
    return [trial for trial in again if trial.progress]


def _as_asked(model: nn.Module, trial: Trial, error: Exception) -> tuple[Specs, Mapping[str, int]]:
    """Return the specs and dimensions of a trial with the changes that its error, or the line that raised, asks for.

    The changes are: missing optional inputs, one input in place of another, ids within a table, one size for another.
    """
    text, specs, dimensions = text_of(error), trial.specs, trial.dimensions
    missing = mentioned(model, f"{text} {line_of(error)}", specs)
    if missing is None and "NoneType" in text:
        line = f"encoder_hidden_states {_own_line(model, error)}"
        missing = mentioned(model, line, specs, instead=("inputs_embeds",))
    refused = [spec for spec in specs if re.search(rf"\W{re.escape(spec.name)}\W.*expected to be `?None", text)]
    if refused and (embedded := mentioned(model, "inputs_embeds", specs)) is not None:
        return (*(spec for spec in specs if spec not in refused), embedded), trial.dimensions
    if missing is not None:
        return (*specs, missing), trial.dimensions
    if "Invalid channel dimensions" in text and any(_is_sound(spec) for spec in specs):
        heard = (replace(spec, shape=(BATCH, 1, spec.shape[1])) if _is_sound(spec) else spec for spec in specs)
        return tuple(heard), trial.dimensions
    rows = _ROWS.search(text)
    if rows is not None or "requires a floating point" in text:  # which a series under the names of a text has
        return tuple(_as_numbers(spec) if rows is None else _below(spec, int(rows[1])) for spec in specs), dimensions
    if (places := _PLACES.search(text)) is not None and int(places[1]) < trial.dimensions.get(SEQUENCE, 0) - 1:
        return specs, {**trial.dimensions, SEQUENCE: int(places[1]) + 1}
    if (sizes := _OTHER_SIZE.search(text)) is not None:
        own, other = int(sizes[1]), int(sizes[2])
        if trial.dimensions.get(SEQUENCE) == own:
            return specs, {**trial.dimensions, SEQUENCE: other}
        return tuple(_with_sides(spec, own, other) for spec in specs), trial.dimensions
    if (widths := _OTHER_WIDTH.search(text)) is not None:
        own, other = int(widths[1]), int(widths[2])
        return tuple(
            replace(spec, shape=(*spec.shape[:-1], other)) if spec.shape[-1:] == (own,) else spec for spec in specs
        ), trial.dimensions
    return specs, trial.dimensions


def _own_line(model: nn.Module, error: Exception) -> str:
    """Return the last line of the model's own code that an exception went through."""
    steps = zip(traceback.walk_tb(error.__traceback__), traceback.extract_tb(error.__traceback__), strict=True)
    lines = [summary.line or "" for (frame, _), summary in steps if frame.f_locals.get("self") is model]
    return lines[-1] if lines else ""


def _is_sound(spec: InputSpec) -> bool:
    """Return True if it is a recording without a channel dimension."""
    return spec.name == "input_values" and len(spec.shape) == 2


def _as_numbers(spec: InputSpec) -> InputSpec:
    is_text = spec.dtype == "int64" and not spec.name.endswith(("mask", "position_ids"))
    return replace(spec, dtype="float32", low=None, high=None, runs=()) if is_text else spec


def _below(spec: InputSpec, rows: int) -> InputSpec:
    is_higher = spec.dtype == "int64" and spec.high is not None and spec.high > rows and not spec.runs
    return replace(spec, high=rows) if is_higher else spec


def _with_sides(spec: InputSpec, own: int, other: int) -> InputSpec:
    """Return an image with the sides `other` in place of `own`."""
    return replace(spec, shape=(*spec.shape[:-2], other, other)) if spec.shape[-2:] == (own, own) else spec
