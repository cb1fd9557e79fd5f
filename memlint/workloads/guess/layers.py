"""The input that a layer accepts."""

from torch import nn

from memlint.accelerator.private import BatchNorm, Convolution, InstanceNorm
from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.model_sizes import DEFAULT_IMAGE_SIZE, DEFAULT_LENGTH, ModelSizes, is_position_name
from memlint.workloads.receiving_layers import ENTRIES

AUDIO_LENGTH = 16_000
"""One second at the usual sampling rate."""
SERIES_LENGTH = 1024
"""Steps of a series that nothing states."""
PICTURES, VIDEO_SIZE = 16, (112, 112)
"""Pictures of a video that nothing states, and their height and width."""
_AUXILIARY = ("type", "segment", "time", "class", "label")


def input_of(name: str, layer: nn.Module, sizes: ModelSizes) -> InputSpec | None:
    """Return an input `name` for `layer`, as the data loader would give it; None if the layer does not determine it."""
    length = sizes.length or DEFAULT_LENGTH
    match layer:
        case nn.Embedding() | nn.EmbeddingBag():
            return InputSpec(name, (BATCH, length), "int64", high=layer.num_embeddings)
        case Convolution():
            # A lazy layer has no channels yet.
            return spatial_input(name, layer.in_channels or 3, len(layer.kernel_size), sizes)
        case nn.Linear():
            return InputSpec(name, (BATCH, layer.in_features))
        case nn.Bilinear():
            return InputSpec(name, (BATCH, layer.in1_features))
    return _sequence_input(name, layer, length) or _norm_input(name, layer, length, sizes)


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


def _norm_input(name: str, layer: nn.Module, length: int, sizes: ModelSizes) -> InputSpec | None:
    """Input of a normalisation layer."""
    match layer:
        case nn.LayerNorm() | nn.RMSNorm():
            return InputSpec(name, (BATCH, length, *layer.normalized_shape))
        case nn.GroupNorm():
            return spatial_input(name, layer.num_channels, _dimensions(sizes.model), sizes)
        case nn.BatchNorm2d() | nn.InstanceNorm2d():
            return spatial_input(name, layer.num_features, 2, sizes)
        case nn.BatchNorm3d() | nn.InstanceNorm3d():
            return spatial_input(name, layer.num_features, 3, sizes)
        case BatchNorm() | InstanceNorm():
            return InputSpec(name, (BATCH, layer.num_features))
    return None


def _dimensions(model: nn.Module) -> int:
    """Return the number of spatial dimensions of a model's first convolution; 2 without any."""
    return next((len(each.kernel_size) for each in model.modules() if isinstance(each, Convolution)), 2)


def entry_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return layers that may get the model's input, in order of definition; tables of positions and types come last."""
    layers = [(path, module) for path, module in model.named_modules() if isinstance(module, ENTRIES)]
    return sorted(layers, key=lambda layer: isinstance(layer[1], nn.Embedding) and is_auxiliary(layer[0]))


def is_auxiliary(path: str) -> bool:
    """Return True if a table of this path is for positions, types, times or classes, and not for words."""
    last = path.rpartition(".")[2].lower()
    return is_position_name(path) or any(word in last for word in _AUXILIARY)


def spatial_input(name: str, channels: int, dimensions: int, sizes: ModelSizes) -> InputSpec:
    """Return sound, images or videos with 1, 2 or 3 spatial `dimensions`, of the size that the model states."""
    if dimensions == 1:
        of_layer = sizes.samples or AUDIO_LENGTH if channels == 1 else sizes.frames or SERIES_LENGTH
        length = sizes.length or of_layer
        return InputSpec(name, (BATCH, channels, length))
    if dimensions == 3:
        return InputSpec(name, (BATCH, channels, sizes.pictures or PICTURES, *(sizes.image_size or VIDEO_SIZE)))
    size = sizes.image_size or ((28, 28) if channels == 1 else (DEFAULT_IMAGE_SIZE, DEFAULT_IMAGE_SIZE))
    return InputSpec(name, (BATCH, channels, *size))
