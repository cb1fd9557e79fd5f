"""Small training programs under each strategy, for real groups of processes on the host and for simulated ones."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.algorithms import Join
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor import Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring_attention
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

from memlint.distributed.group import become
from memlint.distributed.mailbox import Mailbox
from memlint.distributed.rank import Rank

WIDTH, CLASSES, BATCH = 192, 500, 64


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, num_blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(num_blocks)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))


Wrap = Callable[[Net, str], Any]


class Program:
    """A Net that `wrap` makes parallel, on `device`."""

    def __init__(
        self,
        wrap: Wrap,
        device: str = "cpu",
        *,
        accumulate: int = 1,
        zero: bool = False,
        around: Callable[[Program], AbstractContextManager[Any]] = contextlib.nullcontext,
        batch: int = BATCH,
        num_batches: Callable[[int], int] = lambda rank: 1,
    ) -> None:
        self.wrap, self.device, self.accumulate, self.zero = wrap, device, accumulate, zero
        self.around = around
        """What each step is taken in."""
        self.batch, self.num_batches = batch, num_batches
        """How large a batch is, and of how many a step is, by rank."""

    def setup(self) -> None:
        torch.manual_seed(0)
        with torch.device(self.device):
            self.model = self.wrap(Net(), self.device)
        options = {"lr": 1e-3, "foreach": False}
        parameters = self.model.parameters()
        self.optimizer: torch.optim.Optimizer = (
            ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.AdamW, **options)
            if self.zero
            else torch.optim.AdamW(parameters, **options)
        )
        self.inputs = torch.randn(self.batch, WIDTH, device=self.device)
        self.target = torch.randint(0, CLASSES, (self.batch,), device=self.device)

    def loss(self) -> torch.Tensor:
        output = self.model(self.inputs)
        return nn.functional.cross_entropy(output, self.target)

    def step(self) -> None:
        with self.around(self):
            for _ in range(self.num_batches(dist.get_rank())):
                self._step()

    def _step(self) -> None:
        for _ in range(self.accumulate - 1):
            with self.model.no_sync():
                self.loss().backward()
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Pipelined:
    """Blocks in stages, some on each rank, of which the last ends with the head of a Net."""

    def __init__(self, schedule: str, device: str = "cpu") -> None:
        self.schedule, self.device = schedule, device

    def setup(self) -> None:
        torch.manual_seed(0)
        rank, world = dist.get_rank(), dist.get_world_size()
        numbers = [rank, rank + world] if self.schedule == "interleaved" else [rank]
        num_stages = len(numbers) * world
        self.model = nn.ModuleList(self._part(number, num_stages) for number in numbers).to(self.device)
        stages = [
            PipelineStage(part, number, num_stages, torch.device(self.device))
            for number, part in zip(numbers, self.model, strict=True)
        ]
        options: dict[str, Any] = {"n_microbatches": 2 * world, "loss_fn": nn.functional.cross_entropy}
        self.steps: Any = {
            "gpipe": lambda: ScheduleGPipe(stages[0], **options),
            "1f1b": lambda: Schedule1F1B(stages[0], **options),
            "interleaved": lambda: ScheduleInterleaved1F1B(stages, **options),
        }[self.schedule]()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=False)
        self.inputs = torch.randn(BATCH, WIDTH, device=self.device)
        self.target = torch.randint(0, CLASSES, (BATCH,), device=self.device)

    def _part(self, number: int, num_stages: int) -> nn.Module:
        blocks = [Block() for _ in range(max(1, 8 // num_stages))]
        return nn.Sequential(*blocks, *([nn.Linear(WIDTH, CLASSES)] if number == num_stages - 1 else ()))

    def step(self) -> None:
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        positional = (self.inputs,) if rank == 0 else ()
        named = {"target": self.target, "losses": []} if rank == last else {}
        self.steps.step(*positional, **named)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Experts(nn.Module):
    """What `block` computes by one of as many experts as there are ranks, for tokens of all of these."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.expert = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        world = dist.group.WORLD
        here = all_to_all_single_autograd(x, None, None, world)
        return all_to_all_single_autograd(self.expert(here), None, None, world)


def expert_parallel(model: Net, device: str) -> Net:
    model.blocks[1] = Experts(model.blocks[1])
    return model


class Ring(torch.autograd.Function):
    """PyTorch's ring attention with the kernel of the host, for which `context_parallel` has none."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        outputs = ring_attention._templated_ring_attention(dist.group.WORLD, 2, op, *tensors, is_causal=True)
        ctx.save_for_backward(*tensors, *outputs)
        return outputs[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        options = {"is_causal": True, "dropout_p": 0.0}
        return ring_attention._templated_ring_attention_backward(
            dist.group.WORLD, 2, op, gradient, "grad_out", *ctx.saved_tensors, **options
        )


class Attended(nn.Module):
    """A block after attention among the tokens of all ranks."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.heads, self.block = nn.Linear(WIDTH, 3 * WIDTH), block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.heads(x).view(1, len(x), 3, 4, -1).transpose(1, 3).unbind(2)
        attended = Ring.apply(*parts) if x.device.type == "cpu" else self._on_gpu(*parts)
        return self.block(x + attended.transpose(1, 2).reshape(x.shape))

    def _on_gpu(self, *parts: torch.Tensor) -> torch.Tensor:
        halves = [part.half() for part in parts]  # for flash attention: the other kernel pads what it keeps of 8 tokens
        return nn.functional.scaled_dot_product_attention(*halves, is_causal=True).float()


def attending(model: Net, device: str) -> Any:
    model.blocks[1] = Attended(model.blocks[1])
    return ddp(model, device)


def in_contexts(program: Program, method: str) -> AbstractContextManager[Any]:
    """Each rank has a part of the tokens meanwhile."""
    ring_attention.set_rotate_method(method)
    mesh = init_device_mesh(program.device, (dist.get_world_size(),))
    return context_parallel(mesh, buffers=[program.inputs, program.target], buffer_seq_dims=[0, 0])


def alone(model: Net, device: str) -> Net:
    return model


def ddp(model: Net, device: str, **options: Any) -> Any:
    return DistributedDataParallel(model, device_ids=[0] if device == "cuda" else None, **options)


def ddp_hook(model: Net, device: str, hook: Callable[..., Any], state: Any = lambda: None) -> Any:
    wrapped = ddp(model, device)
    wrapped.register_comm_hook(state(), hook)
    return wrapped


def power_sgd(model: Net, device: str) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

    return ddp_hook(model, device, powerSGD_hook, lambda: PowerSGDState(None, start_powerSGD_iter=2))


def fsdp2(
    model: Net, device: str, *, reshard: bool = True, units: bool = True, mixed: bool = False, replicas: int = 1
) -> Any:
    size = dist.get_world_size()
    if replicas > 1:
        mesh = init_device_mesh(device, (replicas, size // replicas), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(device, (size,))
    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": reshard}
    if mixed:
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.float64, reduce_dtype=torch.float32)
    for block in model.blocks if units else ():
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fsdp1(model: Net, device: str, **options: Any) -> Any:
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=0 if device == "cuda" else torch.device("cpu"), **options
    )


def tp(model: Net, device: str, *, sequence: bool = False) -> Net:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model.blocks:
        plan: dict[str, Any] = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if sequence:
            plan = {
                "norm": SequenceParallel(sequence_dim=0),
                "up": ColwiseParallel(input_layouts=Shard(0)),
                "down": RowwiseParallel(output_layouts=Shard(0)),
            }
        parallelize_module(block, mesh, plan)
    return model


def tp_of_head(model: Net, device: str) -> Net:
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    return parallelize_module(model, mesh, {"head": ColwiseParallel(use_local_output=False)})


def tp_and_fsdp2(model: Net, device: str) -> Any:
    mesh = init_device_mesh(device, (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    for block in model.blocks:
        parallelize_module(block, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


def synced_in_parts(model: Net, device: str) -> Any:
    wrapped = ddp(model, device, gradient_as_bucket_view=True)
    wrapped.broadcast_bucket_size = 2**20  # which a larger model has more of as well
    return wrapped


def joined(program: Program) -> Join:
    return Join([program.model, program.optimizer] if program.zero else [program.model])


def uneven(device: str = "cpu", **options: Any) -> Program:
    """Ranks that have more batches than others; what these mirror takes more than what they train on."""
    return Program(synced_in_parts, device, around=joined, batch=8, **options)


P = functools.partial
STRATEGIES: dict[str, Callable[..., Program | Pipelined]] = {
    "alone": P(Program, alone),
    "ddp": P(Program, ddp),
    "ddp-bucket-view": P(Program, P(ddp, gradient_as_bucket_view=True)),
    "ddp-small-buckets": P(Program, P(ddp, bucket_cap_mb=1)),
    "ddp-unused": P(Program, P(ddp, find_unused_parameters=True)),
    "ddp-static-graph": P(Program, P(ddp, static_graph=True)),
    "ddp-no-sync": P(Program, ddp, accumulate=2),
    "ddp-fp16-hook": P(Program, P(ddp_hook, hook=default_hooks.fp16_compress_hook)),
    "ddp-bf16-hook": P(Program, P(ddp_hook, hook=default_hooks.bf16_compress_hook)),
    "ddp-allreduce-hook": P(Program, P(ddp_hook, hook=default_hooks.allreduce_hook)),
    "ddp-power-sgd": P(Program, power_sgd),
    "ddp-join": P(Program, ddp, around=lambda program: program.model.join()),
    "ddp-join-first-has-more": P(uneven, num_batches=lambda rank: 2 if rank == 0 else 1),
    "ddp-join-last-has-more": P(uneven, num_batches=lambda rank: 1 if rank == 0 else 2),
    "zero1-join": P(uneven, num_batches=lambda rank: 2 if rank == 0 else 1, zero=True),
    "zero1": P(Program, P(ddp, gradient_as_bucket_view=True), zero=True),
    "fsdp2": P(Program, fsdp2),
    "fsdp2-one-unit": P(Program, P(fsdp2, units=False)),
    "fsdp2-no-reshard": P(Program, P(fsdp2, reshard=False)),
    "fsdp2-mixed": P(Program, P(fsdp2, mixed=True)),
    "hsdp": P(Program, P(fsdp2, replicas=2)),
    "fsdp1": P(Program, fsdp1),
    "fsdp1-grad-op": P(Program, P(fsdp1, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)),
    "fsdp1-original": P(Program, P(fsdp1, use_orig_params=True)),
    "tp": P(Program, tp),
    "tp-sequence": P(Program, P(tp, sequence=True)),
    "tp-loss": P(Program, tp_of_head, around=lambda _: loss_parallel()),
    "tp-fsdp2": P(Program, tp_and_fsdp2),
    "cp": P(Program, attending, around=P(in_contexts, method="allgather")),
    "cp-all-to-all": P(Program, attending, around=P(in_contexts, method="alltoall")),
    "ep": P(Program, expert_parallel),
    "gpipe": P(Pipelined, "gpipe"),
    "1f1b": P(Pipelined, "1f1b"),
    "interleaved": P(Pipelined, "interleaved"),
}


class OfRank:
    """A strategy's program as one simulated rank of several, and as the others that it waits for."""

    def __init__(self, name: str, rank: Rank, device: str, box: Mailbox | None = None) -> None:
        self.name, self.rank, self.device, self.box = name, rank, device, box or Mailbox()

    def as_rank(self, number: int) -> OfRank:
        return OfRank(self.name, Rank(self.rank.world_size, number), self.device, self.box)

    def setup(self) -> None:
        become(self.rank, self.box)
        dist.init_process_group("nccl" if self.device == "cuda" else "gloo")
        self.program = STRATEGIES[self.name](device=self.device)
        self.program.setup()
        self.model, self.optimizer = self.program.model, self.program.optimizer
        self.inputs = self.program.inputs

    def step(self) -> None:
        self.program.step()
