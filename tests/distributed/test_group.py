"""One rank of many on a simulated GPU: groups, collectives with their values, objects, meshes and every strategy."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed._symmetric_memory as symmetric_memory
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import loss_parallel

from memlint.base.errors import RankNeededError, TraceError
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.distributed.group import become
from memlint.distributed.mailbox import Mailbox
from memlint.distributed.rank import Rank
from memlint.memory.communicators import beside, symmetric
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate, stream_peaks
from memlint.memory.records import Category
from memlint.memory.timeline import Timeline
from memlint.tracing.recorder import trace_program
from tests.distributed.strategies import STRATEGIES, OfRank

H100 = device_named("h100-80gb")


@pytest.fixture
def rank():
    with virtual_device(H100):
        become(Rank(8, 3))
        yield


@pytest.mark.parametrize("backend", ["nccl", "gloo", None, "cpu:gloo,cuda:nccl"])
def test_a_group_is_as_large_as_torchrun_says(rank, backend):
    dist.init_process_group(backend, device_id=0)
    assert (dist.get_rank(), dist.get_world_size()) == (3, 8)
    assert dist.get_backend() == ("gloo" if backend == "gloo" else "nccl")
    assert torch.cuda.device_count() == 8
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=60))
    part = dist.new_group([1, 3])
    assert (dist.get_rank(part), dist.get_world_size(part)) == (1, 2)
    other = dist.new_group([2, 3], backend="gloo")
    assert dist.get_backend(other) == "gloo"
    other.monitored_barrier()  # which gloo alone has
    dist.barrier()


def test_a_group_is_as_large_as_the_program_says():
    before = dict(os.environ)
    with virtual_device(H100):
        become(Rank(1))
        dist.init_process_group("nccl", world_size=16, rank=5, init_method="tcp://10.0.0.1:1234")
        assert (dist.get_rank(), dist.get_world_size()) == (5, 16)
    assert dict(os.environ) == before
    assert not dist.is_initialized()


def test_other_ranks_have_the_values_of_this_one(rank):
    dist.init_process_group("nccl")
    for device in ("cuda", "cpu"):
        x = torch.tensor([2.0, 3.0], device=device)
        dist.all_reduce(x)
        assert x.tolist() == [16.0, 24.0]
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        assert x.tolist() == [16.0, 24.0]
        parts = [torch.empty(2, device=device) for _ in range(8)]
        dist.all_gather(parts, x)
        assert [part.tolist() for part in parts] == [[16.0, 24.0]] * 8
        whole = torch.empty(16, device=device)
        dist.all_gather_into_tensor(whole, x)
        assert whole.tolist() == [16.0, 24.0] * 8
        mine = torch.empty(2, device=device)
        dist.reduce_scatter_tensor(mine, torch.arange(16.0, device=device))
        assert mine.tolist() == [48.0, 56.0]
        assert functional.all_reduce(x, "avg", dist.group.WORLD).tolist() == [16.0, 24.0]
    big = torch.zeros(1 << 20, device="cuda")
    dist.all_reduce(big)
    assert big.sum().item() == 0


def test_what_is_received_is_not_known(rank):
    dist.init_process_group("nccl")
    x = torch.ones(2, device="cuda")
    dist.recv(x, src=0)
    with pytest.MonkeyPatch.context() as patch:
        assumed: list[str] = []
        patch.setattr(simulated(), "assume", assumed.append)
        x.sum().item()
    assert assumed


def test_each_collective_is_known_with_its_bytes_group_and_stream(rank):
    dist.init_process_group("nccl")
    part = dist.new_group([3, 5])
    x = torch.empty(1000, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        dist.all_gather_into_tensor(torch.empty(8000, device="cuda"), x)
    dist.all_reduce(x, group=part)
    gather, reduce = simulated().collectives
    assert (gather.kind, gather.nbytes_in, gather.nbytes_out, gather.size) == ("all_gather", 4000, 32000, 8)
    assert gather.stream == side.stream_id
    assert (reduce.kind, reduce.size, reduce.group, reduce.stream) == ("all_reduce", 2, part.group_name, 0)
    assert gather.within_node


def test_nccl_flattens_lists_for_the_time_of_the_call(rank):
    dist.init_process_group("nccl")
    x = torch.empty(1 << 20, device="cuda")
    parts = [torch.empty_like(x) for _ in range(8)]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    dist.all_gather(parts, x)
    assert torch.cuda.max_memory_allocated() - before == 8 * x.nbytes
    assert torch.cuda.memory_allocated() == before


def test_objects_wait_in_the_mailbox():
    box = Mailbox()

    def run(number):
        with virtual_device(H100):
            become(Rank(2, number), box)
            dist.init_process_group("nccl")
            gathered = [None, None]
            dist.all_gather_object(gathered, {"rank": number})
            assert gathered == [{"rank": number}] * 2
            received = [None]
            if number:
                dist.recv_object_list(received, src=0)
            else:
                dist.send_object_list(["hello"], dst=1)
            return received[0]

    with pytest.raises(RankNeededError) as waits:
        run(1)
    assert waits.value.rank == 0
    run(0)
    assert run(1) == "hello"


def test_a_mesh_has_the_coordinates_of_the_rank(rank):
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("data", "tensor"))
    assert tuple(mesh.get_coordinate()) == (0, 3)
    assert mesh["tensor"].size() == 4
    assert mesh.get_local_rank("tensor") == 3


def test_gradients_of_shards_are_clipped(rank):
    dist.init_process_group("nccl")
    model = fully_shard(torch.nn.Linear(64, 64, device="cuda"), mesh=init_device_mesh("cuda", (8,)))
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    assert norm.to("cuda").shape == ()


def test_ops_without_a_strategy_are_tried_out(rank):
    mesh = init_device_mesh("cuda", (8,))
    logits = distribute_tensor(torch.zeros(4, 32, device="cuda", requires_grad=True), mesh, [Shard(1)])
    with loss_parallel():
        torch.nn.functional.cross_entropy(logits, torch.zeros(4, dtype=torch.int64, device="cuda")).backward()
    assert {each.kind for each in simulated().collectives} >= {"all_reduce"}


def test_symmetric_memory_lies_beside_the_allocator_in_whole_pages(rank):
    dist.init_process_group("nccl")
    before = len(simulated().ledger.events)
    tensor = symmetric_memory.empty(1024, 1024, device="cuda")
    assert (tensor.shape, tensor.device.type) == ((1024, 1024), "cuda")
    assert simulated().symmetric == 6 * 2**20  # 4 MiB and a signal pad
    seen = symmetric_memory.rendezvous(tensor, dist.group.WORLD)
    assert (seen.rank, seen.world_size, seen.buffer_size) == (3, 8, 4 * 2**20)
    seen.barrier()
    assert seen.get_buffer(5, (16, 16), torch.bfloat16, 8).shape == (16, 16)
    workspace = symmetric_memory.get_symm_mem_workspace("0", 3 * 2**20)
    assert (workspace.buffer_size, simulated().symmetric) == (3 * 2**20, 10 * 2**20)
    assert len(simulated().ledger.events) == before
    assert symmetric_memory.rendezvous(tensor + 1, dist.group.WORLD) is None
    del seen, tensor
    assert simulated().symmetric == 4 * 2**20
    collectives = simulated().collectives
    assert symmetric(collectives) == 10 * 2**20
    alone, with_it = beside(H100, []), beside(H100, collectives)
    assert with_it.context_nbytes - alone.context_nbytes == with_it.context_low - alone.context_low == 10 * 2**20


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("its backend NCCL", lambda _: symmetric_memory.set_backend("NCCL")),
        ("get_mem_pool", lambda _: symmetric_memory.get_mem_pool("cuda")),
        ("signal_pad_ptrs", lambda _: symmetric_memory.get_symm_mem_workspace("0", 8).signal_pad_ptrs),
        ("fused_all_gather_matmul", lambda x: torch.ops.symm_mem.fused_all_gather_matmul(x, [x], 0, "0")),
    ],
)
def test_what_is_not_known_of_symmetric_memory_is_refused_by_its_name(rank, name, call):
    dist.init_process_group("nccl")
    with pytest.raises(TraceError, match=f"symmetric memory: {name}.* is not simulated"):
        call(torch.ones(8, 8, device="cuda"))


def traced(name, world=8):
    return trace_program(OfRank(name, Rank(world), "cuda"), H100).trace


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_runs_on_a_simulated_gpu(name):
    trace = traced(name)
    most = estimate(Timeline.of(trace), H100, trace.nodes)
    kinds = Counter(each.kind for each in trace.collectives)
    assert most.requested.estimate > 0
    assert bool(kinds) == (name != "alone")
    assert all(trace.nodes[each.node].op.startswith("c10d.") for each in trace.collectives)
    by_stream = stream_peaks(Timeline.of(trace), H100)
    assert sum(each[2] for each in by_stream.values()) == most.reserved.estimate
    if name.startswith(("fsdp2", "hsdp")):
        assert len(by_stream) >= 3


def test_a_wrapped_module_may_be_named(rank):
    dist.init_process_group("nccl")
    wrapped = torch.nn.parallel.DistributedDataParallel(module=torch.nn.Linear(4, 4).cuda(), device_ids=[0])
    assert wrapped.module.weight.is_cuda


def test_buckets_are_made_anew_on_the_gpu_whatever_ran_before(rank):
    dist.init_process_group("nccl")
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[0])
    for _ in range(3):
        wrapped(torch.randn(2, 4, device="cuda").cpu() + 1).sum().backward()
    assert all(parameter.grad.is_cuda for parameter in wrapped.parameters())


def test_buckets_are_communication_unless_they_are_the_gradients():
    def at_peak(name):
        trace = traced(name)
        return estimate(Timeline.of(trace), H100, trace.nodes).categories

    gradients = at_peak("ddp")[Category.GRADIENT]
    assert at_peak("ddp")[Category.COMMUNICATION] == gradients
    assert Category.COMMUNICATION not in at_peak("ddp-bucket-view")
    assert at_peak("ddp-bucket-view")[Category.GRADIENT] == gradients


def test_a_hook_that_compresses_takes_the_same_in_either_half_precision():
    def requested(name):
        trace = traced(name)
        return estimate(Timeline.of(trace), H100, trace.nodes).requested.estimate

    assert requested("ddp-bf16-hook") == requested("ddp-fp16-hook") > requested("ddp")


def test_shards_of_more_ranks_are_smaller():
    def parameters(world):
        return sum(b.nbytes for b in traced("fsdp2", world).buffers if b.category is Category.PARAMETER)

    assert parameters(2) / parameters(16) == pytest.approx(8, rel=0.02)


def test_a_step_does_not_grow_with_the_world():
    def kernels(world):
        return sum(node.step >= 0 for node in traced("fsdp2", world).nodes)

    assert kernels(1024) <= 1.2 * kernels(8)  # copies of shards that are cut unevenly
