"""The config of what one rank runs: the same model with its share of heads and features, and of few layers."""

import copy
from typing import Any

from memlint.base.errors import WorkloadError
from memlint.serving.weights import padded_vocabulary

_HEADS = ("num_attention_heads", "linear_num_key_heads", "linear_num_value_heads", "mamba_n_heads", "mamba_num_heads")
_FEATURES = (
    *("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp"),
    *("ffn_dim", "shared_intermediate_size"),
)
"""Sizes between two matrices of which the first is cut by rows and the second by columns."""


_BY_LAYER = ("layer_types", "layers_block_type", "no_rope_layers", "mlp_layer_types")
"""Lists with an entry for each layer."""


def heads_of(config: Any) -> tuple[int, int]:
    """Return the heads of queries, and those of keys and values."""
    heads = int(config.num_attention_heads)
    own = getattr(config, "num_key_value_heads", None)
    return heads, int(own or heads)


def head_of(config: Any) -> int:
    """Return the size of a head."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def rank_config(config: Any, ranks: int, num_layers: int) -> Any:
    """Return the config of one of `ranks` of the model of `config`, with its first `num_layers`.

    Raises WorkloadError where heads or features cannot be divided among so many.
    """
    own = copy.deepcopy(config)
    _, kv_heads = heads_of(config)
    if ranks > 1:
        own.head_dim = head_of(config)
        for name in (*_HEADS, *_FEATURES):
            size = getattr(config, name, None)
            if isinstance(size, int):
                _set(own, name, _divided(size, ranks, name))
        if hasattr(config, "num_key_value_heads"):
            own.num_key_value_heads = max(1, kv_heads // ranks)
        own.vocab_size = padded_vocabulary(config.vocab_size) // ranks
    own.num_hidden_layers = num_layers
    for name, value in vars(config).items():
        if name in _BY_LAYER and isinstance(value, list):
            setattr(own, name, value[:num_layers])
    if isinstance(getattr(config, "moe_layers", None), list):
        own.moe_layers = [layer for layer in config.moe_layers if layer < num_layers]
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        setattr(own, name, None)  # they may lie beyond a rank's share of the vocabulary
    return own


def _set(config: Any, name: str, value: int) -> None:
    try:
        setattr(config, name, value)
    except (AttributeError, NotImplementedError, ValueError):  # a property of others
        return


def _divided(size: int, ranks: int, name: str) -> int:
    if size % ranks:
        raise WorkloadError(
            f"{name} {size} cannot be divided among {ranks} ranks, and the engine refuses to start",
            "Give --tp a divisor of it.",
        )
    return size // ranks
