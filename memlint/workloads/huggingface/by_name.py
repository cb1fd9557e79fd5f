"""Inputs of a model's parts, and of models of other data, by the name of the parameter and the sizes in the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from memlint.base.signatures import signature_of
from memlint.targets.workload import BATCH, SEQUENCE, InputSpec
from memlint.workloads.huggingface.configs import image_size, main_input, number
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH
from memlint.workloads.name_table import COMPANIONS, FRAMES, TRANSFORMERS, first_input

_OF_TEXT = ("input_ids", "labels", "attention_mask", "decoder_input_ids", "position_ids", "inputs_embeds")
_DOCUMENTED = r"^\s*{} \(`?torch\.(\w*?)Tensor`? of shape `?\(([^`\n]*)\)`?"
_LENGTHS = ("sequence_length", "seq_len", "seq_length", "num_tokens", "encoder_sequence_length")
"""The names in docstrings of a size that no config says."""


def by_name(model: Any) -> tuple[InputSpec, ...]:
    """Inputs for what `forward` cannot do without, and for the main one."""
    config, parameters = model.config, signature_of(model.forward).parameters
    required = [
        name for name, each in parameters.items() if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    main = [main_input(model)] if main_input(model) in parameters else []
    if "feature_lens" in parameters:  # frames of all recordings in one row
        shape = number(config, "num_mel_bins") or 128, f"{FRAMES}*{BATCH}"
        return (InputSpec(main[0], shape), *_specs(model, {"feature_lens": None}))
    companions = [name for name in COMPANIONS.get(main[0] if main else "", ()) if name in parameters]
    names = (*main, *required, *companions) or ("inputs_embeds",)
    return tuple(_specs(model, dict.fromkeys(name for name in names if name in parameters)))


def required_besides(model: Any, names: Iterable[str]) -> tuple[InputSpec, ...]:
    """Inputs that `forward` cannot do without, besides those of `names`."""
    parameters = signature_of(model.forward).parameters
    required = [name for name, each in parameters.items() if each.default is each.empty and name not in {*names}]
    return tuple(_specs(model, dict.fromkeys(required)))


def mentioned(
    model: Any, message: str, specs: tuple[InputSpec, ...], instead: tuple[str, ...] = ()
) -> InputSpec | None:
    """An optional input of `forward` that an error's message names and `specs` lack, and have nothing `instead` of."""
    absent = signature_of(model.forward).parameters.keys() - {spec.name for spec in specs} - {*instead}
    words = re.findall(r"\w+", message)
    length = SEQUENCE if any(SEQUENCE in spec.shape for spec in specs) else DEFAULT_LENGTH
    return next(_specs(model, dict.fromkeys(word for word in words if word in absent), length), None)


def _specs(model: Any, names: Mapping[str, None], length: int | str = DEFAULT_LENGTH) -> Iterator[InputSpec]:
    for name in names:
        spec = first_input(TRANSFORMERS, name, partial(_lookup, model.config)) or _documented(model, name, length)
        if spec is not None:
            yield spec


def _documented(model: Any, name: str, length: int | str) -> InputSpec | None:
    """An input of the shape that the docstring of `forward` says, where the config says how large that is.

    None for texts and their labels, which are made elsewhere.
    """
    if name in _OF_TEXT:
        return None
    match = re.search(_DOCUMENTED.format(name), model.forward.__doc__ or "", re.MULTILINE)
    sizes = re.split(r",\s*", re.sub(r"\s*\(.*?\)", "", match[2]).rstrip(" ,")) if match is not None else []
    known = {"batch_size": BATCH, "batch": BATCH, **dict.fromkeys(_LENGTHS, length)}
    shape = [int(each) if each.isdigit() else known.get(each) or number(model.config, each) for each in sizes]
    if match is None or None in shape:
        return None
    is_mask, dtype = name.endswith("mask"), "int64" if match[1] in ("Long", "Int", "Bool") else "float32"
    if is_mask or name.endswith(("_id", "_ids", "_index", "_type")) or dtype == "int64":
        return InputSpec(name, tuple(filter(None, shape)), "int64", int(is_mask), 1 + is_mask)
    return InputSpec(name, tuple(filter(None, shape)))


def _lookup(config: Any, word: str) -> Any:
    """A size of a config, or one that is computed of several."""
    computed = _COMPUTED.get(word)
    return number(config, word) if computed is None else computed(config)


def _picture(config: Any) -> tuple[int, ...]:
    return (3, *(image_size(config) or (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE)))


def _half(config: Any) -> tuple[int, ...]:
    """One of two pictures that the model puts together to one of the size in the config."""
    side = min(image_size(config) or (DEFAULT_IMAGE_SIZE,))
    return 3, side, side


def _past(config: Any) -> tuple[int, ...]:
    lags = max(getattr(config, "lags_sequence", None) or [0])
    length = (number(config, "context_length") or DEFAULT_LENGTH) + lags
    channels = number(config, "num_input_channels") or number(config, "input_size") or 1
    return (length, channels) if hasattr(config, "num_input_channels") or channels > 1 else (length,)


_COMPUTED: Mapping[str, Callable[[Any], Any]] = {
    "@picture": _picture,
    "@half": _half,
    "@past": _past,
    "@past_length": lambda config: _past(config)[0],
    "@length_without_repeats": lambda config: DEFAULT_LENGTH // (number(config, "repeats") or 1),
    "@qformer_vocabulary": lambda config: int(getattr(getattr(config, "qformer_config", None), "vocab_size", 1000)),
}
