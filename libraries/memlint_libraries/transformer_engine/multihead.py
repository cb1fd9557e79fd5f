"""Transformer Engine 2.9: attention with its projections: pytorch/attention/multi_head_attention.py and rope.py."""

from typing import Any

import torch

from memlint.libraries.library import launch
from memlint_libraries.transformer_engine.attention import DotProductAttention
from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.linear import LayerNormLinear, Linear
from memlint_libraries.transformer_engine.norms import NORMS, L2Normalization
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


class _Rotated(torch.autograd.Function):
    """Saves the angles; both ways a tensor of the same size (`FusedRoPEFunc`)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, angles: Tensor) -> Any:
        ctx.save_for_backward(angles)
        out = x.new_empty(x.shape)
        launch((x, angles), (out,))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (angles,) = ctx.saved_tensors
        made = grad.new_empty(grad.shape)
        launch((grad, angles), (made,))
        return made, None


@library.provides(
    "transformer_engine.pytorch", "transformer_engine.pytorch.attention", "transformer_engine.pytorch.attention.rope"
)
class RotaryPositionEmbedding(torch.nn.Module):
    """Angles in float32, of [positions, 1, 1, size of a head]."""

    def __init__(self, dim: int, rotary_percent: float = 1.0, **_: Any) -> None:
        super().__init__()
        self.dim = int(dim * rotary_percent)
        self.register_buffer("inv_freq", torch.empty(self.dim // 2, dtype=torch.float32, device="cuda"))

    def forward(self, max_seq_len: int, offset: int = 0) -> Tensor:
        """Angles of all positions."""
        positions = torch.arange(max_seq_len, device="cuda", dtype=torch.float32)
        angles = torch.einsum("i , j -> i j", positions, self.inv_freq)
        return torch.cat((angles, angles), dim=-1).reshape(max_seq_len, 1, 1, -1)


def _norm_of_heads(kind: str | None, size: int, eps: float, device: Any) -> torch.nn.Module | None:
    """Return the norm of queries or keys: `_create_qk_norm_modules`, multi_head_attention.py:427."""
    if kind is None:
        return None
    if kind == "L2Normalization":
        return L2Normalization(eps)
    if kind not in NORMS:
        raise ValueError(f"Unsupported QK norm type: {kind}")
    return NORMS[kind](size, eps, device=device)


@_provides
class MultiheadAttention(Layer):
    """Projections, attention and a projection; weights of queries, keys and values are one."""

    def __init__(
        self, hidden_size: int, num_attention_heads: int, kv_channels: int | None = None,
        attention_dropout: float = 0.1, layernorm_epsilon: float = 1e-5, num_gqa_groups: int | None = None,
        attn_mask_type: str = "causal", input_layernorm: bool = False, attention_type: str = "self",
        fuse_qkv_params: bool = False, bias: bool = True, normalization: str = "LayerNorm",
        params_dtype: torch.dtype | None = None, device: Any = "cuda", qkv_format: str = "sbhd",
        return_bias: bool = False, qkv_weight_interleaved: bool = True, fuse_wgrad_accumulation: bool = False,
        window_size: tuple[int, int] | None = None, return_layernorm_output: bool = False,
        qk_norm_type: str | None = None, qk_norm_eps: float = 1e-6, qk_norm_before_rope: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device)
        self.attention_type, self.return_bias = attention_type, return_bias
        self.heads, self.groups = num_attention_heads, num_gqa_groups or num_attention_heads
        self.width = kv_channels or hidden_size // num_attention_heads
        self.is_interleaved = qkv_weight_interleaved and fuse_qkv_params
        of_queries, of_keys = self.width * self.heads, self.width * self.groups
        made: dict[str, Any] = {
            "bias": bias, "params_dtype": params_dtype, "device": device,
            "fuse_wgrad_accumulation": fuse_wgrad_accumulation,
        }  # fmt: skip
        normed = {"eps": layernorm_epsilon, "normalization": normalization,
                  "return_layernorm_output": return_layernorm_output, **made}  # fmt: skip
        first = of_queries + 2 * of_keys if attention_type == "self" else of_queries
        names = ("layernorm_qkv", "qkv") if attention_type == "self" else ("layernorm_query", "query_layer")
        projection = (
            LayerNormLinear(hidden_size, first, **normed) if input_layernorm else Linear(hidden_size, first, **made)
        )
        self._first = names[0] if input_layernorm else names[1]
        self.add_module(self._first, projection)
        if attention_type == "cross":
            self.key_value = Linear(hidden_size, 2 * of_keys, **made)
        self.core_attention = DotProductAttention(
            num_attention_heads, self.width, num_gqa_groups, attention_dropout, qkv_format, attn_mask_type, window_size
        )
        self.qk_norm_before_rope = qk_norm_before_rope
        self.q_norm, self.k_norm = (_norm_of_heads(qk_norm_type, self.width, qk_norm_eps, device) for _ in range(2))
        self.proj = Linear(of_queries, hidden_size, return_bias=return_bias, **made)

    def _split(self, packed: Tensor, parts: tuple[int, ...]) -> list[Tensor]:
        """Views of what was projected together, [..., heads, size] each."""
        number, places = sum(parts), packed.shape[:-1]
        shape = (self.groups, number) if self.is_interleaved else (number, self.groups)
        views = packed.view(*places, *shape, self.width).split(parts, -2 if self.is_interleaved else -3)
        return [view.reshape(*places, -1, self.width) for view in views]

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, encoder_output: Tensor | None = None,
        attn_mask_type: str | None = None, rotary_pos_emb: Any = None, is_first_microbatch: bool | None = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """Attention of [sequence, batch, width] or [batch, sequence, width] to itself or to what was encoded."""
        for name, value in options.items():
            if value not in (None, False) and name not in PLAIN:
                self._refuse(name)
        first = self.get_submodule(self._first)(hidden_states, is_first_microbatch)
        first, *of_norm = first if isinstance(first, tuple) else (first,)
        if self.attention_type == "self":
            query, key, value = self._split(first, (self.heads // self.groups, 1, 1))
        else:
            query = first.view(*first.shape[:-1], self.heads, self.width)
            key, value = self._split(self.key_value(encoder_output, is_first_microbatch), (1, 1))
        if self.q_norm is not None and self.k_norm is not None and self.qk_norm_before_rope:
            query, key = self.q_norm(query), self.k_norm(key)
        if rotary_pos_emb is not None:
            pair = rotary_pos_emb if isinstance(rotary_pos_emb, tuple) else (rotary_pos_emb,) * 2
            query, key = (_Rotated.apply(x, angles) for x, angles in zip((query, key), pair, strict=True))  # type: ignore[no-untyped-call]
        if self.q_norm is not None and self.k_norm is not None and not self.qk_norm_before_rope:
            query, key = self.q_norm(query), self.k_norm(key)
        context = self.core_attention(
            query, key, value, attention_mask, attn_mask_type, window_size=options.get("window_size")
        )
        out = self.proj(context, is_first_microbatch)
        return (*(out if isinstance(out, tuple) else (out,)), *of_norm) if of_norm else out


PLAIN = {"core_attention_bias_type", "fast_zero_fill", "window_size", "max_seqlen_q", "max_seqlen_kv"}
"""Arguments of a call that change no memory of attention without a mask of values."""
