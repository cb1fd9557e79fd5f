"""Hugging Face models built from a config alone, with random weights. Nothing is downloaded."""

from __future__ import annotations

import copy
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from memlint.base.errors import WorkloadError
from memlint.base.signatures import annotations_of, signature_of
from memlint.workloads.huggingface import features
from memlint.workloads.huggingface.configs import with_arguments
from memlint.workloads.huggingface.texts import vocabulary
from memlint.workloads.quantized import quantized
from memlint.workloads.user_errors import reported

_HEADS = (
    *("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "TEXT_TO_WAVEFORM"),
    *("MASKED_LM", "CAUSAL_LM", "CTC"),
    *("ZERO_SHOT_IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "IMAGE_CLASSIFICATION", "SEMANTIC_SEGMENTATION"),
    *("AUDIO_CLASSIFICATION", "VIDEO_CLASSIFICATION", "", "PRETRAINING", "DEPTH_ESTIMATION", "TIME_SERIES_PREDICTION"),
    *("TEXT_TO_SPECTROGRAM", "KEYPOINT_DETECTION", "KEYPOINT_MATCHING", "MASK_GENERATION"),
    *("IMAGE_MATTING", "POSE_ESTIMATION", "BACKBONE"),
)
"""Tables to search for a config without `architectures`: usual training heads first; "" has no head."""


class Built(NamedTuple):
    """A model, and the changes to its config that make it run."""

    model: nn.Module
    notes: tuple[str, ...] = ()


def model_from_config(config: Any) -> Built:
    """Build the model of a config, or of a config class with its defaults, with random weights."""
    import transformers  # noqa: PLC0415 - slow, and only needed here

    config = with_arguments(config, {})
    with reported(f"the model of {type(config).__name__} cannot be imported"):
        kind = model_class(config, transformers)
    with reported(f"{kind.__name__} cannot be built from its config"):
        config, notes = _with_placeholders(config)
        model = kind(config)
    settings = getattr(config, "quantization_config", None)
    return Built(model, notes) if settings is None else _with_quantization(model, settings, notes)


def model_class(config: Any, transformers: Any) -> Any:
    """Return the class for a config: by `architectures`, else with the usual training head, else one beside the config.

    The configs of a model's parts are in no table of transformers: the classes themselves name their config.
    """
    for name in getattr(config, "architectures", None) or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    auto = transformers.models.auto.modeling_auto
    for head in _HEADS:
        classes = getattr(auto, f"MODEL_FOR_{head}_MAPPING" if head else "MODEL_MAPPING", {})
        # A renamed class is still available under its old name, as a subclass of the new one.
        for kind in (classes[each] for each in type(config).__mro__ if each in classes):
            return kind[0] if isinstance(kind, tuple) else kind
    for config_class in type(config).__mro__:
        for kind in _own_classes(config_class, transformers.PreTrainedModel):
            return kind
    raise _no_model(type(config))


def classes_of(config: Any) -> Iterator[Any]:
    """Yield the class for a config, then others beside it that are built from such a config."""
    import transformers  # noqa: PLC0415 - slow, and only needed here

    first = model_class(config, transformers)
    yield first
    yield from (kind for kind in _own_classes(type(config), transformers.PreTrainedModel) if kind is not first)


def configs_with(config_class: type) -> Iterator[tuple[str, Any]]:
    """Yield config classes of the same file that contain one of this class, each with its name there."""
    for kind in vars(importlib.import_module(config_class.__module__)).values():
        parts = getattr(kind, "sub_configs", None) if isinstance(kind, type) else None
        if isinstance(parts, Mapping):
            yield from ((name, kind) for name, part in parts.items() if part is config_class)


def _no_model(config_class: type) -> WorkloadError:
    """Make an error that names the configs which contain one of this class."""
    message = f"transformers has no model for {config_class.__name__}"
    whole = next((kind.__name__ for _, kind in configs_with(config_class)), None)
    if whole is not None:
        module = config_class.__module__
        module = module if not hasattr(importlib.import_module("transformers"), whole) else "transformers"
        return WorkloadError(f"{message}: it is a part of {whole}", f"Type memlint check {module}::{whole}")
    return WorkloadError(message, "Name the class: a function that returns the model, as file.py::function.")


def _with_quantization(model: nn.Module, settings: Any, notes: tuple[str, ...]) -> Built:
    """Return `model` with weights of 4 bits if its config's `settings` ask for them, else with a note on them."""
    fields = settings if isinstance(settings, Mapping) else settings.to_dict()
    method = fields.get("quant_method", "")
    if method == "bitsandbytes" and (fields.get("load_in_4bit") or fields.get("_load_in_4bit")):
        double = bool(fields.get("bnb_4bit_use_double_quant"))
        return Built(quantized(model, fields.get("bnb_4bit_quant_type", "fp4"), double=double), notes)
    text = f"quantization_config ({method}) is not modelled: weights have their size before quantization"
    return Built(model, (*notes, text))


def _with_placeholders(config: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a config whose texts can hold images: some default vocabularies have no row for the image token.

    Training code adds it to the vocabulary; here the last rows serve as such tokens, which costs no bytes.
    """
    size = vocabulary(config)
    notes: list[str] = []
    for kind in features.KINDS:
        name = features.placeholder_name(config, kind)
        token = None if name is None else getattr(config, name)
        if name is not None and (token is None or token >= size):
            config = copy.deepcopy(config) if not notes else config
            own = size - 1 - len(notes)
            setattr(config, name, own)
            notes.append(f"token {own} stands for each {kind} feature: the config has {size} tokens, {name} is {token}")
    return config, tuple(notes)


def _own_classes(config_class: type, base: type) -> Iterator[Any]:
    """Yield models beside a config class that name it as theirs, those with a similar name first."""
    place = config_class.__module__
    if not place.rpartition(".")[2].startswith("configuration_"):
        return
    package = importlib.import_module(place.rpartition(".")[0])
    files = sorted(each.name for each in pkgutil.iter_modules(package.__path__) if each.name.startswith("modeling_"))
    own = [
        value
        for module in (importlib.import_module(f"{package.__name__}.{name}") for name in files)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
        if _config_class(value) is config_class and _is_whole(value)
    ]
    name = config_class.__name__.removesuffix("Config")
    yield from sorted(own, key=lambda value: (value.__name__ != f"{name}Model", not value.__name__.startswith(name)))


def _config_class(model_class: Any) -> object:
    """Return its own config class, or its constructor's: a part inherits the `config_class` of the whole."""
    own = annotations_of(model_class).get("config", vars(model_class).get("config_class"))
    if "config" not in annotations_of(model_class):
        annotation = signature_of(model_class.__init__).parameters.get("config")
        named = getattr(annotation, "annotation", inspect.Parameter.empty)
        own = own if named is inspect.Parameter.empty else named
    return getattr(inspect.getmodule(model_class), own, None) if isinstance(own, str) else own


def _is_whole(model_class: Any) -> bool:
    """Return True if it has a forward of its own, and no arguments besides the config."""
    taken = list(signature_of(model_class.__init__).parameters.values())[2:]
    required = [each for each in taken if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    return model_class.forward is not nn.Module.forward and not required
