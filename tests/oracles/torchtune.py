"""Llama 3 as torchtune trains it on one GPU, for the figures of its README.

The order of operations is torchtune's of November 2024, when the figures were published (commit 1814feb17: recipes
`full_finetune_single_device` and `lora_finetune_single_device`): packed texts go through flex attention, which is
compiled even where the model is not, and which a compiled layer leaves to Python.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

_CHUNKS = 8
"""Parts of a text whose words are predicted at once (`CEWithChunkedOutputLoss`)."""
_TEXT = 256
"""Tokens of each text of a packed sequence. Memory is the same for other lengths."""
_OFFLOADED = 1024
"""Bytes from which an activation is moved to the host (`OffloadActivations`)."""


@dataclass(frozen=True)
class Sizes:
    """A Llama of torchtune (`models/llama3_1`, `models/llama3_2`)."""

    width: int
    layers: int
    heads: int
    hidden: int
    kv_heads: int = 8
    vocabulary: int = 128_256
    positions: int = 131_072


LLAMA_3B = Sizes(3072, 28, 24, 8192)


@dataclass(frozen=True)
class Recipe:
    """One row of torchtune's tables: a model, and what its recipe switches on."""

    sizes: Sizes = LLAMA_3B
    batch: int = 2
    length: int = 4096
    chunks_loss: bool = False
    checkpoints: bool = False
    offloads: bool = False
    steps_in_backward: bool = False
    lora_rank: int = 0
    optimizer: dict[str, Any] = field(default_factory=lambda: {"fused": True})
    """Arguments of AdamW."""


class Norm(nn.Module):
    """RMSNorm of several kernels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise in float32."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.scale


class LoraLinear(nn.Linear):
    """A frozen product with a trained one of low rank beside it."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.weight.requires_grad_(False)
        self.lora_a = nn.Linear(inputs, rank, bias=False)
        self.lora_b = nn.Linear(rank, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the scaled product of low rank."""
        return super().forward(x) + 2.0 * self.lora_b(self.lora_a(x))


def _linear(inputs: int, outputs: int, rank: int) -> nn.Linear:
    return LoraLinear(inputs, outputs, rank) if rank else nn.Linear(inputs, outputs, bias=False)


class Rotation(nn.Module):
    """Rotary embedding in float32, whose factors are kept for all positions."""

    def __init__(self, size: int, positions: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(positions), 1.0 / (500_000.0 ** (torch.arange(0, size, 2) / size))).float()
        self.register_buffer("cache", torch.stack([angles.cos(), angles.sin()], dim=-1), persistent=False)

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Rotate (batch, length, heads, size)."""
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        cos, sin = self.cache[positions].unsqueeze(2).unbind(-1)
        left, right = pairs.unbind(-1)
        return torch.stack([left * cos - right * sin, right * cos + left * sin], dim=-1).flatten(3).type_as(x)


@torch.compiler.disable(recursive=False)
def _attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: BlockMask) -> torch.Tensor:
    attend = torch.compile(flex_attention, dynamic=False)
    output: torch.Tensor = attend(queries, keys, values, block_mask=mask)
    return output


class Attention(nn.Module):
    """Attention whose keys and values are repeated for the queries of a group."""

    def __init__(self, sizes: Sizes, rotation: Rotation, rank: int) -> None:
        super().__init__()
        self.size = sizes.width // sizes.heads
        self.groups = sizes.heads // sizes.kv_heads
        self.q_proj = _linear(sizes.width, sizes.width, rank)
        self.k_proj = nn.Linear(sizes.width, sizes.kv_heads * self.size, bias=False)
        self.v_proj = _linear(sizes.width, sizes.kv_heads * self.size, rank)
        self.output_proj = _linear(sizes.width, sizes.width, rank)
        self.rotation = rotation

    def forward(self, x: torch.Tensor, mask: BlockMask, positions: torch.Tensor) -> torch.Tensor:
        """Attend within the texts of a packed sequence."""
        batch, length, _ = x.shape
        queries = self.rotation(self.q_proj(x).view(batch, length, -1, self.size), positions).transpose(1, 2)
        keys = self.rotation(self.k_proj(x).view(batch, length, -1, self.size), positions).transpose(1, 2)
        values = self.v_proj(x).view(batch, length, -1, self.size).transpose(1, 2)
        output = _attend(queries, self._repeated(keys), self._repeated(values), mask)
        projected: torch.Tensor = self.output_proj(output.transpose(1, 2).contiguous().view(batch, length, -1))
        return projected

    def _repeated(self, heads: torch.Tensor) -> torch.Tensor:
        return heads.unsqueeze(2).expand(-1, -1, self.groups, -1, -1).flatten(1, 2)


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes: Sizes, rank: int) -> None:
        super().__init__()
        self.w1 = _linear(sizes.width, sizes.hidden, rank)
        self.w2 = _linear(sizes.hidden, sizes.width, rank)
        self.w3 = _linear(sizes.width, sizes.hidden, rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Gate and project."""
        h = nn.functional.silu(self.w1(x))
        h = h * self.w3(x)
        output: torch.Tensor = self.w2(h)
        return output


class Layer(nn.Module):
    """One layer: what torchtune compiles, and computes again."""

    def __init__(self, sizes: Sizes, rotation: Rotation, rank: int) -> None:
        super().__init__()
        self.attn, self.mlp = Attention(sizes, rotation, rank), FeedForward(sizes, rank)
        self.sa_norm, self.mlp_norm = Norm(sizes.width), Norm(sizes.width)

    def forward(self, x: torch.Tensor, mask: BlockMask, positions: torch.Tensor) -> torch.Tensor:
        """Attend and feed forward."""
        h = self.attn(self.sa_norm(x), mask, positions) + x
        output: torch.Tensor = h + self.mlp(self.mlp_norm(h))
        return output


class Llama(nn.Module):
    """The model; its output is float32, or parts of it in the model's dtype where the loss takes them in chunks."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        sizes = recipe.sizes
        self.chunks_loss = recipe.chunks_loss
        self.tok_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)
        rotation = Rotation(sizes.width // sizes.heads, sizes.positions)
        self.layers = nn.ModuleList(Layer(sizes, rotation, recipe.lora_rank) for _ in range(sizes.layers))
        self.norm = Norm(sizes.width)
        self.output = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.output.weight = self.tok_embeddings.weight

    def forward(self, tokens: torch.Tensor, mask: BlockMask, positions: torch.Tensor, offloads: bool) -> Any:
        """Predict the next tokens; `offloads` moves what all but the last product saves for backward to the host."""
        hooks = torch.autograd.graph.saved_tensors_hooks(_to_host, _to_gpu)
        with hooks if offloads else nullcontext():
            h = self.tok_embeddings(tokens)
            for layer in self.layers:
                h = layer(h, mask, positions)
            h = self.norm(h)
        if self.chunks_loss:
            return [self.output(part) for part in h.chunk(_CHUNKS, dim=1)]
        return self.output(h).float()


def _sum_of_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.float(), labels, reduction="sum")


def _to_host(tensor: torch.Tensor) -> tuple[torch.Tensor, bool]:
    moves = tensor.is_cuda and tensor.nbytes >= _OFFLOADED and not isinstance(tensor, nn.Parameter)
    return (tensor.cpu() if moves else tensor), moves


def _to_gpu(saved: tuple[torch.Tensor, bool]) -> torch.Tensor:
    tensor, is_moved = saved
    return tensor.cuda() if is_moved else tensor


class Finetuning:
    """The training program of a recipe."""

    name = "torchtune"
    device = "cuda"
    generates = False

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.compiles = True  # flex attention, in every recipe
        self.compiles_model = True

    def setup(self) -> None:
        """Build the model in bfloat16, the batch and the optimizers."""
        recipe = self.recipe
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("cuda"):
                self.model = Llama(recipe)
        finally:
            torch.set_default_dtype(default)
        if recipe.lora_rank:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_("lora" in name)
        self.sum_of_losses = torch.compile(_sum_of_losses) if self.compiles_model else _sum_of_losses
        for number, layer in enumerate(self.model.layers):
            if self.compiles_model:
                layer.compile()
            if recipe.checkpoints:
                self.model.layers[number] = checkpoint_wrapper(layer)
        shape = (recipe.batch, recipe.length)
        self.tokens = torch.randint(recipe.sizes.vocabulary, shape, device="cuda")
        self.positions = torch.arange(recipe.length, device="cuda").remainder(_TEXT).expand(shape).contiguous()
        texts = torch.arange(recipe.length, device="cuda").div(_TEXT, rounding_mode="floor").expand(shape).contiguous()
        self.mask = create_block_mask(
            lambda b, _, q, kv: (q >= kv) & (texts[b, q] == texts[b, kv]),
            recipe.batch, None, recipe.length, recipe.length, device="cuda",
        )  # fmt: skip
        trained = [each for each in self.model.parameters() if each.requires_grad]
        if recipe.steps_in_backward:
            for parameter in trained:
                self._step_in_backward(parameter)
        self.optimizer = None if recipe.steps_in_backward else torch.optim.AdamW(trained, **recipe.optimizer)

    def _step_in_backward(self, parameter: nn.Parameter) -> None:
        optimizer = torch.optim.AdamW([parameter], **self.recipe.optimizer)

        def take_step(_: torch.Tensor) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(take_step)

    def _loss(self) -> torch.Tensor:
        output = self.model(self.tokens, self.mask, self.positions, self.recipe.offloads)
        if not self.recipe.chunks_loss:
            labels = self.tokens.roll(-1, 1).reshape(-1)
            return nn.functional.cross_entropy(output.reshape(-1, output.shape[-1]), labels)
        parts = self.tokens.roll(-1, 1).chunk(_CHUNKS, dim=1)
        losses = [
            self.sum_of_losses(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))
            for logits, labels in zip(output, parts, strict=True)
        ]
        return sum(losses[1:], losses[0]) / self.tokens.numel()

    def step(self) -> None:
        """Take a step."""
        self._loss().backward()
        if self.optimizer is not None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
