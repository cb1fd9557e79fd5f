"""What the name of a `forward` parameter says about the tensor it takes."""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from memlint.accelerator.private import Convolution
from memlint.targets.workload import BATCH, CONSTANT, InputSpec
from memlint.workloads.guess.annotations import annotated
from memlint.workloads.guess.layers import AUDIO_LENGTH, entry_layers, input_of, spatial_input
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes

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
_IMAGES = frozenset(
    {"pixel_values", "image", "images", "img", "imgs", "pixels", "picture", "pictures", "rgb"}
    | {"low_res", "lowres", "lq", "hint", "cond_image"}
)
_SERIES = frozenset({"x", "x_enc", "x_dec", "batch_x", "dec_inp", "z", "past_values"})
_AUDIO = frozenset({"waveform", "waveforms", "audio", "wav", "input_values", "speech"})
_MELS = frozenset({"mel", "mels", "mel_spec", "mel_specs", "spectrogram", "spectrograms", "melspec"})
_BOXES = frozenset({"annotations", "annotation", "annots", "annot", "boxes", "bboxes", "gt_boxes", "gt_bboxes"})
"""An annotation is a box and its class."""
_NUM_BOXES = 8
"""Objects of an image: COCO has 7.3 of them on average (Lin et al., 2014)."""
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
    name, key = parameter.name, parameter.name.lower()
    embedding, conv, entry = _first(model, nn.Embedding), _first(model, Convolution), first_entry(model, sizes)
    is_text = "LongTensor" in str(parameter.annotation) or key in _TOKENS
    is_text |= key in _SEQUENCES and embedding is not None
    if key in _IMAGES and not is_text:
        rank = len(conv.kernel_size) if conv is not None else 2
        return spatial_input(name, (conv.in_channels if conv is not None else 0) or 3, rank, sizes)
    if key in _SERIES and sizes.series is not None:
        return InputSpec(name, (BATCH, *sizes.series))
    if "mark" in key and sizes.series is not None:  # hour, day, weekday, month
        return InputSpec(name, (BATCH, sizes.series[0], 4))
    if conv is not None and not _TIMES.isdisjoint(others) and key in {"x", "noise", "sample", "x_t", "xt", "z_t"}:
        return spatial_input(name, conv.in_channels or 3, len(conv.kernel_size), sizes)
    length, vocabulary = (
        sizes.length or DEFAULT_LENGTH,
        TRAINING_STEPS if embedding is None else embedding.num_embeddings,
    )
    text_shape = (length, BATCH) if embedding is not None and _is_sequence_first(model) else (BATCH, length)
    of_node = not others.isdisjoint(_ADJACENCIES | {"edge_index"})
    # A model for language takes a label for each position, any other a class for each item.
    is_label, is_class = (len(others) > 1 and key in names for names in (LABELS, LABELS | _CLASS_IDS))
    is_class |= len(others) > 1 and key.endswith("_label")
    is_class &= others.isdisjoint({f"{name}_hat", f"{name}_lengths", f"{name}_pred"})  # then it is what x is
    is_length = key in _LENGTHS or key.endswith(("_lengths", "_lens"))
    is_hidden = key in _HIDDEN and sizes.width and (entry is None or entry.dtype == "int64")
    of_names: tuple[tuple[object, tuple[Any, ...], dict[str, Any]], ...] = (
        (is_text, text_shape, {"dtype": "int64", "high": vocabulary}),
        (key in _AUDIO, (BATCH, AUDIO_LENGTH), {}),
        (key in _MELS, (BATCH, sizes.mels or 80, length), {}),
        (key.startswith("max_") or key.endswith("_max"), (), {"dtype": CONSTANT, "low": length}),
        (key in _BOXES, (BATCH, _NUM_BOXES, 5 if "annot" in key else 4), {"low": 0.0, "high": 32.0}),
        (key in _TIMES, (BATCH,), {"dtype": "int64", "high": TRAINING_STEPS}),
        (key == "edge_index", (2, EDGES), {"dtype": "int64", "high": NODES}),
        (key == "edge_weight", (EDGES,), {}),
        (key == "batch" and of_node, (NODES,), {"dtype": "int64", "high": 1}),
        (key == "edge_attr", (EDGES, 1), {}),
        (key in _ADJACENCIES, (NODES, NODES), {"low": 0.0, "high": 1.0}),
        (of_node, (NODES, entry.shape[-1] if entry is not None else sizes.channels or sizes.width or 16), {}),
        (key in _TYPES, (BATCH, length), {"dtype": "int64", "high": 2}),
        (key in _POSITIONS, (BATCH, length), {"dtype": "int64", "high": length}),
        (
            is_length,
            (BATCH,),
            {"dtype": "int64", "low": length, "high": length + 1},
        ),
        (key in _MASKS or key.endswith("_mask"), (BATCH, length), {"dtype": "bool", "low": 1, "high": 2}),
        (is_label and embedding is not None, (BATCH, length), {"dtype": "int64", "high": vocabulary}),
        (is_class, (BATCH,), {"dtype": "int64", "high": sizes.num_classes or 10}),
        (is_hidden, (BATCH, length, sizes.width), {}),
    )
    by_name = next((InputSpec(name, shape, **rest) for applies, shape, rest in of_names if applies), None)
    by_layer = (
        InputSpec(name, (BATCH, sizes.channels or sizes.width or 16)) if entry is None else replace(entry, name=name)
    )
    return annotated(by_name or by_layer, parameter.annotation, sizes)


def _forward(kind: type[nn.Module]) -> ast.Module:
    """The code of `forward`; empty where nobody sees it."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(kind.forward)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def is_list(model: nn.Module, name: str) -> bool:
    """Whether the code of `forward` goes over its parameter `name` and counts its entries: no tensor, but several."""
    nodes = list(ast.walk(_forward(type(model))))
    loops = (node.iter for node in nodes if isinstance(node, ast.For | ast.comprehension))
    return any(isinstance(each, ast.Name) and each.id == name for each in loops) and any(
        isinstance(node, ast.Call) and ast.unparse(node) == f"len({name})" for node in nodes
    )


def fields(model: nn.Module, name: str) -> tuple[str, ...]:
    """Names under which the code of `forward` reads its parameter `name`: keys of a dictionary, or attributes.

    So batches of dictionaries and of TensorDict are read, and PyG's `data.x` and `data.edge_index`. What every tensor
    has is none of them, nor are counts.
    """
    nodes = list(ast.walk(_forward(type(model))))
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    keys: list[object] = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="get"), args=[ast.Constant(value=key), *_]):
                keys += [key] if owner == name else []
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=key), ctx=ast.Load()):
                keys += [key] if owner == name else []
            case ast.Attribute(value=ast.Name(id=owner), attr=key, ctx=ast.Load()) if node not in called:
                keys += [key] if owner == name else []
    of_all = (key for key in dict.fromkeys(keys) if isinstance(key, str) and not hasattr(Tensor, key))
    return tuple(key for key in of_all if not key.startswith("num_") and key != "batch_size")


def unpacked(model: nn.Module, name: str) -> tuple[str, ...]:
    """Names that the code of `forward`, in the mode of `model`, takes its parameter `name` apart into."""
    tree = _forward(type(model))
    skipped = {
        each
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("self.training", "not self.training")
        for each in (node.orelse if (ast.unparse(node.test) == "self.training") is model.training else node.body)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and node not in skipped and ast.unparse(node.value) == name:
            target = node.targets[0]
            if isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
                return tuple(each.id for each in target.elts if isinstance(each, ast.Name))
    return ()


_WITH_ORDER = (nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.Transformer, nn.MultiheadAttention, nn.RNNBase)
_REORDERS = re.compile(r"permute|transpose|rearrange|\.t\(\)|\.T\b|swapaxes|movedim")


def _is_sequence_first(model: nn.Module) -> bool:
    """Whether its layers take the batch second, and nothing in the code of its own modules changes the order."""
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
