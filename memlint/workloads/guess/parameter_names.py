"""What the name of a `forward` parameter says about the tensor it takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from torch import nn
from torch.nn.modules.conv import _ConvNd

from memlint.workloads.guess.layers import AUDIO_LENGTH, entry_layers, input_of, spatial_input
from memlint.workloads.guess.model_sizes import DEFAULT_LENGTH, ModelSizes
from memlint.workloads.spec import BATCH, InputSpec

Layer = TypeVar("Layer", bound=nn.Module)

NODES, EDGES = 1024, 8192
"""Size of the graph a graph network is given unless declared."""

LABELS = frozenset({"targets", "target", "labels", "label", "tgt_labels", "y_true"})
"""Parameters that make a model return its loss."""

_TOKENS = frozenset(
    {"input_ids", "tokens", "token_ids", "token", "ids", "idx", "text", "texts", "input_tokens", "indices", "words"}
    | {"decoder_input_ids", "src_tokens", "tgt_tokens", "prev_output_tokens", "caption", "captions", "prompt"}
)
_SEQUENCES = frozenset({"src", "tgt", "trg", "source", "query", "memory", "decoder_input", "encoder_input"})
_IMAGES = frozenset({"pixel_values", "image", "images", "img", "imgs", "pixels", "picture", "pictures", "rgb"})
_AUDIO = frozenset({"waveform", "waveforms", "audio", "wav", "input_values", "speech"})
_TIMES = frozenset(
    {"t", "time", "times", "timestep", "timesteps", "time_steps", "step", "noise_levels", "sigma", "sigmas"}
)
_CLASS_IDS = frozenset({"y", "class_labels", "class_label", "class_ids", "c", "classes"})
_MASKS = frozenset({"mask", "attention_mask", "attn_mask", "src_mask", "tgt_mask", "padding_mask", "key_padding_mask"})
_POSITIONS = frozenset({"position_ids", "positions", "pos", "pos_ids", "input_pos"})
_TYPES = frozenset({"token_type_ids", "segment_ids", "type_ids", "segments", "segment_info"})
_LENGTHS = frozenset({"lengths", "length", "seq_lens", "seq_lengths", "input_lengths", "src_lengths"})
_ADJACENCIES = frozenset({"adj", "adjacency", "adj_matrix", "adjacency_matrix", "a_hat"})
_HIDDEN = frozenset(
    {"hidden_states", "encoder_hidden_states", "context", "inputs_embeds", "memory", "cond", "embeddings"}
)
_CONSTANTS: Mapping[object, int | float | bool] = {
    int: 1,
    float: 1.0,
    bool: False,
    "int": 1,
    "float": 1.0,
    "bool": False,
}

TRAINING_STEPS = 1000
"""Timesteps of a diffusion model."""


def guess_input(parameter: inspect.Parameter, model: nn.Module, others: frozenset[str], sizes: ModelSizes) -> InputSpec:
    """First guess for one parameter of `forward`; `others` are the names of all of them."""
    if parameter.annotation in _CONSTANTS:
        return InputSpec.constant(parameter.name, _CONSTANTS[parameter.annotation])
    words = "int64" if "LongTensor" in str(parameter.annotation) else ""
    return (
        _data(parameter.name, words, model, sizes)
        or _graph(parameter.name, others, model, sizes)
        or _beside_tokens(parameter.name, sizes)
        or (_target(parameter.name, model, sizes) if len(others) > 1 else None)
        or _layered(parameter.name, model, sizes)
    )


def first_entry(model: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Input of the first layer in order of definition."""
    return next((input_of("", layer, sizes) for _, layer in entry_layers(model)), None)


def _data(name: str, words: str, model: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Text, images, audio, timesteps."""
    key, table = name.lower(), _first(model, nn.Embedding)
    if words or key in _TOKENS or (key in _SEQUENCES and table is not None):
        vocabulary = table.num_embeddings if table is not None else TRAINING_STEPS
        return InputSpec(name, (BATCH, sizes.length or DEFAULT_LENGTH), "int64", high=vocabulary)
    if key in _IMAGES:
        conv = _first(model, _ConvNd)
        return spatial_input(name, (conv.in_channels if conv is not None else 0) or 3, 2, sizes)
    if key in _AUDIO:
        return InputSpec(name, (BATCH, AUDIO_LENGTH))
    if key in _TIMES:
        return InputSpec(name, (BATCH,), "int64", high=TRAINING_STEPS)
    return None


def _graph(name: str, others: frozenset[str], model: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Edges, and the nodes beside them."""
    key = name.lower()
    if key == "edge_index":
        return InputSpec(name, (2, EDGES), "int64", high=NODES)
    if key in {"edge_attr", "edge_weight"}:
        return InputSpec(name, (EDGES,) if key == "edge_weight" else (EDGES, 1))
    if key in _ADJACENCIES:
        return InputSpec(name, (NODES, NODES), low=0.0, high=1.0)
    entry = first_entry(model, sizes)
    if entry is not None and others & (_ADJACENCIES | {"edge_index"}):
        return InputSpec(name, (NODES, entry.shape[-1]))
    return None


def _beside_tokens(name: str, sizes: ModelSizes) -> InputSpec | None:
    """Masks, positions, segments, lengths of a text."""
    key, length = name.lower(), sizes.length or DEFAULT_LENGTH
    if key in _TYPES:
        return InputSpec(name, (BATCH, length), "int64", high=2)
    if key in _POSITIONS:
        return InputSpec(name, (BATCH, length), "int64", high=length)
    if key in _LENGTHS:
        return InputSpec(name, (BATCH,), "int64", low=length, high=length + 1)
    if key in _MASKS or key.endswith("_mask"):
        return InputSpec(name, (BATCH, length), "bool", low=1, high=2)
    return None


def _target(name: str, model: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Labels that `forward` requires: a token per position for a language model, else a class per item."""
    key, table = name.lower(), _first(model, nn.Embedding)
    if key in LABELS and table is not None:
        return InputSpec(name, (BATCH, sizes.length or DEFAULT_LENGTH), "int64", high=table.num_embeddings)
    if key in LABELS | _CLASS_IDS:
        return InputSpec(name, (BATCH,), "int64", high=sizes.num_classes or 10)
    return None


def _layered(name: str, model: nn.Module, sizes: ModelSizes) -> InputSpec:
    """Guess what the first layer takes."""
    entry = first_entry(model, sizes)
    if entry is not None and not (name.lower() in _HIDDEN and entry.dtype == "int64" and sizes.width):
        return InputSpec(name, entry.shape, entry.dtype, entry.low, entry.high)
    if sizes.width is not None and name.lower() in _HIDDEN:
        return InputSpec(name, (BATCH, sizes.length or DEFAULT_LENGTH, sizes.width))
    return InputSpec(name, (BATCH, sizes.width or 16))


def _first(model: nn.Module, kind: type[Layer]) -> Layer | None:
    return next((layer for _, layer in entry_layers(model) if isinstance(layer, kind)), None)
