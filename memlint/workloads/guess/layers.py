"""The input a layer takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from memlint.workloads.guess.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH, Hints, is_position_name
from memlint.workloads.spec import BATCH, InputSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

_NORMS = (_BatchNorm, _InstanceNorm, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_TRANSFORMERS = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
ENTRIES = (
    nn.Embedding,
    nn.EmbeddingBag,
    _ConvNd,
    nn.Linear,
    nn.Bilinear,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.Transformer,
    *_TRANSFORMERS,
    *_NORMS,
)
"""Kinds of layer that say what their input looks like."""

AUDIO_LENGTH = 16_000
"""One second at the usual sampling rate."""
_SEQUENCE = 1024
_VIDEO = (16, 112, 112)
_AUXILIARY = ("type", "segment", "time", "class", "label")


def input_of(name: str, layer: nn.Module, hints: Hints) -> InputSpec | None:
    """Input named `name` that `layer` takes as it comes from the data loader; None for a layer that does not say."""
    length = hints.length or DEFAULT_LENGTH
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return InputSpec(name, (BATCH, length), "int64", high=layer.num_embeddings)
        case _ConvNd():
            # A lazy layer has no channels yet.
            return _spatial(name, layer.in_channels or 3, len(layer.kernel_size), hints)
        case nn.Linear():
            return InputSpec(name, (BATCH, layer.in_features))
        case nn.Bilinear():
            return InputSpec(name, (BATCH, layer.in1_features))
    return _sequence_input(name, layer, length) or _norm_input(name, layer, length, hints)


def _sequence_input(name: str, layer: nn.Module, length: int) -> InputSpec | None:
    """Input of a recurrent or attention layer."""
    match layer:
        case nn.RNNCellBase():
            return InputSpec(name, (BATCH, layer.input_size))
        case nn.RNNBase():
            batch_first, features = layer.batch_first, layer.input_size
        case nn.MultiheadAttention():
            batch_first, features = layer.batch_first, layer.embed_dim
        case nn.TransformerEncoderLayer() | nn.TransformerDecoderLayer():
            batch_first, features = layer.self_attn.batch_first, layer.self_attn.embed_dim
        case nn.Transformer():
            batch_first, features = layer.batch_first, layer.d_model
        case _:
            return None
    return InputSpec(name, (BATCH, length, features) if batch_first else (length, BATCH, features))


def _norm_input(name: str, layer: nn.Module, length: int, hints: Hints) -> InputSpec | None:
    """Input of a normalisation layer."""
    match layer:
        case nn.LayerNorm() | nn.RMSNorm():
            return InputSpec(name, (BATCH, length, *layer.normalized_shape))
        case nn.GroupNorm():
            return _spatial(name, layer.num_channels, 2, hints)
        case nn.BatchNorm2d() | nn.InstanceNorm2d():
            return _spatial(name, layer.num_features, 2, hints)
        case nn.BatchNorm3d() | nn.InstanceNorm3d():
            return _spatial(name, layer.num_features, 3, hints)
        case _BatchNorm() | _InstanceNorm():
            return InputSpec(name, (BATCH, layer.num_features))
    return None


def entry_layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Layers that may take the model's input, in order of definition; tables of positions and types come last."""
    late = []
    for path, module in model.named_modules():
        if not isinstance(module, ENTRIES):
            continue
        last = path.rpartition(".")[2].lower()
        if isinstance(module, nn.Embedding) and (is_position_name(path) or any(word in last for word in _AUXILIARY)):
            late.append((path, module))
        else:
            yield path, module
    yield from late


def image_of(name: str, channels: int, hints: Hints) -> InputSpec:
    """Images of the size the model names."""
    return _spatial(name, channels, 2, hints)


def _spatial(name: str, channels: int, dimensions: int, hints: Hints) -> InputSpec:
    if dimensions == 1:
        length = hints.length or (AUDIO_LENGTH if channels == 1 else _SEQUENCE)
        return InputSpec(name, (BATCH, channels, length))
    if dimensions == 3:
        return InputSpec(name, (BATCH, channels, *_VIDEO))
    size = hints.image_size or ((28, 28) if channels == 1 else (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))
    return InputSpec(name, (BATCH, channels, *size))
