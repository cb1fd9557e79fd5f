"""Number of a text's tokens that stand for an image, a video or a recording: as many as the model's tower returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from memlint.accelerator.private import tree_leaves, tree_map_only
from memlint.base.signatures import signature_of
from memlint.targets.workload import InputSpec
from memlint.workloads.config_parts import parts, text_config
from memlint.workloads.tensors import make_inputs

KINDS = ("image", "video", "audio")
_TOKENS = ("{}_token_id", "{}_token_index", "{}_placeholder_token_id", "{}_placeholder_id")
_BEFORE = ("vision_start_token_id", "{}_start_token_id", "{}_bos_token_id", "boi_token_id", "boi_token_index")
_AFTER = ("vision_end_token_id", "{}_end_token_id", "{}_eos_token_id", "eoi_token_id", "eoi_token_index")
_OF_TEXT = ("eos", "bos", "pad", "sep", "cls", "unk", "decoder_start", "forced")
_BATCH = 2


def placeholder(config: Any, kind: str) -> int | None:
    """Return the token that stands for one feature of a `kind`; None if the model's texts have none."""
    name = placeholder_name(config, kind)
    token = None if name is None else getattr(config, name)
    return token if type(token) is int and token >= 0 else None


def placeholder_name(config: Any, kind: str) -> str | None:
    """Return the config's name for that token, whose value may be None; None if a config knows no such token."""
    return next((name for each in _TOKENS if hasattr(config, name := each.format(kind))), None)


def config_of_placeholders(config: Any, kind: str) -> Any:
    """Return the config itself, or the one within it that names the token for a `kind`."""
    return next((part for part in parts(config) if placeholder(part, kind) is not None), config)


def placeholders(model: Any, kind: str, specs: tuple[InputSpec, ...]) -> tuple[tuple[int, int], ...]:
    """Return the tokens that a text begins with and their counts, for the tower's inputs `specs`.

    Passes on its exceptions.
    """
    config = config_of_placeholders(model.config, kind)
    token = placeholder(config, kind)
    if token is None:
        return ()
    count = _num_features(model, kind, specs)
    before, after = (_name(config, names, kind) for names in (_BEFORE, _AFTER))
    opening, closing = (((int(getattr(config, name)), 1),) if name else () for name in (before, after))
    return (*opening, (token, count), *closing) if count else ()


def special_tokens(config: Any) -> Iterator[int]:
    """Yield tokens that a text contains only if something stands for them."""
    for part in {id(each): each for each in (config, text_config(config))}.values():
        for name, value in vars(part).items():
            is_token = name.endswith(("token_id", "token_index")) and not name.startswith(_OF_TEXT)
            if is_token and type(value) is int and value >= 0:
                yield value


def _name(config: Any, names: tuple[str, ...], kind: str) -> str | None:
    for name in (name.format(kind) for name in names):
        value = getattr(config, name, None)
        if type(value) is int and value >= 0:
            return name
    return None


def _num_features(model: Any, kind: str, specs: tuple[InputSpec, ...]) -> int:
    """Return the features that the tower returns per item, counted on two items."""
    owner = next((each for each in model.modules() if hasattr(each, f"get_{kind}_features")), None)
    if owner is None:
        return 0
    tower = getattr(owner, f"get_{kind}_features")
    place = next(model.parameters()).device
    inputs: Mapping[str, Any] = tree_map_only(torch.Tensor, lambda each: each.to(place), make_inputs(specs, _BATCH, {}))
    taken = signature_of(tower).parameters
    with torch.no_grad():
        output = tower(**{name: value for name, value in inputs.items() if name in taken})
    pooled = getattr(output, "pooler_output", None)
    features = [
        leaf
        for leaf in tree_leaves(pooled if pooled is not None else getattr(output, "last_hidden_state", output))
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    return sum(leaf.numel() // leaf.shape[-1] for leaf in features) // _BATCH
