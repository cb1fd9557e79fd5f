"""Transformer Engine 2.9: whole layers: pytorch/transformer.py and jit.py."""

from typing import Any

import torch
from torch.nn import functional

from memlint.libraries.library import assume_once, launch
from memlint_libraries.transformer_engine.layer import Layer
from memlint_libraries.transformer_engine.mlp import LayerNormMLP
from memlint_libraries.transformer_engine.multihead import PLAIN, MultiheadAttention
from memlint_libraries.transformer_engine.norms import NORMS
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch")


class _Added(torch.autograd.Function):
    """`residual + dropout(x + bias)` in one compiled kernel, which keeps a mask of a byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, residual: Tensor, dropout: float) -> Any:
        mask = x.new_empty(x.shape, dtype=torch.bool) if dropout else None
        out = residual.new_empty(residual.shape)
        launch((x, bias, residual), (out, mask))
        ctx.save_for_backward(mask)
        ctx.width = bias.shape
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        made = grad if mask is None else torch.empty_like(grad)
        bias = made if ctx.width == grad.shape else grad.new_empty(ctx.width)
        launch((grad, mask), (None if mask is None else made, bias))
        return made, bias, grad, None


class _DroppedPath(torch.nn.Module):
    """Drops whole samples: `DropPath`, transformer.py:46."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """The samples that are kept, each grown."""
        if not self.training:
            return x
        kept = torch.rand((x.shape[0],) + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device)
        kept = (1 - self.rate + kept).floor_()
        return x.div(1 - self.rate) * kept


@_provides
class TransformerLayer(Layer):
    """Attention and an MLP with residuals; a decoder has attention to what was encoded between."""

    def __init__(
        self, hidden_size: int, ffn_hidden_size: int, num_attention_heads: int, num_gqa_groups: int | None = None,
        layernorm_epsilon: float = 1e-5, hidden_dropout: float = 0.1, attention_dropout: float = 0.1,
        kv_channels: int | None = None, self_attn_mask_type: str = "causal", enc_dec_attn_mask_type: str = "no_mask",
        params_dtype: torch.dtype | None = None, output_layernorm: bool = False, layer_type: str = "encoder",
        fuse_qkv_params: bool = False, bias: bool = True, activation: str = "gelu", normalization: str = "LayerNorm",
        device: Any = "cuda", attn_input_format: str = "sbhd", qkv_weight_interleaved: bool = True,
        window_size: tuple[int, int] | None = None, enc_dec_window_size: tuple[int, int] | None = None,
        parallel_attention_mlp: bool = False, apply_residual_connection_post_layernorm: bool = False,
        fuse_wgrad_accumulation: bool = False, drop_path_rate: float = 0.0, qk_norm_type: str | None = None,
        qk_norm_eps: float = 1e-6, qk_norm_before_rope: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device)
        self.parallel_attention_mlp = parallel_attention_mlp
        if parallel_attention_mlp and (layer_type != "encoder" or output_layernorm
                                       or apply_residual_connection_post_layernorm):  # fmt: skip
            raise AssertionError("parallel_attention is of an encoder whose norms come first")
        if fuse_wgrad_accumulation and not fuse_qkv_params:
            raise AssertionError("Gradient accumulation fusion requires single QKV parameter.")
        self.hidden_dropout, self.layer_type = hidden_dropout, layer_type
        self.self_attn_mask_type, self.enc_dec_attn_mask_type = self_attn_mask_type, enc_dec_attn_mask_type
        made: dict[str, Any] = {
            "bias": bias, "normalization": normalization, "params_dtype": params_dtype, "device": device,
            "return_bias": not parallel_attention_mlp, "fuse_wgrad_accumulation": fuse_wgrad_accumulation,
            "return_layernorm_output": apply_residual_connection_post_layernorm,
        }  # fmt: skip
        of_attention: dict[str, Any] = {
            "kv_channels": kv_channels, "attention_dropout": attention_dropout, "num_gqa_groups": num_gqa_groups,
            "layernorm_epsilon": layernorm_epsilon, "fuse_qkv_params": fuse_qkv_params, "qk_norm_type": qk_norm_type,
            "qk_norm_eps": qk_norm_eps, "qk_norm_before_rope": qk_norm_before_rope,
            "qkv_format": attn_input_format, "qkv_weight_interleaved": qkv_weight_interleaved, **made,
        }  # fmt: skip
        self.self_attention = MultiheadAttention(
            hidden_size, num_attention_heads, input_layernorm=not output_layernorm, window_size=window_size,
            **of_attention,
        )  # fmt: skip
        if layer_type == "decoder":
            self.inter_attention = MultiheadAttention(
                hidden_size,
                num_attention_heads,
                input_layernorm=True,
                attention_type="cross",
                window_size=enc_dec_window_size,
                **of_attention,
            )
        self.layernorm_mlp = LayerNormMLP(
            hidden_size, ffn_hidden_size, eps=layernorm_epsilon, activation=activation, **made
        )
        self.drop_path = _DroppedPath(drop_path_rate) if drop_path_rate else None
        self.layernorm = None
        if output_layernorm:
            self.layernorm = NORMS[normalization](hidden_size, layernorm_epsilon, params_dtype, device)

    def forward(
        self, hidden_states: Tensor, attention_mask: Any = None, self_attn_mask_type: str | None = None,
        encoder_output: Tensor | None = None, enc_dec_attn_mask: Any = None, enc_dec_attn_mask_type: str | None = None,
        rotary_pos_emb: Any = None, is_first_microbatch: bool | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Run the layer: its input, plus the outputs of both blocks."""
        for name, value in options.items():
            if value not in (None, False) and name not in PLAIN:
                self._refuse(name)
        x = hidden_states.contiguous()
        if torch.is_autocast_enabled("cuda"):
            x = x.to(torch.get_autocast_dtype("cuda"))
        attended = self.self_attention(
            x, attention_mask, attn_mask_type=self_attn_mask_type or self.self_attn_mask_type,
            rotary_pos_emb=rotary_pos_emb, is_first_microbatch=is_first_microbatch,
            window_size=options.get("window_size"),
        )  # fmt: skip
        if self.parallel_attention_mlp:  # what the MLP gives is added as a bias
            return self._add_back((attended, self.layernorm_mlp(x, is_first_microbatch)), x, self.drop_path)
        x = self._add_back(attended, x, self.drop_path)
        if self.layer_type == "decoder":
            attended_other = self.inter_attention(
                x, enc_dec_attn_mask, encoder_output, enc_dec_attn_mask_type or self.enc_dec_attn_mask_type,
                rotary_pos_emb, is_first_microbatch,
            )  # fmt: skip
            x = self._add_back(attended_other, x)
        # what attention gave lives on meanwhile, as there
        x = self._add_back(self.layernorm_mlp(x, is_first_microbatch), x, self.drop_path)
        return x if self.layernorm is None else self.layernorm(x)

    def _add_back(self, block: tuple[Any, ...], residual: Tensor, path: _DroppedPath | None = None) -> Any:
        """Add a block's output, its bias and a residual, which is the block's norm if the block returns that."""
        x, bias, *normed = block
        residual = normed[0] if normed else residual
        dropout = self.hidden_dropout if self.training else 0.0
        if bias is None or path is not None:
            x = functional.dropout(x if bias is None else x + bias, self.hidden_dropout, self.training)
            return residual + (x if path is None else path(x))
        assume_once("what Transformer Engine compiles to add a bias and a residual is taken to keep a mask alone")
        return _Added.apply(x, bias, residual, dropout)  # type: ignore[no-untyped-call]
