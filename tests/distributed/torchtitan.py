"""Llama 3.1 as torchtitan trains it: FSDP2 and tensor parallel, checkpointing by op or of whole blocks.

The order of operations is torchtitan's of December 2024 (torchtitan/models/llama, torchtitan/parallelisms), whose
measurements docs/performance.md of that time has; with `early` that of March 2024 (torchtrain, commit 83c879f18), whose
tokens of all texts are one dimension.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

aten = torch.ops.aten
_SAVED = {
    aten.mm.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


@dataclass(frozen=True)
class Sizes:
    width: int
    layers: int
    heads: int
    hidden: int
    kv_heads: int = 8
    vocabulary: int = 128_256


LLAMA_2_7B = Sizes(4096, 32, 32, 11_008, kv_heads=32, vocabulary=32_000)
LLAMA_8B = Sizes(4096, 32, 32, 14_336)
LLAMA_70B = Sizes(8192, 80, 64, 28_672)
LLAMA_405B = Sizes(16_384, 126, 128, 53_248)


def _rotated(x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    factors = frequencies[: x.shape[1]].view(1, x.shape[1], 1, -1)
    return torch.view_as_real(pairs * factors).flatten(3).type_as(x)


class OwnNorm(nn.RMSNorm):
    """RMSNorm of several kernels, as torchtitan had it until March 2025."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


class Attention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.size = sizes.width // sizes.heads
        self.groups = sizes.heads // sizes.kv_heads
        self.wq = nn.Linear(sizes.width, sizes.width, bias=False)
        self.wk = nn.Linear(sizes.width, sizes.kv_heads * self.size, bias=False)
        self.wv = nn.Linear(sizes.width, sizes.kv_heads * self.size, bias=False)
        self.wo = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
        length = len(frequencies)
        batch = x.shape[:-1].numel() // length
        queries, keys, values = (
            projected.view(batch, length, -1, self.size) for projected in (self.wq(x), self.wk(x), self.wv(x))
        )
        queries, keys = _rotated(queries, frequencies), _rotated(keys, frequencies)
        queries, keys, values = (
            heads.transpose(1, 2) for heads in (queries, self._repeated(keys), self._repeated(values))
        )
        output = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.wo(output.transpose(1, 2).contiguous().view(*x.shape[:-1], -1))

    def _repeated(self, heads: torch.Tensor) -> torch.Tensor:
        batch, length, number, size = heads.shape
        expanded = heads.unsqueeze(3).expand(batch, length, number, self.groups, size)
        return expanded.reshape(batch, length, number * self.groups, size)


class FeedForward(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.w1 = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.w2 = nn.Linear(sizes.hidden, sizes.width, bias=False)
        self.w3 = nn.Linear(sizes.width, sizes.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, sizes: Sizes, norm: type[nn.RMSNorm]) -> None:
        super().__init__()
        self.attention = Attention(sizes)
        self.feed_forward = FeedForward(sizes)
        self.attention_norm = norm(sizes.width, eps=1e-5)
        self.ffn_norm = norm(sizes.width, eps=1e-5)

    def forward(self, x: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
        h = x + self.attention(self.attention_norm(x), frequencies)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, sizes: Sizes, length: int, norm: type[nn.RMSNorm] = nn.RMSNorm, *, early: bool = False) -> None:
        super().__init__()
        self.sizes, self.length, self.early = sizes, length, early
        self.tok_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)
        self.register_buffer("frequencies", self._frequencies())
        self.layers = nn.ModuleDict({str(number): Block(sizes, norm) for number in range(sizes.layers)})
        self.norm = norm(sizes.width, eps=1e-5)
        self.output = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def _frequencies(self) -> torch.Tensor:
        size = self.sizes.width // self.sizes.heads
        positions = torch.arange(65_536 if self.early else self.length)
        angles = torch.outer(positions, 1.0 / (500_000.0 ** (torch.arange(0, size, 2) / size)))
        return torch.polar(torch.ones_like(angles), angles)

    def init_weights(self) -> None:
        with torch.device(self.tok_embeddings.weight.device):
            self.frequencies = self._frequencies()
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        h = self.tok_embeddings(tokens)
        if self.early:
            h = h.view(-1, h.shape[-1])
        for layer in self.layers.values():
            h = layer(h, self.frequencies[: tokens.shape[1]])
        h = self.norm(h)
        return self.output(h.view(*tokens.shape, -1)).float() if self.early else self.output(h)


def _selective() -> Any:
    """Every second matrix product is computed again."""
    counts: Counter[bool] = Counter()

    def policy(context: Any, op: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if op == aten.mm.default:
            counts[context.is_recompute] += 1
        is_saved = op in _SAVED and not (op == aten.mm.default and counts[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def _parallel_in_tensors(model: Llama, mesh: Any) -> None:
    """Tensor and sequence parallel, with the loss parallel as well."""
    dim = 0 if model.early else 1  # that of the tokens
    tokens = Shard(dim)
    whole = RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate() if model.early else tokens)
    plan: dict[str, Any] = {
        "tok_embeddings": whole,
        "norm": SequenceParallel(sequence_dim=dim),
        "output": ColwiseParallel(input_layouts=tokens, output_layouts=Shard(-1), use_local_output=False),
    }
    if model.early:
        layouts = {"input_layouts": (Replicate(), None), "desired_input_layouts": (tokens, None)}
        plan["layers.0"] = PrepareModuleInput(**layouts, use_local_output=True)
    parallelize_module(model, mesh, plan)
    plan = {
        "attention_norm": SequenceParallel(sequence_dim=dim),
        "attention": PrepareModuleInput(input_layouts=(tokens, None), desired_input_layouts=(Replicate(), None)),
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        "attention.wo": RowwiseParallel(output_layouts=tokens),
        "ffn_norm": SequenceParallel(sequence_dim=dim),
        "feed_forward": PrepareModuleInput(input_layouts=(tokens,), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=tokens),
        "feed_forward.w3": ColwiseParallel(),
    }
    for block in model.layers.values():
        parallelize_module(block, mesh, plan)


class Torchtitan:
    """A Llama on one rank of the world that the process group has."""

    def __init__(
        self,
        sizes: Sizes,
        batch: int,
        length: int = 8192,
        *,
        checkpointing: str = "selective",
        tensor: int = 1,
        reshard: bool | None = None,
        chunks: int = 1,
        norm: type[nn.RMSNorm] = nn.RMSNorm,
        early: bool = False,
        first_version: bool = False,
        compiles: bool = False,
    ) -> None:
        """`reshard` is of all blocks, None: of all but the last; `chunks` are those of the loss.

        If it `compiles`, each block is compiled by itself.
        """
        self.compiles = compiles
        self.sizes, self.batch, self.length, self.tensor = sizes, batch, length, tensor
        self.checkpointing, self.reshard, self.chunks = checkpointing, reshard, chunks
        self.norm, self.early, self.first_version = norm, early, first_version
        self.prediction: torch.Tensor | None = None

    def setup(self) -> None:
        dist.init_process_group("nccl")
        world = dist.get_world_size()
        with torch.device("meta"):
            model = Llama(self.sizes, self.length, self.norm, early=self.early)
        if self.tensor > 1:
            mesh = init_device_mesh("cuda", (world // self.tensor, self.tensor), mesh_dim_names=("dp", "tp"))
            _parallel_in_tensors(model, mesh["tp"])
            shards = mesh["dp"]
        else:
            shards = init_device_mesh("cuda", (world,))
        wrap: Callable[[nn.Module], nn.Module] = functools.partial(checkpoint_wrapper, preserve_rng_state=False)
        if self.checkpointing == "selective":
            wrap = functools.partial(wrap, context_fn=_selective)
        for name, block in model.layers.items():
            wrapped = wrap(block) if self.checkpointing else block
            model.layers[name] = torch.compile(wrapped, fullgraph=True) if self.compiles else wrapped
        self.model = self._first_version(model, shards) if self.first_version else self._second_version(model, shards)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True
        )

    def _second_version(self, model: Llama, shards: Any) -> nn.Module:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for number, block in enumerate(model.layers.values()):
            is_last = number == self.sizes.layers - 1
            reshard = not is_last if self.reshard is None else self.reshard
            fully_shard(block, mesh=shards, mp_policy=policy, reshard_after_forward=reshard)
        fully_shard(model, mesh=shards, mp_policy=policy, reshard_after_forward=True)
        model.to_empty(device="cuda")
        with torch.no_grad():
            model.init_weights()
        return model

    def _first_version(self, model: Llama, shards: Any) -> nn.Module:
        options: dict[str, Any] = {
            "mixed_precision": MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
            "use_orig_params": True,
            "device_mesh": shards,
            "device_id": torch.cuda.current_device(),
            "param_init_fn": lambda module: module.to_empty(device="cuda", recurse=False),
        }
        for name, block in model.layers.items():
            model.layers[name] = FullyShardedDataParallel(block, **options)
        return FullyShardedDataParallel(model, **options)

    def step(self) -> None:
        tokens = torch.randint(0, self.sizes.vocabulary, (self.batch, self.length + 1)).cuda()
        inputs, labels = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
        self.optimizer.zero_grad()
        if self.tensor > 1:
            with loss_parallel():
                self._backward(inputs, labels)
        else:
            self._backward(inputs, labels)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()

    def _backward(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        if self.early:  # keeps its output until that of the next step is there
            self.prediction = self.model(inputs)
            nn.functional.cross_entropy(self.prediction.flatten(0, 1), labels.flatten(0, 1)).backward()
            return
        prediction = self.model(inputs)
        if self.chunks == 1:
            loss = nn.functional.cross_entropy(prediction.flatten(0, 1).float(), labels.flatten(0, 1))
            del prediction
        else:
            parts = zip(prediction.chunk(self.chunks, dim=1), labels.chunk(self.chunks, dim=1), strict=True)
            losses = [nn.functional.cross_entropy(a.flatten(0, 1).float(), b.flatten(0, 1)) for a, b in parts]
            loss = sum(losses) / self.chunks
            del prediction, losses
        loss.backward()
