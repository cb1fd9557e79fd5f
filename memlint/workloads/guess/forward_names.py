"""Guesses the tensor that a parameter of `forward` takes from its name."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn

from memlint.accelerator.private import Convolution
from memlint.targets.workload import BATCH, InputSpec
from memlint.workloads.guess.annotations import annotated
from memlint.workloads.guess.layers import AUDIO_LENGTH, entry_layers, input_of, spatial_input
from memlint.workloads.model_sizes import DEFAULT_LENGTH, ModelSizes
from memlint.workloads.name_table import FORWARD, IMAGES_AND_SERIES, OF_GRAPHS, TIMES, TRAINING_STEPS, first_input

Layer = TypeVar("Layer", bound=nn.Module)

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
    embedding, conv, entry = _first(model, nn.Embedding), _first(model, Convolution), first_entry(model, sizes)
    facts = {
        "long": "LongTensor" in str(parameter.annotation),
        "embedding": embedding is not None,
        "convolution": conv is not None,
        "times": not TIMES.isdisjoint(others),
        "graph": not OF_GRAPHS.isdisjoint(others),
        "others": len(others) > 1,
        "predicted": not others.isdisjoint({f"{name}_hat", f"{name}_lengths", f"{name}_pred"}),  # then it is what x is
        "no_other_entry": entry is None or entry.dtype == "int64",
    }
    holding = frozenset(fact for fact, holds in facts.items() if holds)
    length = sizes.length or DEFAULT_LENGTH
    words: dict[str, Callable[[], Any]] = {
        "@image": lambda: _image(conv, sizes),
        "@series": lambda: sizes.series,
        "@series_length": lambda: sizes.series and sizes.series[0],
        "@text": lambda: (length, BATCH) if embedding is not None and _is_sequence_first(model) else (BATCH, length),
        "@vocabulary": lambda: TRAINING_STEPS if embedding is None else embedding.num_embeddings,
        "@length": lambda: length,
        "@after_length": lambda: length + 1,
        "@samples": lambda: AUDIO_LENGTH,
        "@mels": lambda: sizes.mels or None,
        "@classes": lambda: sizes.num_classes or None,
        "@width": lambda: sizes.width or None,
        "@node_features": lambda: entry.shape[-1] if entry is not None else sizes.channels or sizes.width or 16,
    }

    def lookup(word: str) -> Any:
        return words[word]()

    if (spec := first_input(IMAGES_AND_SERIES, key, lookup, holding)) is not None:
        return replace(spec, name=name)
    by_name = first_input(FORWARD, key, lookup, holding)
    by_layer = InputSpec(name, (BATCH, sizes.channels or sizes.width or 16)) if entry is None else entry
    return annotated(replace(by_name or by_layer, name=name), parameter.annotation, sizes)


def _image(conv: Any, sizes: ModelSizes) -> tuple[int | str, ...]:
    """The shape of sound, an image or a video, by the first convolution."""
    if conv is None:
        return spatial_input("", 3, 2, sizes).shape
    return spatial_input("", conv.in_channels or 3, len(conv.kernel_size), sizes).shape


def _forward(kind: type[nn.Module]) -> ast.Module:
    """The code of `forward`; empty where nobody sees it."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(kind.forward)))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def is_list(model: nn.Module, name: str) -> bool:
    """Return True if `forward` iterates over its parameter `name` and counts its entries: no tensor, but several."""
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
