"""Parameters of a model as it declares them, and what each of its layers keeps of a request."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from memlint.base.errors import WorkloadError
from memlint.serving.model import Attention, CacheLayer, Encoder, Parameter, Role, ServedModel, State
from memlint.session.serving.rank_config import head_of, heads_of
from memlint.workloads.huggingface.models import model_class
from memlint.workloads.user_errors import reported

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block)\.(\d+)\.")
_ATTENTIONS: Mapping[str, Attention] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
}
"""Kinds of layers by their name in `layer_types` of configs of transformers."""
_BOTH = "hybrid"
"""A layer with attention and a state side by side."""
_IMAGE_CHANNELS = 3
_TILES = 17
"""Parts of the largest image, and the whole of it, of models that shuffle pixels: max_patches of Llama 4's processor.
"""
_DEFAULT_LENGTH = 2048
"""Positions of a model whose config does not say: vLLM's own default, config/model.py."""


def describe(config: Any, name: str, dtype: str) -> ServedModel:
    """Describe the model of a Hugging Face config. Raises WorkloadError for one that no engine serves as text model."""
    import transformers  # noqa: PLC0415 - slow, and only needed here

    if getattr(config, "is_encoder_decoder", False):
        raise WorkloadError(f"{name} has an encoder and a decoder: only decoders are modelled", "Give a decoder.")
    text = config.get_text_config()
    if not hasattr(text, "num_attention_heads") or not hasattr(text, "vocab_size"):
        raise WorkloadError(f"{name} has no attention heads or no vocabulary: it generates no text", "")
    with reported(f"{name} cannot be built from its config"), torch.device("meta"):
        model = model_class(config, transformers)(config)
    heads, kv_heads = heads_of(text)
    return ServedModel(
        name=name,
        torch=torch.__version__,
        dtype=dtype,
        vocab_size=text.vocab_size,
        hidden_size=text.hidden_size,
        max_positions=int(getattr(text, "max_position_embeddings", None) or _DEFAULT_LENGTH),
        rotary=_rotary(text),
        num_heads=heads,
        num_kv_heads=kv_heads,
        num_layers=text.num_hidden_layers,
        parameters=tuple(_parameters(model)),
        layers=tuple(_cache_layers(text)),
        encoder=_encoder(config),
        quantization=_quantization(config),
    )


def _quantization(config: Any) -> str:
    """Method of a checkpoint, as `--quantization` names it; compressed tensors by their bits."""
    settings = getattr(config, "quantization_config", None) or {}
    fields = settings if isinstance(settings, Mapping) else settings.to_dict()
    method = str(getattr(fields.get("quant_method", ""), "value", fields.get("quant_method", "")))
    if method != "compressed-tensors":
        return method
    groups = fields.get("config_groups") or {}
    bits = {(each.get("weights") or {}).get("num_bits") for each in groups.values() if isinstance(each, Mapping)}
    return "w4a16" if bits == {4} else "w8a8"


def _parameters(model: Any) -> Iterator[Parameter]:
    modules = dict(model.named_modules())
    vocabulary = {
        id(each.weight) for each in (model.get_input_embeddings(), model.get_output_embeddings()) if each is not None
    }
    for name, parameter in model.named_parameters():
        owner = modules[name.rpartition(".")[0]]
        match = _LAYER.search(name)
        in_text = not re.search(r"vision|visual|audio|multi_modal|projector", name)
        yield Parameter(
            name=name,
            shape=tuple(parameter.shape),
            role="vocabulary" if id(parameter) in vocabulary else _role(owner, parameter),
            layer=int(match[1]) if match is not None and in_text else -1,
            in_text=in_text,
        )


def _role(owner: nn.Module, parameter: nn.Parameter) -> Role:
    if isinstance(owner, nn.Linear) or type(owner).__name__ == "Conv1D":
        return "linear"
    return "experts" if parameter.dim() == 3 else "other"


def _rotary(text: Any) -> int:
    """Values of the engine's tables of cosines and sines: one for each kind of layers, for every position.

    Tables of scaled kinds are longer (vLLM 0.19, model_executor/layers/rotary_embedding).
    """
    parameters = getattr(text, "rope_parameters", None) or {}
    kinds = [each for each in parameters.values() if isinstance(each, Mapping)] or ([parameters] if parameters else [])
    size = int(getattr(text, "qk_rope_head_dim", None) or head_of(text))
    tables = {
        (each.get("rope_theta"), each.get("rope_type")): int(size * each.get("partial_rotary_factor", 1.0))
        * int(_num_positions(text, each))
        for each in kinds
    }
    return sum(tables.values())


def _num_positions(text: Any, kind: Mapping[str, Any]) -> float:
    most = float(getattr(text, "max_position_embeddings", None) or _DEFAULT_LENGTH)
    factor = kind.get("factor") or 1.0
    match kind.get("rope_type"):
        case "linear" | "dynamic":
            return most * factor
        case "yarn":
            return (kind.get("original_max_position_embeddings") or most) * factor
    return most


# --- what layers keep


def _cache_layers(text: Any) -> list[CacheLayer]:
    """Return what each layer keeps; a layer that keeps two things is two of them."""
    number = text.num_hidden_layers - int(getattr(text, "num_kv_shared_layers", 0) or 0)
    if getattr(text, "kv_lora_rank", None):
        latent = text.kv_lora_rank + text.qk_rope_head_dim
        return [CacheLayer(attention="latent", num_heads=1, head=latent)] * number
    kinds = getattr(text, "layer_types", None) or getattr(text, "layers_block_type", None)
    if kinds is None:
        uses = getattr(text, "use_sliding_window", True) is not False and getattr(text, "sliding_window", None)
        kinds = ["sliding_attention" if uses else "full_attention"] * number
    unknown = sorted({*kinds} - {*_ATTENTIONS, _BOTH})
    if unknown:
        raise WorkloadError(
            f"layers of kind {', '.join(unknown)} are not known: what an engine keeps for them is not modelled",
            f"Known kinds: {', '.join((*_ATTENTIONS, _BOTH))}.",
        )
    both: tuple[Attention, ...] = ("full", "state")
    attentions = (both if kind == _BOTH else (_ATTENTIONS[kind],) for kind in kinds[:number])
    return [_cache_layer(text, attention) for each in attentions for attention in each]


def _cache_layer(text: Any, attention: Attention) -> CacheLayer:
    if attention == "state":
        return CacheLayer(attention="state", states=_states(text))
    window = {"sliding": "sliding_window", "chunked": "attention_chunk_size"}.get(attention)
    head = head_of(text)
    return CacheLayer(
        attention=attention,
        num_heads=heads_of(text)[1],
        head=head,
        head_of_value=int(getattr(text, "v_head_dim", None) or head),
        window=int(getattr(text, window)) if window else 0,
    )


def _states(text: Any) -> tuple[State, ...]:
    """States of a layer without a cache of tokens, by the fields of its config.

    Shapes as in vLLM's model_executor/layers/mamba/mamba_utils.py (0.33): the last inputs of a convolution, then what
    the recurrence keeps.
    """
    if hasattr(text, "linear_num_value_heads"):  # gated delta net
        keys = text.linear_num_key_heads * text.linear_key_head_dim
        values = text.linear_num_value_heads * text.linear_value_head_dim
        recurrent = State(
            cut=text.linear_num_value_heads,
            rest=text.linear_key_head_dim * text.linear_value_head_dim,
            is_float32=getattr(text, "mamba_ssm_dtype", None) == "float32",
        )
        return State(cut=2 * keys + values, rest=text.linear_conv_kernel_dim - 1), recurrent
    heads = _first(text, "mamba_n_heads", "mamba_num_heads")
    state = _first(text, "mamba_d_state", "ssm_state_size", "state_size")
    kernel = _first(text, "mamba_d_conv", "conv_kernel")
    if heads and state and kernel:  # Mamba 2
        head = _first(text, "mamba_d_head", "mamba_head_dim")
        groups = _first(text, "mamba_n_groups", "n_groups") or 1  # each rank has one at least
        return (
            State(cut=heads * head, rest=kernel - 1),
            State(cut=groups, rest=2 * state * (kernel - 1)),
            State(cut=heads, rest=head * state),
        )
    if state and kernel:  # Mamba 1
        expand = getattr(text, "mamba_expand", None)
        features = text.intermediate_size if expand is None else expand * text.hidden_size
        return State(cut=features, rest=kernel - 1), State(cut=features, rest=state)
    if getattr(text, "conv_L_cache", None):  # short convolutions
        return (State(cut=text.hidden_size, rest=text.conv_L_cache - 1),)
    raise WorkloadError(
        f"the states of {type(text).__name__}'s layers are not known", "Only Mamba, gated delta nets and convolutions."
    )


def _first(text: Any, *names: str) -> int:
    """Return the first size that a config has under one of these names; 0 without any."""
    return next((int(value) for name in names if isinstance(value := getattr(text, name, None), int)), 0)


def _encoder(config: Any) -> Encoder | None:
    """The part that reads images, as vLLM runs it on its largest items."""
    vision = getattr(config, "vision_config", None)
    side = getattr(vision, "image_size", None)
    patch = getattr(vision, "patch_size", None)
    if vision is None or not isinstance(side, int) or not isinstance(patch, int):
        return None
    merged = int(getattr(config, "spatial_merge_size", None) or getattr(vision, "spatial_merge_size", None) or 1)
    tokens = getattr(config, "mm_tokens_per_image", None) or math.ceil(side / (patch * merged)) ** 2
    shuffled = getattr(vision, "pixel_shuffle_ratio", None)
    tiles = _TILES if shuffled else 1
    return Encoder(
        tokens_of_item=tiles * int(tokens * (shuffled or 1) ** 2), values_of_item=tiles * _IMAGE_CHANNELS * side**2
    )
