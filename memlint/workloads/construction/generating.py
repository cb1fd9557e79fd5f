"""Generation as a step: the model's own `generate`, with the prompt of the Workload and as many new tokens as it says.

For models of transformers the arguments are those of `GenerationMixin.generate`; for others they follow from the names
of the parameters of their own `generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from memlint.base.errors import UsageError, WorkloadError
from memlint.base.signatures import signature_of
from memlint.memory.records import Assumption
from memlint.targets.workload import GENERATED, SEQUENCE, InputSpec, Workload
from memlint.workloads.huggingface.texts import ordinary

NUM_NEW = (
    "max_new_tokens",
    "new_tokens",
    "num_new_tokens",
    "max_tokens",
    "num_tokens",
    "n_tokens",
    "steps",
    "max_gen_len",
)
"""Names of parameters that take the number of tokens to generate."""
_LENGTHS = ("max_length", "max_len", "max_seq_len", "seq_len", "total_len")
"""Names of parameters that take the length with the prompt."""
COMPILED_CACHE = "static"
"""The cache with which transformers compiles decoding by itself (`_valid_auto_compile_criteria`)."""
_OF_FORWARD = ("decoder_input_ids", "labels", "decoder_attention_mask", "attention_mask", "position_ids")
"""Inputs of a forward that `generate` makes itself."""
_DECLARE = (
    "Declare the loop: return memlint.Declaration(model, inputs, step=generate), "
    "where generate(model, inputs, _) calls the model for the prompt and then for each token."
)


def with_lengths(workload: Workload) -> tuple[Workload, tuple[Assumption, ...]]:
    """Give a Workload that generates the lengths and beams that nobody said, and a batch of one text.

    If it is to compile, it has the cache with which transformers compiles decoding. Raises UsageError for another one.
    """
    if workload.mode != "generate":
        return workload, ()
    missing = {name: size for name, size in GENERATED.items() if name not in workload.dimensions}
    noted = [f"{name} {size}" for name, size in missing.items() if name != "num_beams"]
    changed: dict[str, Any] = {"dimensions": {**missing, **workload.dimensions}}
    if workload.compile == "on":
        if workload.cache not in ("", COMPILED_CACHE):
            raise UsageError(
                f"{workload.name}: decoding is compiled with a cache of fixed size, not with {workload.cache}",
                f"Write --cache {COMPILED_CACHE}, or --compile auto.",
            )
        changed["cache"] = COMPILED_CACHE
    notes = (Assumption(f"{', '.join(noted)}: memlint's own, as nobody said them", None),) if noted else ()
    return replace(workload, **changed), notes


def inputs_of_generate(specs: tuple[InputSpec, ...], model: torch.nn.Module) -> tuple[InputSpec, ...]:
    """Select the inputs of a forward that `generate` takes, with the prompt in place of the text."""
    if is_of_transformers(model):
        config: Any = model.config
        # A token for padding in a prompt would have `generate` make a mask.
        specs = tuple(ordinary(config, spec) if spec.name == "input_ids" else spec for spec in specs)
        specs = tuple(spec for spec in specs if spec.name not in _OF_FORWARD)
    prompt = "prompt"
    return tuple(
        replace(spec, shape=tuple(prompt if size == SEQUENCE else size for size in spec.shape)) for spec in specs
    )


def is_of_transformers(model: Any) -> bool:
    """Return True if transformers generates with this model."""
    return any(kind.__module__ == "transformers.generation.utils" for kind in type(model).__mro__)


def generate(model: Any, inputs: Mapping[str, Any], workload: Workload) -> object:
    """Let the model generate. Raises WorkloadError for one that cannot."""
    sizes = {**GENERATED, **workload.dimensions}
    num_new, num_beams = sizes["new_tokens"], sizes["num_beams"]
    own = getattr(model, "generate", None)
    if not callable(own):
        raise WorkloadError(f"{type(model).__name__} has no method generate", _DECLARE)
    if is_of_transformers(model):
        options: dict[str, Any] = {
            "do_sample": False,
            "max_new_tokens": num_new,
            "num_beams": num_beams,
            "use_cache": workload.cache != "none",
        }
        if workload.cache not in ("", "none"):
            options["cache_implementation"] = workload.cache
        positional = [inputs[name] for name in sorted(name for name in inputs if name.isdigit())]
        named = {name: value for name, value in inputs.items() if not name.isdigit()}
        return own(*positional, **named, **options)
    if num_beams > 1 or workload.cache:
        raise WorkloadError(
            f"{type(model).__name__} generates in a way of its own, without beams or a choice of cache", _DECLARE
        )
    return _by_names(own, inputs, sizes)


def _by_names(own: Any, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> object:
    """Call a method `generate` that is not of transformers."""
    taken = list(signature_of(own).parameters.values())
    arguments: dict[str, Any] = {}
    rest = list(inputs.values())
    for each in taken:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            continue
        if each.name in NUM_NEW:
            arguments[each.name] = sizes["new_tokens"]
        elif each.name in _LENGTHS:
            arguments[each.name] = sizes["prompt"] + sizes["new_tokens"]
        elif each.name in inputs:
            arguments[each.name] = inputs[each.name]
        elif each.default is each.empty and rest and not arguments:
            arguments[each.name] = rest[0]
        elif each.default is each.empty:
            raise WorkloadError(f"generate takes {each.name}, and nothing says what that is", _DECLARE)
    if arguments.keys().isdisjoint((*NUM_NEW, *_LENGTHS)):
        raise WorkloadError("generate has no parameter for the number of tokens", _DECLARE)
    return own(**arguments)
