"""Programs of PyTorch's issues about the memory of compiled steps, for the figures in them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch._functorch import config as functorch_config
from torch.utils.checkpoint import checkpoint


class _Summed(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        import transformers

        self.model = transformers.LlamaModel(
            transformers.LlamaConfig(
                hidden_size=256, intermediate_size=688, num_hidden_layers=layers, num_attention_heads=8,
                num_key_value_heads=8, vocab_size=1000, use_cache=False,
            )
        )  # fmt: skip

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.model(input_ids=tokens).last_hidden_state.sum()
        return output


class Budgeted:
    """Issue 197838: a Llama in float32 under `activation_memory_budget`, whose gradients stay and become zero.

    The harness is `experiments/measured_backward/run_d.py` of github.com/siddddd17/ackaudit, its scale 8.
    """

    name = "activation_memory_budget"
    device = "cuda"
    generates = False
    compiles = True
    compiles_model = True

    def __init__(self, budget: float, layers: int = 32, length: int = 1024, backend: str = "inductor") -> None:
        self.budget, self.layers, self.length, self.backend = budget, layers, length, backend

    def setup(self) -> None:
        """Build the model and the tokens."""
        self.model = _Summed(self.layers).to("cuda")
        if self.compiles_model:
            self.model.compile(backend=self.backend, dynamic=False)
        self.tokens = torch.randint(0, 1000, (2, self.length)).to("cuda")

    def step(self) -> None:
        """Take the gradients, within the budget where the code is compiled."""
        with functorch_config.patch(activation_memory_budget=self.budget):
            self.model(self.tokens).backward()
        self.model.zero_grad(set_to_none=False)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attends = nn.MultiheadAttention(width, heads, batch_first=True)
        self.crosses = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        normed = self.norms[0](x)
        x = x + self.attends(normed, normed, normed, need_weights=False)[0]
        if context is not None:
            x = x + self.crosses(self.norms[1](x), context, context, need_weights=False)[0]
        output: torch.Tensor = x + self.mlp(self.norms[2](x))
        return output


class _Twice(nn.Module):
    def __init__(self, width: int, layers: int, *, breaks: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(width, width // 64) for _ in range(layers))
        self.breaks = breaks

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        contrasted = self._through(x, None)
        if self.breaks:
            torch._dynamo.graph_break()
        return contrasted.float().mean() + self._through(x, context).float().square().mean()

    def _through(self, x: torch.Tensor, context: torch.Tensor | None) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, context, use_reentrant=False)
        return x


class TwoTraversals:
    """Issue 193193: checkpointed blocks that a step goes through twice, without a context and with one.

    Its script is not at hand: this one follows its words, and the sizes are ours.
    """

    name = "two traversals"
    device = "cuda"
    generates = False
    compiles = True
    compiles_model = True

    def __init__(self, *, breaks: bool = False, sizes: dict[str, Any] | None = None) -> None:
        self.breaks = breaks
        self.sizes = {"width": 768, "layers": 12, "batch": 64, "length": 256, **(sizes or {})}

    def setup(self) -> None:
        """Build the blocks and their inputs."""
        self.model = _Twice(self.sizes["width"], self.sizes["layers"], breaks=self.breaks).to("cuda")
        if self.compiles_model:
            self.model.compile()
        shape = (self.sizes["batch"], self.sizes["length"], self.sizes["width"])
        self.x, self.context = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")

    def step(self) -> None:
        """Take the gradients."""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(self.x, self.context)
        loss.backward()
        self.model.zero_grad(set_to_none=True)
