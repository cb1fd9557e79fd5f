"""Inputs that a model accepted, and the assumptions that they rest on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby

from torch import nn

from memlint.memory.records import Assumption
from memlint.targets.workload import CONSTANT, InputSpec
from memlint.workloads.guess.repair import Specs
from memlint.workloads.guess.trial_forward import Trial
from memlint.workloads.huggingface.diffusion import is_diffusion_model
from memlint.workloads.user_errors import describe


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


def assumptions(specs: Specs, dimensions: Mapping[str, int], trial: Trial, model: nn.Module) -> Iterator[Assumption]:
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
