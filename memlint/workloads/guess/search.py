"""The search for inputs: if a call raises, the layer reached and the message suggest changes.

The guesses that get farthest are followed first.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from memlint.base.errors import MemlintError, WorkloadError
from memlint.targets.workload import BATCH, InputSpec, is_size
from memlint.targets.workload_tables import inputs_as_toml
from memlint.workloads.constructor_values import parameters
from memlint.workloads.guess.reasons import own_reason
from memlint.workloads.guess.repair import Specs, repairs
from memlint.workloads.guess.trial_forward import Trial, TrialModel
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.user_errors import describe, of_environment, what_to_do

MOST_TRIALS, MOST_SECONDS = 48, 15
"""Limits of a search."""
_COLOURS, _LARGEST_SIDE, _LONGEST = 3, 4096, 8
"""Channels of pictures, the most pixels of a side, and how often the other side may be in it."""
_MOST_ALONE = 3
"""As many trials are repeated with a batch of 1."""
DECLARE = (
    "Declare the inputs: a function memlint_workload(batch) in the file that returns (model, inputs), or in "
    "[[tool.memlint.workload]], as memlint check with --init writes it"
)
_MOST_SHOWN = 3
"""A hint shows as many inputs: the message names them all."""


class NoInputsError(WorkloadError):
    """No inputs that the model accepts were found; the error names the ones that got farthest."""

    def __init__(self, message: str, specs: Specs, hint: str = "") -> None:
        shown = specs or (InputSpec("x", (BATCH, 16)),)
        super().__init__(message, hint or (DECLARE + _as_shown(shown)))
        self.specs = specs


def _as_shown(specs: Specs) -> str:
    return f": inputs = {inputs_as_toml(specs)}" if len(specs) <= _MOST_SHOWN else "."


def searched(stage: TrialModel, first: Sequence[Specs], sizes: ModelSizes, failure: NoInputsError | None) -> Trial:
    """Search as `search` does; if all fail, report an earlier `failure` with known inputs, which tells more."""
    try:
        return search(stage, first, sizes)
    except NoInputsError as error:
        if failure is not None and failure.specs:
            raise failure from error
        raise


def search(stage: TrialModel, first: Sequence[Specs], sizes: ModelSizes) -> Trial:
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
            if better not in seen and all(map(is_credible, better)):
                seen.add(better)
                heapq.heappush(waiting, (-trial.progress, len(trials) * -1000 + rank, better))
    alone = _alone(stage, trials)
    if alone is not None:
        return alone
    raise failure_of(stage, trials)


def is_credible(spec: InputSpec) -> bool:
    """Return True unless a size is none, or an image is larger, or longer, than any that a model is trained with."""
    if not all(is_size(size) for size in spec.shape if type(size) is int):
        return False
    sides = [size for size in spec.shape[2:] if type(size) is int]
    if len(spec.shape) != 4 or spec.shape[1] != _COLOURS or not sides:
        return True
    return max(sides) <= min(_LARGEST_SIDE, _LONGEST * min(sides))


def _alone(stage: TrialModel, trials: Sequence[Trial]) -> Trial | None:
    """Return the first trial of those that got farthest that works with a batch of 1; None if none does."""
    for trial in sorted(trials, key=lambda trial: -trial.progress)[:_MOST_ALONE]:
        specs = tuple(replace(s, shape=tuple(1 if n == BATCH else n for n in s.shape)) for s in trial.specs)
        again = stage.attempt(specs, trial.dimensions)
        if again.error is None and trial.error is not None:
            again.with_more = trial.error
            return again
    return None


def failure_of(stage: TrialModel, trials: Sequence[Trial]) -> WorkloadError:
    """Return the error that says how far the trials got."""
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
