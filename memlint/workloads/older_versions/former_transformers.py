"""Models and configs written for transformers 4: settings of each config, methods of each model, lists of tied weights.

Source: `PretrainedConfig`, `ModuleUtilsMixin` and `PreTrainedModel` of transformers 4.46, and what `PreTrainedModel` of
version 5 says of tied weights.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from memlint.base.after_import import after_import

Tensor = torch.Tensor


class _RopeTheta:
    """The base of rotary positions; a config may have one of its own."""

    def __get__(self, config: Any, _kind: type) -> float:
        return float((getattr(config, "rope_parameters", None) or {}).get("rope_theta", 10_000.0))


class _SupportsFlashAttention:
    """True for a class that says so under the name of version 4."""

    def __get__(self, _model: Any, kind: type) -> bool:
        return getattr(kind, "_supports_flash_attn_2", False)


def _rope_scaling(config: Any) -> dict[str, Any] | None:
    """Return how rotary positions are scaled, with the name that it had; None where they are not."""
    parameters = config.rope_parameters or {}
    kind = parameters.get("rope_type", "default")
    return None if kind == "default" else {"type": kind, **parameters}


FORMER_SETTINGS: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id"),
            *("cross_attention_hidden_size", "prefix", "task_specific_params", "finetuning_task"),
        )
    ),
    **dict.fromkeys(
        ("is_decoder", "add_cross_attention", "tie_encoder_decoder", "torchscript", "use_bfloat16", "tf_legacy_loss"),
        False,
    ),
    "tie_word_embeddings": True,
    "pruned_heads": {},
    "rope_theta": _RopeTheta(),
}
"""Settings of every config by name, with their values where nothing else was said."""


def put_former_settings(config: type) -> None:
    """Give the class of all configs the settings that it lacks."""
    for name in (each for each in FORMER_SETTINGS if not hasattr(config, each)):
        setattr(config, name, FORMER_SETTINGS[name])
    if isinstance(scaling := vars(config).get("rope_scaling"), property):
        setattr(config, "rope_scaling", scaling.getter(_rope_scaling))  # noqa: B010 -- of version 5


def _added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is added to scores: nothing where the mask is 1, and the lowest number where it is 0."""
    return (1.0 - mask.to(dtype)) * torch.finfo(dtype).min


def _broadcast(mask: Tensor) -> Tensor:
    """Return a mask of [batch, keys] or [batch, queries, keys] with a dimension of heads."""
    return mask[:, None] if mask.dim() == 3 else mask[:, None, None]


def _invert_attention_mask(model: Any, encoder_attention_mask: Tensor) -> Tensor:
    return _added(_broadcast(encoder_attention_mask), model.dtype)


def _get_extended_attention_mask(
    model: Any,
    attention_mask: Tensor,
    input_shape: Any,
    device: Any = None,  # noqa: ARG001 -- which version 4 took, too
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Return the mask of each head; that of a decoder also hides what comes later."""
    mask = _broadcast(attention_mask)
    if attention_mask.dim() == 2 and getattr(model.config, "is_decoder", False):
        length, keys = int(input_shape[1]), attention_mask.shape[1]
        later = torch.ones(length, keys, device=attention_mask.device, dtype=attention_mask.dtype)
        mask = mask * later.tril(keys - length)
    return _added(mask, dtype or model.dtype)


def _get_head_mask(
    model: Any, head_mask: Tensor | None, num_hidden_layers: int, is_attention_chunked: bool = False
) -> Any:
    """Return the mask of each layer's heads; None for each without one."""
    if head_mask is None:
        return [None] * num_hidden_layers
    layers = head_mask[None].expand(num_hidden_layers, -1) if head_mask.dim() == 1 else head_mask
    layers = layers[:, None, :, None, None].to(model.dtype)
    return layers.unsqueeze(-1) if is_attention_chunked else layers


FORMER_METHODS: Mapping[str, Callable[..., Any]] = {
    "get_extended_attention_mask": _get_extended_attention_mask,
    "get_head_mask": _get_head_mask,
    "invert_attention_mask": _invert_attention_mask,
}
"""Methods of every model by name."""


def _with_padding(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a tokenizer as version 5 takes them."""
    pads = options.pop("pad_to_max_length", False)
    return {"padding": "max_length", **options} if pads else options


def _encode_plus(tokenizer: Any, text: Any, text_pair: Any = None, *args: Any, **options: Any) -> Any:
    return tokenizer(text, text_pair, *args, **_with_padding(options))


def _batch_encode_plus(tokenizer: Any, batch_text_or_text_pairs: Any, *args: Any, **options: Any) -> Any:
    """Return the tokens of texts, or of pairs of them."""
    rows = list(batch_text_or_text_pairs)
    is_paired = bool(rows) and isinstance(rows[0], tuple) and len(rows[0]) == 2
    pairs = map(list, zip(*rows, strict=True)) if is_paired else (rows, None)
    return tokenizer(*pairs, *args, **_with_padding(options))


FORMER_METHODS_OF_TOKENIZERS: Mapping[str, Callable[..., Any]] = {
    "batch_encode_plus": _batch_encode_plus,
    "encode_plus": _encode_plus,
}
"""Methods of every tokenizer by name."""
FORMER_PROPERTIES_OF_TOKENIZERS: Mapping[str, Callable[..., Any]] = {
    "additional_special_tokens": lambda tokenizer: tokenizer.extra_special_tokens,
    "additional_special_tokens_ids": lambda tokenizer: tokenizer.extra_special_tokens_ids,
}
"""Properties of every tokenizer by name."""
_TIED = "transformers takes no list of tied weights any more: each is tied to the embedding of the inputs"
used: dict[str, None] = {}
"""Texts on what models and tokenizers have used since they run with version 5."""


def install() -> None:
    """Let transformers, where it is imported from now on, have what it had before."""
    after_import("transformers.utils.import_utils", _execute_once)
    after_import("transformers.modeling_utils", _put_former_methods)
    after_import("transformers.tokenization_utils_base", _put_former_methods_of_tokenizers)
    after_import("transformers.models.auto.configuration_auto", _let_configs_be_replaced)


def _execute_once(module: ModuleType) -> None:
    """Let transformers read its own texts from the module that is there: a second one lacks what it was given."""
    direct: Callable[..., ModuleType] = module.direct_transformers_import

    @functools.wraps(direct)
    def known(path: str, file: str = "__init__.py") -> ModuleType:
        return sys.modules.get("transformers") or direct(path, file)

    setattr(module, direct.__name__, known)


def _put_former_methods(module: ModuleType) -> None:
    """Give models the methods that they lack, and let version 5 build those of version 4.

    Their constructors may end with `init_weights`, not with `post_init`, and they list weights, each of which is tied
    to the embedding of the inputs; where they list none, that of their output embedding is.
    """
    kind: Any = module.PreTrainedModel
    _put(kind, FORMER_METHODS, "models")
    if vars(kind).get("_supports_flash_attn") is False:  # each class of version 4 says so under its former name
        kind._supports_flash_attn = _SupportsFlashAttention()
    if not hasattr(kind, "get_expanded_tied_weights_keys"):
        return
    init, expand = kind.init_weights, kind.get_expanded_tied_weights_keys

    @functools.wraps(init)
    def init_weights(self: Any) -> None:
        init(self) if hasattr(self, "all_tied_weights_keys") else self.post_init()

    @functools.wraps(expand)
    def get_expanded_tied_weights_keys(self: Any, *args: Any, **kwargs: Any) -> Any:
        listed, names = self._tied_weights_keys, {id(each): path for path, each in self.named_modules()}
        is_own = not type(self).__module__.startswith("transformers.")
        if listed is None and is_own and self.get_output_embeddings() is not None:
            listed = [f"{names.get(id(self.get_output_embeddings()))}.weight"]
        if isinstance(listed, list | tuple | set):
            source = names.get(id(self.get_input_embeddings()), "")
            weights = dict(self.named_parameters(remove_duplicate=False))
            shape = getattr(weights.get(f"{source}.weight"), "shape", None)
            alike = [key for key in listed if key in weights and weights[key].shape == shape]
            self._tied_weights_keys = {key: f"{source}.weight" for key in alike if key != f"{source}.weight"}
            used[_TIED] = None
        return expand(self, *args, **kwargs)

    kind.init_weights, kind.get_expanded_tied_weights_keys = init_weights, get_expanded_tied_weights_keys


def _let_configs_be_replaced(module: ModuleType) -> None:
    """Let a program register a config under a name that transformers has since taken: the program's counts."""
    kind: Any = type(module.CONFIG_MAPPING)
    register = kind.register

    @functools.wraps(register)
    def registered(self: Any, key: str, value: type, exist_ok: bool = False) -> None:
        if key in self._mapping and not exist_ok:
            used[f"transformers has a config {key} of its own: the program's takes its place"] = None
        register(self, key, value, exist_ok=True)

    kind.register = registered


def _put_former_methods_of_tokenizers(module: ModuleType) -> None:
    """Give tokenizers the methods and properties that they lack."""
    kind = module.PreTrainedTokenizerBase
    _put(kind, FORMER_METHODS_OF_TOKENIZERS, "tokenizers")
    if "additional_special_tokens" not in kind.SPECIAL_TOKENS_ATTRIBUTES:  # version 5 has them as extra tokens
        for name, value in FORMER_PROPERTIES_OF_TOKENIZERS.items():
            setattr(kind, name, property(value))


def _put(kind: type, methods: Mapping[str, Callable[..., Any]], shown: str) -> None:
    """Give a class what it lacks of these methods."""
    for name in (each for each in methods if not hasattr(kind, each)):
        setattr(kind, name, _noted(methods[name], f"{shown} of transformers 5 have no {name}: it is as in version 4"))


def _noted(method: Callable[..., Any], text: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def noted(*args: Any, **kwargs: Any) -> Any:
        used[text] = None
        return method(*args, **kwargs)

    return noted
