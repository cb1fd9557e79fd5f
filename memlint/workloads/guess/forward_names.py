"""Guesses the tensor that a parameter of `forward` takes from its name."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import nn

from memlint.accelerator.private import Convolution
from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.guess.annotations import annotated, documented, of_code, says_shape
from memlint.workloads.guess.layers import AUDIO_LENGTH, entry_layers, input_of, is_auxiliary, spatial_input
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes
from memlint.workloads.name_table import FORWARD, IMAGES_AND_SERIES, OF_GRAPHS, TIMES, TRAINING_STEPS, first_input
from memlint.workloads.receiving_layers import receiving_layer

Layer = TypeVar("Layer", bound=nn.Module)

_OF_CLASSES = re.compile(r"class|label")
"""Pattern in the path of a table of classes."""
_OF_TIME = re.compile(r"tempor|timef|time_?feat|mark")
"""Pattern in the path of a layer that takes the time of a step of a series."""
_CONSTANTS: Mapping[object, int | float | bool] = {
    int: 1,
    float: 1.0,
    bool: False,
    "int": 1,
    "float": 1.0,
    "bool": False,
}


def guess_input(parameter: inspect.Parameter, model: nn.Module, others: frozenset[str], sizes: ModelSizes) -> InputSpec:
    """First guess for one parameter of `forward`; `others` are the names of all of them."""
    if parameter.annotation in _CONSTANTS:
        return InputSpec.constant(parameter.name, _CONSTANTS[parameter.annotation])
    name, key = parameter.name, parameter.name.lower()
    tables = {path: layer for path, layer in entry_layers(model) if isinstance(layer, nn.Embedding)}
    embedding = next((layer for path, layer in tables.items() if not is_auxiliary(path)), None)
    classes = next((layer.num_embeddings for path, layer in tables.items() if _OF_CLASSES.search(path)), None)
    conv, receiving = _first(model, Convolution), receiving_layer(model, parameter.name)
    entry = first_entry(model, sizes) if receiving is None else input_of("", receiving, sizes)
    facts = {
        "long": "LongTensor" in str(parameter.annotation),
        "embedding": embedding is not None,
        "convolution": conv is not None,
        "times": not TIMES.isdisjoint(others),
        "graph": not OF_GRAPHS.isdisjoint(others),
        "others": len(others) > 1,
        "places": key.removesuffix("_ids") in others - {key},  # of what is beside it
        "predicted": not others.isdisjoint({f"{name}_hat", f"{name}_lengths", f"{name}_pred"}),  # then it is what x is
        "no_other_entry": entry is None or entry.dtype == "int64",
    }
    holding = frozenset(fact for fact, holds in facts.items() if holds)
    length = sizes.length or DEFAULT_LENGTH
    words: dict[str, Callable[[], Any]] = {
        "@image": lambda: _image(conv, sizes),
        "@series": lambda: sizes.series,
        "@series_length": lambda: sizes.series and sizes.series[0],
        "@decoded_series": lambda: sizes.decoded_series,
        "@decoded_length": lambda: sizes.decoded_series and sizes.decoded_series[0],
        "@marks": lambda: _marks(model),
        "@text": lambda: (length, BATCH) if embedding is not None and _is_sequence_first(model) else (BATCH, length),
        "@vocabulary": lambda: TRAINING_STEPS if embedding is None else embedding.num_embeddings,
        "@length": lambda: length,
        "@after_length": lambda: length + 1,
        "@sound": lambda: sizes.sound or _sound(conv, sizes),
        "@stated_sound": lambda: sizes.sound,
        "@mels": lambda: sizes.mels or None,
        "@frames": lambda: sizes.frames or length,
        "@classes": lambda: sizes.num_classes or classes,
        "@width": lambda: sizes.width or None,
        "@node_features": lambda: entry.shape[-1] if entry is not None else sizes.channels or sizes.width or 16,
    }

    def lookup(word: str) -> Any:
        return words[word]()

    spec = None if says_shape(parameter.annotation) else first_input(IMAGES_AND_SERIES, key, lookup, holding)
    is_in_rows = isinstance(receiving, nn.Linear)  # whatever its name says of images or classes
    if spec is not None and not (is_in_rows and len(spec.shape) > 3):
        return annotated(replace(spec, name=name), of_code(model, name, len(spec.shape)), sizes)
    by_name = first_input(FORWARD, key, lookup, holding)
    by_name = None if is_in_rows and by_name is not None and by_name.dtype == "int64" else by_name
    by_layer = InputSpec(name, (BATCH, sizes.channels or sizes.width or 16)) if entry is None else entry
    guess = replace(by_name or by_layer, name=name)
    return annotated(guess, (parameter.annotation, documented(model, name, len(guess.shape))), sizes)


def _image(conv: Any, sizes: ModelSizes) -> tuple[int | str, ...]:
    """The shape of sound, an image or a video, by the first convolution."""
    if conv is None:
        return spatial_input("", 3, 2, sizes).shape
    return spatial_input("", conv.in_channels or 3, len(conv.kernel_size), sizes).shape


def _marks(model: nn.Module) -> int:
    """The numbers that say a step's time: what a layer of times takes, else hour, day, weekday and month."""
    layers = (each for path, each in entry_layers(model) if isinstance(each, nn.Linear) and _OF_TIME.search(path))
    return next((layer.in_features for layer in layers), 4)


def _sound(conv: Any, sizes: ModelSizes) -> tuple[int, ...]:
    """The channels, of which one alone needs no dimension, and samples of sound, by the first convolution."""
    is_mixed = isinstance(conv, nn.Conv1d) and conv.in_channels > 1
    return (*((conv.in_channels,) if is_mixed else ()), sizes.samples or AUDIO_LENGTH)


_WITH_ORDER = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.Transformer, nn.MultiheadAttention, nn.RNNBase)
_REORDERS = re.compile(r"permute|transpose|rearrange|\.t\(\)|\.T\b|swapaxes|movedim")


def _is_sequence_first(model: nn.Module) -> bool:
    """Return True if layers take the batch second, and no code of the model's own modules changes the order."""
    layers = [each for each in model.modules() if isinstance(each, _WITH_ORDER)]
    orders = [getattr(each, "batch_first", True) for each in layers if hasattr(each, "batch_first")]
    if not orders or any(orders):
        return False
    own = {type(each) for each in model.modules() if not type(each).__module__.startswith("torch.")}
    try:
        return not any(_REORDERS.search(inspect.getsource(kind)) for kind in own)
    except (OSError, TypeError):
        return False


def first_entry(model: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Input of the first layer in order of definition."""
    return next((input_of("", layer, sizes) for _, layer in entry_layers(model)), None)


def _first(model: nn.Module, kind: type[Layer]) -> Layer | None:
    return next((layer for _, layer in entry_layers(model) if isinstance(layer, kind)), None)
