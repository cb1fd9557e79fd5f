"""Example inputs for a model without declared inputs.

The first guess comes from the names of `forward`'s parameters and from the model's first layers. The model is called
with it; if the call raises, the layer reached and the message suggest changes. The guesses that get farthest are
followed first.
"""

from __future__ import annotations

import heapq
import inspect
import re
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import Any

import torch
from torch import nn

from memlint.accelerator.private import tree_leaves
from memlint.base.errors import MemlintError, WorkloadError
from memlint.base.frames import line_of, text_of
from memlint.memory.records import Assumption, Frame
from memlint.source.fed_calls import FedCall, FedInput
from memlint.source.shown_inputs import ShownCall
from memlint.targets.workload import BATCH, CONSTANT, SEQUENCE, InputSpec, is_size
from memlint.targets.workload_tables import inputs_as_toml
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.containers import entries, fields, of_batch_items, unpacked
from memlint.workloads.guess.dimension_names import are_unknown, dimension_names, of_one_size, with_stated_times
from memlint.workloads.guess.examples import as_shown, fed_inputs
from memlint.workloads.guess.forward_names import first_entry, guess_input
from memlint.workloads.guess.layers import AUDIO_LENGTH, SERIES_LENGTH
from memlint.workloads.guess.reasons import own_reason
from memlint.workloads.guess.repair import Specs, repairs
from memlint.workloads.guess.trial_forward import Trial, TrialModel
from memlint.workloads.huggingface import diffusion
from memlint.workloads.huggingface.by_name import by_name, mentioned
from memlint.workloads.huggingface.configs import is_model
from memlint.workloads.huggingface.containing_models import containing_models, inputs_of_part
from memlint.workloads.huggingface.diffusion import is_diffusion_model
from memlint.workloads.huggingface.inputs import Candidate, candidates, is_multimodal
from memlint.workloads.loss import kept_loss, own_loss
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes
from memlint.workloads.name_table import LABELS, TIMES
from memlint.workloads.user_errors import describe, of_environment, what_to_do

_SHORTEST = 8
"""Shorter sequences are not texts but fields of a table."""
MOST_TRIALS, MOST_SECONDS = 48, 15
_OTHER_SIDE = 32
"""By how much larger an image, or longer a series, is with which a model is tried for whether it takes only one."""
_MADE_UP = (DEFAULT_LENGTH, SERIES_LENGTH, AUDIO_LENGTH)
"""Lengths of series and of sound that nothing states."""
_MOST_STARTS, _MOST_ALONE = 12, 3
"""Limits: guesses from a diffusion model's config to modify if none works, and trials to repeat with a batch of 1."""
_OTHER_SIZE = re.compile(r"\((\d+)\) (?:must match the size of tensor b|doesn't match model) \((\d+)\)")
_OTHER_WIDTH = re.compile(r"batch2 tensor to be: \[\d+, (\d+)\] but got: \[\d+, (\d+)\]")
_PLACES = re.compile(r"^index (\d+) is out of range$")
_ROWS = re.compile(r"index \d+ is out of bounds for dimension 0 with size (\d+)")

DECLARE = (
    "Declare the inputs: a function memlint_workload(batch) in the file that returns (model, inputs), or in "
    "[[tool.memlint.workload]], as memlint check with --init writes it: inputs = "
)


class NoInputsError(WorkloadError):
    """No inputs that the model accepts were found; the error names the ones that got farthest."""

    def __init__(self, message: str, specs: Specs, hint: str = "") -> None:
        shown = specs or (InputSpec("x", (BATCH, 16)),)
        super().__init__(message, hint or DECLARE + inputs_as_toml(shown))
        self.specs = specs


@dataclass(frozen=True, slots=True)
class Inferred:
    """Inputs that a model accepted."""

    inputs: Specs
    assumptions: tuple[Assumption, ...]
    dimensions: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Sizes of the names in the inputs' shapes."""
    unstated: str = ""
    """A size of the inputs that nothing states, and that the model takes as well as others: `images of 224 x 224`."""
    is_of_example: bool = False
    """True if an example has that size, of a model that it builds in another way."""
    takes_one: bool = False
    """True if the model accepts a batch of 1 and no larger one."""
    is_first_choice: bool = True
    """False for inputs from a config where the model refused others that it should get."""


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
            return _of_library(TrialModel(model, device), sizes, train=train, length=length, named=named)
        except NoInputsError as error:
            if length is None and (inferred := _as_part(model, train=train, device=device)) is not None:
                return inferred
            if is_multimodal(model):
                raise
            known = by_name(model)
            names = {*parameters(model.forward)} - {each.name for each in known}
            guessed = (spec for spec in _first_guess(model, sizes, feeding or {}) if spec.name in names)
            first, failure = (*known, *guessed) or error.specs, error
    else:
        first = _first_guess(model, sizes, feeding or {})
    others = _of_diffusion(TrialModel(model, device), first) if is_diffusion_model(model) else []
    example = as_shown(model, shown) if shown is not None else ()
    if shown is not None and not shown.builds_so:
        shapes = [with_stated_times(dimension_names(model, spec.name), spec.shape, sizes) for spec in example]
        example = tuple(replace(spec, shape=shape) for spec, shape in zip(example, shapes, strict=True))
    with TrialModel(model, device).watched() as stage:
        starts = [*others, _completed(stage, first).specs if is_model(model) else first]
        is_made_up = any(are_unknown(dimension_names(model, spec.name)) for spec in first)
        is_better = is_made_up or (shown is not None and shown.builds_so)
        is_needed = example and (is_better or all(stage.attempt(s).error for s in starts))
        is_needed = is_needed and not (
            _differ_in_sizes(example, first) and sizes.are_trained and not stage.attempt(first).error
        )
        if is_needed and stage.attempt(example).error is None:
            starts = [example]
        trial = _enlarging(stage, _searched(stage, starts, sizes, failure), sizes)
        specs = _with_optional(stage, trial, sizes, feeding, train=train)
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
        are_fixed = is_made_up and _made_up(TrialModel(model, device), specs, sizes) is None
        unstated = "" if shown.builds_so or are_fixed else inputs
        return Inferred(specs, (note,), dimensions, unstated, is_of_example=True)
    unstated = _unstated(TrialModel(model, device), specs, dimensions, sizes) if length is None else ""
    notes = tuple(_assumptions(specs, dimensions, trial, model))
    return Inferred(specs, notes, dimensions, unstated, takes_one=trial.with_more is not None)


def missing_inputs(model: nn.Module, device: str, known: Specs, stated: Mapping[str, object]) -> Specs:
    """Find the required inputs that a call with `known` ones lacks; empty if it lacks none, or no guess works.

    The model is on `device`, and `stated` are sizes by name.
    """
    given = {spec.name.partition(".")[0].partition("[")[0] for spec in known}
    required = [each for each in parameters(model.forward).values() if each.default is each.empty]
    lacking = [each for each in required if each.name not in given]
    sizes, names = ModelSizes(model, stated), frozenset(each.name for each in required)
    guesses = tuple(spec for each in lacking for spec in _guessed(each, model, names, sizes))
    if not guesses or any(name.isdigit() for name in given):
        return ()
    with TrialModel(model, device).watched() as stage, suppress(WorkloadError):
        found = _search(stage, [(*known, *guesses)], sizes).specs
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


def _unstated(stage: TrialModel, specs: Specs, dimensions: Mapping[str, int], sizes: ModelSizes) -> str:
    """Return the size of images or the length of texts that was made up, where the model takes others as well."""
    if dimensions.get(SEQUENCE) == DEFAULT_LENGTH and sizes.length is None:
        return f"texts of {DEFAULT_LENGTH} tokens"
    if all(each is None for each in (sizes.length, sizes.samples, sizes.sound, sizes.series)):
        for length in _MADE_UP:
            longer = tuple(_of_length(spec, length, length + _OTHER_SIDE) for spec in specs)
            if longer != specs and stage.attempt(longer).error is None:
                return f"sequences of {length} steps"
    if made_up := _made_up(stage, specs, sizes):
        return made_up.described(dimensions)
    images = [spec.shape[-2:] for spec in specs if spec.dtype == "float32" and len(spec.shape) in (4, 5)]
    if not images or sizes.image_size is not None or _size_of_its_own(stage.model) is not None:
        return ""
    height, width = images[0]
    if not isinstance(height, int) or not isinstance(width, int):
        return ""
    other = (height + _OTHER_SIDE, width + _OTHER_SIDE)
    others = (replace(s, shape=(*s.shape[:-2], *other)) if s.shape[-2:] == images[0] else s for s in specs)
    return f"images of {height} x {width} pixels" if stage.attempt(tuple(others)).error is None else ""


def _made_up(stage: TrialModel, specs: Specs, sizes: ModelSizes) -> InputSpec | None:
    """Return an input of unknown dimensions that the model takes with other sizes too, which nothing states."""
    for spec in specs:
        names = dimension_names(stage.model, spec.name)
        if not are_unknown(names) or len(names) != len(spec.shape):
            continue
        for place, size in enumerate(spec.shape[1:], 1):
            other = (*spec.shape[:place], size + 1 if isinstance(size, int) else size, *spec.shape[place + 1 :])
            is_stated = with_stated_times(names, other, sizes) == spec.shape
            larger = [replace(each, shape=other) if each is spec else each for each in specs]
            if not is_stated and stage.attempt(larger).error is None:
                return spec
    return None


def _of_length(spec: InputSpec, length: int, other: int) -> InputSpec:
    """Return a series of numbers with other steps than `length`."""
    if spec.dtype != "float32" or len(spec.shape) != 3:
        return spec
    return replace(spec, shape=(spec.shape[0], *(other if size == length else size for size in spec.shape[1:])))


def _of_library(stage: TrialModel, sizes: ModelSizes, *, train: bool, length: int | None, named: bool) -> Inferred:
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


def _completed(
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


def _of_diffusion(stage: TrialModel, guess: Specs) -> list[Specs]:
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


def _first_guess(model: nn.Module, sizes: ModelSizes, feeding: Mapping[str, FedInput]) -> Specs:
    """Return a guess for each required input, as the call in the training loop, `feeding`, restricts it."""
    required = [each for each in parameters(model.forward).values() if each.default is each.empty]
    size = _size_of_its_own(model)
    if size is not None and len(required) == 1:
        return (InputSpec(required[0].name, (BATCH, *size)),)
    if len(required) == 1 and len(parts := unpacked(model, required[0].name)) > 1:
        each = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in parts]
        guesses = [guess_input(part, model, frozenset(parts), sizes) for part in each]
        return tuple(replace(spec, name=f"{required[0].name}.{n}") for n, spec in enumerate(guesses))
    names = frozenset(parameter.name for parameter in required)
    guesses = [
        _as_fed(spec, feeding[parameter.name]) if parameter.name in feeding else spec
        for parameter in required
        for spec in _guessed(parameter, model, names, sizes)
    ]
    guesses = of_one_size(model, guesses)
    if not guesses:
        # forward(*inputs) or forward(**batch): only the first layer tells anything.
        entry = first_entry(model, sizes)
        guesses = [] if entry is None else [replace(entry, name="0")]
    return tuple(each for spec in guesses for each in entries(model, spec, sizes))


def _as_fed(spec: InputSpec, fed: FedInput) -> InputSpec:
    """Return an input with the dtype and the number of dimensions that the training loop gives it."""
    shape = (BATCH,) if fed.is_flat and spec.shape[:1] == (BATCH,) else (BATCH, 1) if fed.is_column else spec.shape
    if not fed.dtype or (fed.dtype == "float32" and spec.dtype == "float32"):
        return replace(spec, shape=shape)
    is_cast = fed.dtype != spec.dtype
    return replace(spec, shape=shape, dtype=fed.dtype, high=None if is_cast and fed.dtype == "float32" else spec.high)


def _guessed(
    parameter: inspect.Parameter, model: nn.Module, names: frozenset[str], sizes: ModelSizes
) -> Iterator[InputSpec]:
    """Yield a guess for a parameter of `forward`, or one for each of its fields that the code reads."""
    items = of_batch_items(model, parameter, guess_input(parameter, model, names, sizes))
    if any("[]" in each.name for each in items):
        yield from items
        return
    own = fields(model, parameter.name)
    for name in own:
        field = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        yield replace(guess_input(field, model, frozenset(own), sizes), name=f"{parameter.name}.{name}")
    if not own:
        yield guess_input(parameter, model, names, sizes)


def _size_of_its_own(model: nn.Module) -> tuple[int, ...] | None:
    """Return channels, height and width that a timm model declares for its input."""
    for name in ("pretrained_cfg", "default_cfg"):
        config = getattr(model, name, None)
        size = config.get("input_size") if isinstance(config, dict) else None
        if isinstance(size, tuple) and all(isinstance(n, int) for n in size):
            return size
    return None


def _searched(stage: TrialModel, first: Sequence[Specs], sizes: ModelSizes, failure: NoInputsError | None) -> Trial:
    """Search as `_search` does; if all fail, report an earlier `failure` with known inputs, which tells more."""
    try:
        return _search(stage, first, sizes)
    except NoInputsError as error:
        if failure is not None and failure.specs:
            raise failure from error
        raise


def _search(stage: TrialModel, first: Sequence[Specs], sizes: ModelSizes) -> Trial:
    """Try guesses, beginning with `first` and continuing from the farthest trial, until one works."""
    waiting = [(0, -len(first) + place, specs) for place, specs in enumerate(first)]
    seen: set[Specs] = {*first}
    trials: list[Trial] = []
    end = time.monotonic() + MOST_SECONDS
    while waiting and len(trials) < MOST_TRIALS and (time.monotonic() < end or not trials):
        _, _, specs = heapq.heappop(waiting)
        trial = stage.attempt(specs)
        if trial.error is None:
            return trial
        if isinstance(trial.error, MemlintError):  # no inputs would help
            raise trial.error
        if (hint := of_environment(trial.error)) and not isinstance(trial.error, NameError):
            raise WorkloadError(f"{type(stage.model).__name__} cannot be called here: {describe(trial.error)}", hint)
        trials.append(trial)
        for rank, better in enumerate(repairs(trial, sizes)):
            if better not in seen and all(is_size(n) for spec in better for n in spec.shape if type(n) is int):
                seen.add(better)
                heapq.heappush(waiting, (-trial.progress, len(trials) * -1000 + rank, better))
    alone = _alone(stage, trials)
    if alone is not None:
        return alone
    raise _failure(stage, trials)


def _alone(stage: TrialModel, trials: Sequence[Trial]) -> Trial | None:
    """Return the first trial of those that got farthest that works with a batch of 1; None if none does."""
    for trial in sorted(trials, key=lambda trial: -trial.progress)[:_MOST_ALONE]:
        specs = tuple(replace(s, shape=tuple(1 if n == BATCH else n for n in s.shape)) for s in trial.specs)
        again = stage.attempt(specs, trial.dimensions)
        if again.error is None and trial.error is not None:
            again.with_more = trial.error
            return again
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


def _failure(stage: TrialModel, trials: Sequence[Trial]) -> WorkloadError:
    model = stage.model
    if not trials:
        raise NoInputsError(f"the inputs of {type(model).__name__} are unknown", ())
    if not parameters(model.forward) and not isinstance(model, nn.Sequential):
        text = f"{type(model).__name__}.forward takes no inputs: a program calls it by methods of other names"
        return WorkloadError(text, "Give the script that calls them: memlint run SCRIPT.py")
    best = max(trials, key=lambda trial: trial.progress)
    assert best.error is not None
    tried = "; ".join(spec.described(best.dimensions) for spec in best.specs) or "no inputs"
    message = (
        f"no inputs were found that {type(model).__name__} takes, in {len(trials)} trials; "
        f"with {tried} it raises {describe(best.error)}"
    )
    if reason := own_reason(model, trials):
        message = f"{type(model).__name__} {reason}; with {tried} it raises {describe(best.error)}"
    specs = tuple(spec.with_sizes(best.dimensions) for spec in best.specs)
    failure = NoInputsError(message, specs, what_to_do(best.error))
    failure.__cause__ = best.error
    return failure


def _with_optional(
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
        if spec.dtype != CONSTANT and stage.attempt((*specs, _as_fed(spec, feeding[name]))).error is None:
            specs = (*specs, _as_fed(spec, feeding[name]))
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


def _first_that_works(stage: TrialModel, candidates: Iterator[Candidate], *, named: bool, is_fixed: bool) -> Inferred:
    """Find inputs of a Hugging Face model; if it runs only with fewer than it should get, an assumption says why."""
    trials: list[Trial] = []
    for specs, dimensions, notes in candidates:
        if not named:
            specs, dimensions = tuple(spec.with_sizes(dimensions) for spec in specs), {}  # noqa: PLW2901
        trial = _completed(stage, specs, dimensions, is_fixed=is_fixed)
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
    raise _failure(stage, _of_text_that_is_taken(stage, trials) or trials)


def _of_text_that_is_taken(stage: TrialModel, trials: Sequence[Trial]) -> list[Trial]:
    """Return trials with only a text that got through a layer: if the text's own layers raise, no image would help."""
    texts = [trial for trial in trials if [spec.name for spec in trial.specs] == ["input_ids"]]
    with stage.watched():
        again = [stage.attempt(trial.specs, trial.dimensions) for trial in texts]
    return [trial for trial in again if trial.progress]


def _assumptions(specs: Specs, dimensions: Mapping[str, int], trial: Trial, model: nn.Module) -> Iterator[Assumption]:
    """Yield the assumption for each input; similar entries of a list share a line."""
    if trial.with_more is not None:
        more = f"{type(model).__name__} only accepts a batch of 1; with more it raises {describe(trial.with_more)}"
        yield Assumption(more, None)
    for _, group in groupby(specs, lambda spec: replace(spec, name=spec.name.rstrip("0123456789"))):
        alike = list(group)
        first = _assumed(alike[0], dimensions, trial, model)
        if len(alike) > 1 and "." in alike[0].name:
            last = alike[-1].name.rpartition(".")[2]
            yield first._replace(text=first.text.replace(alike[0].name, f"{alike[0].name} to .{last}", 1))
        else:
            yield from (first, *(_assumed(spec, dimensions, trial, model) for spec in alike[1:]))


def _assumed(spec: InputSpec, dimensions: Mapping[str, int], trial: Trial, model: nn.Module) -> Assumption:
    text = spec.described(dimensions)
    if spec.name in trial.entries:
        layer = trial.entries[spec.name]
        path = next(path for path, module in model.named_modules() if module is layer)
        kind = type(layer).__name__
        article = "an" if kind[0] in "AEIOU" else "a"
        return Assumption(f"input {text} (it goes into {path or 'the model'}, {article} {kind})", None)
    if spec.dtype == CONSTANT:
        source = "the config" if is_diffusion_model(model) else "its annotation"
        return Assumption(f"input {text} (from {source})", None)
    return Assumption(f"input {text} (the model runs with it)", None)
