"""Llama as torchao's benchmark of quantized training pretrains it on one GPU, for the figures of its README.

The order of operations is that of `benchmarks/quantized_training/pretrain_llama2.py` and `torchao/_models/llama/model.py`
at commit 93b3a5985 of September 2024, which wrote the figures, for its baseline in bfloat16. The corpus, which lies on the
GPU too, is left out: how many tokens it has is not said.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

_WIDTH, _LAYERS, _HEADS, _HIDDEN, _VOCABULARY = 1536, 24, 24, 6144, 32_000
"""The model `1B` of that script."""
_BATCH, _LENGTH = 4, 2048


class Norm(nn.Module):
    """RMSNorm of several kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(_WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise in float32."""
        wide = x.float()
        return (wide * torch.rsqrt(torch.mean(wide * wide, dim=-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def _rotated(x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    left, right = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = factors.view(1, x.shape[1], 1, -1, 2).unbind(-1)
    return torch.stack([left * cos - right * sin, right * cos + left * sin], dim=-1).flatten(3).type_as(x)


class Layer(nn.Module):
    """One layer: what is computed again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.wqkv, self.wo = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False), nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.w1, self.w3 = nn.Linear(_WIDTH, _HIDDEN, bias=False), nn.Linear(_WIDTH, _HIDDEN, bias=False)
        self.w2 = nn.Linear(_HIDDEN, _WIDTH, bias=False)
        self.ffn_norm, self.attention_norm = Norm(), Norm()

    def forward(self, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Attend and feed forward."""
        h = x + self._attend(self.attention_norm(x), factors)
        normed = self.ffn_norm(h)
        output: torch.Tensor = h + self.w2(nn.functional.silu(self.w1(normed)) * self.w3(normed))
        return output

    def _attend(self, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        queries, keys, values = (
            part.view(*x.shape[:2], _HEADS, -1) for part in self.wqkv(x).split([_WIDTH] * 3, dim=-1)
        )
        heads = (_rotated(queries, factors), _rotated(keys, factors), values)
        y = nn.functional.scaled_dot_product_attention(*(each.transpose(1, 2) for each in heads), is_causal=True)
        projected: torch.Tensor = self.wo(y.transpose(1, 2).contiguous().view(x.shape))
        return projected


class Llama(nn.Module):
    """The model."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(_VOCABULARY, _WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(_LAYERS))
        self.norm = Norm()
        self.output = nn.Linear(_WIDTH, _VOCABULARY, bias=False)
        self.register_buffer("factors", torch.ones(_LENGTH, _WIDTH // _HEADS // 2, 2), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Predict the next tokens."""
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x, self.factors)
        logits: torch.Tensor = self.output(self.norm(x))
        return logits


def _loss(model: Llama, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)[:, :-1].float().flatten(0, 1)
    return nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())


def _take_step(
    parameter: torch.Tensor,
    grad: torch.Tensor,
    step: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    rate: torch.Tensor,
) -> None:
    new_mean, new_square = mean.lerp(grad, 1 - 0.9), square.lerp(grad.square(), 1 - 0.999)
    mean.copy_(new_mean)
    square.copy_(new_square)
    spread = (new_square.sqrt() / (1 - 0.999**step).sqrt()).add_(1e-8)
    parameter.add_(-rate * 1e-2 * parameter - rate / (1 - 0.9**step) * new_mean / spread)


class CompiledAdamW(torch.optim.Optimizer):
    """AdamW of torchao, which compiles the step of one parameter, also where the model is not compiled."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": torch.tensor(3e-4)})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step."""
        with torch._dynamo.utils.disable_cache_limit():
            for group in self.param_groups:
                for parameter in group["params"]:
                    self._step_of(parameter, group["lr"])

    def _step_of(self, parameter: nn.Parameter, rate: torch.Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["mean"], state["square"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        torch.compile(_take_step, fullgraph=True, dynamic=False)(
            parameter, parameter.grad, state["step"], state["mean"], state["square"], rate
        )


class Pretraining:
    """The training program, with checkpointing of each layer."""

    name = "torchao"
    device = "cuda"
    generates = False
    compiles = True  # the optimizer, in every row
    compiles_model = True

    def setup(self) -> None:
        """Build the model in bfloat16 and the optimizer."""
        self.model = Llama().bfloat16().cuda().train()
        for layer in self.model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        self.loss = torch.compile(_loss) if self.compiles_model else _loss
        self.optimizer = CompiledAdamW(list(self.model.parameters()))

    def step(self) -> None:
        """Take a step."""
        tokens = torch.randint(_VOCABULARY, (_BATCH, _LENGTH), device="cuda")
        loss = self.loss(self.model, tokens)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
