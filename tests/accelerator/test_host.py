"""Tensors of the host: they cost no GPU bytes, behave as CPU tensors, and move as from CPU to CUDA."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from tests.accelerator.bytes import live, peak, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlint.accelerator.ledger import Ledger

MIB = 1 << 20
MOVES: list[Callable[[Any], Any]] = [
    lambda m: m.cuda(),
    lambda m: m.to("cuda"),
    lambda m: m.to(torch.device("cuda", 0)),
    lambda m: m.to(device="cuda:0"),
    lambda m: m.cuda(0),
    lambda m: m.to(0),
    lambda m: m.to("cuda", non_blocking=True),
]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.norm = nn.BatchNorm1d(64)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("mask", torch.ones(100, 100, dtype=torch.bool).tril())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.embedding(x)))


NBYTES = 4 * 64 * 1000 + 2 * 4 * 64 + 2 * 4 * 64 + 8 + 100 * 100
"""Of Tied: the shared weight, the norm's weight and bias, its statistics and counter, the mask."""


@pytest.mark.parametrize("move", MOVES)
def test_a_model_costs_its_exact_bytes_once_it_is_moved(gpu: Ledger, move: Any) -> None:
    model = Tied()
    assert not gpu.events
    assert {str(t.device) for t in (*model.parameters(), *model.buffers())} == {"cpu"}
    moved = move(model)
    assert moved is model
    assert live(gpu) == NBYTES
    assert {str(t.device) for t in (*model.parameters(), *model.buffers())} == {"cuda:0"}
    assert peak(gpu) == NBYTES


def test_tied_weights_stay_tied_and_parameters_keep_their_identity(gpu: Ledger) -> None:
    model = Tied()
    before = [id(p) for p in model.parameters()]
    model.to("cuda")
    assert model.head.weight is model.embedding.weight
    assert [id(p) for p in model.parameters()] == before
    assert all(type(p) is nn.Parameter and p.is_leaf and p.requires_grad for p in model.parameters())


def test_a_model_moves_with_its_dtype(gpu: Ledger) -> None:
    model = Tied().to(device="cuda", dtype=torch.bfloat16)
    assert model.head.weight.dtype is torch.bfloat16
    assert model.mask.dtype is torch.bool
    assert live(gpu) == 2 * 64 * 1000 + 4 * 2 * 64 + 8 + 100 * 100


def test_a_model_is_cast_on_the_host_for_nothing(gpu: Ledger) -> None:
    model = Tied().half()
    assert not gpu.events
    model.cuda()
    assert live(gpu) == 2 * 64 * 1000 + 4 * 2 * 64 + 8 + 100 * 100


def test_moving_a_model_that_is_there_makes_nothing(gpu: Ledger) -> None:
    model = Tied().cuda()
    count = len(gpu.births)
    model.cuda().to("cuda:0").to(torch.device("cuda"))
    assert len(gpu.births) == count


def test_a_model_that_goes_back_to_the_host_frees_its_bytes(gpu: Ledger) -> None:
    model = Tied().cuda()
    model.cpu()
    assert live(gpu) == 0
    assert {str(t.device) for t in (*model.parameters(), *model.buffers())} == {"cpu"}
    assert model.head.weight is model.embedding.weight
    model.to("cuda")
    assert live(gpu) == NBYTES


def test_an_optimizer_made_before_the_move_trains_the_moved_weights(gpu: Ledger) -> None:
    model = Tied()
    optimizer = torch.optim.AdamW(model.parameters())
    model.cuda()
    model(torch.randint(1000, (8,), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    weights = 4 * 64 * 1000 + 2 * 4 * 64
    assert live(gpu) - _workspaces(gpu) == NBYTES + 2 * weights
    assert {str(t.device) for s in optimizer.state.values() for t in s.values() if t.dim()} == {"cuda:0"}


def _workspaces(ledger: Ledger) -> int:
    """cuBLAS's workspace of the main thread and of autograd's."""
    return sum(n for n in sizes(ledger) if n == 8_519_680)


def test_state_dicts_pass_between_host_and_device(gpu: Ledger) -> None:
    model = Tied().cuda()
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    assert {str(t.device) for t in state.values()} == {"cpu"}
    assert live(gpu) == NBYTES
    other = Tied()
    other.load_state_dict(state)
    model.load_state_dict(other.state_dict())
    assert live(gpu) == NBYTES


def test_a_deep_copy_is_on_the_device_of_its_original(gpu: Ledger) -> None:
    on_host = copy.deepcopy(Tied())
    assert not gpu.events
    model = on_host.cuda()
    average = copy.deepcopy(model)
    assert live(gpu) == 2 * NBYTES
    assert average.head.weight is average.embedding.weight
    assert average.head.weight is not model.head.weight


def test_a_small_host_tensor_computes_for_real_and_a_big_one_costs_nothing(gpu: Ledger) -> None:
    small = torch.arange(10) * 2
    assert small.sum().item() == 90
    big = torch.rand(1 << 20)
    result = (big * 2).view(1024, -1) @ torch.rand(1024, 4)
    assert (str(result.device), result.shape) == ("cpu", (1024, 4))
    assert not gpu.events
    assert live(gpu) == 0


def test_a_big_host_tensor_moves_to_the_device(gpu: Ledger) -> None:
    images = torch.rand(MIB)
    batch = images[: MIB // 2].to("cuda")
    assert live(gpu) == 2 * MIB
    assert str(batch.device) == "cuda:0"
    back = batch.cpu()
    assert str(back.device) == "cpu"
    assert sizes(gpu) == [2 * MIB]


def test_results_are_where_their_operands_are(gpu: Ledger) -> None:
    big = torch.rand(512, 1024)
    on_gpu = big.cuda()
    for result in (
        big.new_zeros(MIB),
        torch.zeros_like(big),
        torch.randn_like(big),
        big.sort()[0],
        big.std(0),
        big.softmax(-1),
    ):
        assert str(result.device) == "cpu"
    for result in (
        on_gpu.new_zeros(MIB),
        torch.zeros_like(on_gpu),
        torch.randn_like(on_gpu),
        on_gpu.sort()[0],
        on_gpu.std(0),
        on_gpu.softmax(-1),
    ):
        assert str(result.device) == "cuda:0"


def test_like_and_new_with_a_device_go_there(gpu: Ledger) -> None:
    host, device = torch.rand(2, 2), torch.rand(2, 2, device="cuda")
    assert str(torch.zeros_like(host, device="cuda").device) == "cuda:0"
    assert str(torch.zeros_like(device, device="cpu").device) == "cpu"
    assert str(host.new_ones(3, device="cuda").device) == "cuda:0"
    assert str(device.new_ones(3, device="cpu").device) == "cpu"
    assert str(device.new_tensor([1, 2]).device) == "cuda:0"
    assert str(host.new_tensor([1, 2]).device) == "cpu"


@pytest.mark.parametrize("nbytes", [16, 8 * MIB])
@pytest.mark.parametrize(
    "operation",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        torch.mul,
        torch.maximum,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a.view(2, -1) @ b.view(-1, 2),
        lambda a, b: torch.where(a > 0, a, b),
        torch.dot,
        lambda a, b: nn.functional.linear(a[None], b[None]),
        lambda a, b: torch.stack([a, b]),
        lambda a, b: b * a,
        lambda a, b: nn.functional.mse_loss(a, b),
    ],
)
def test_mixing_devices_raises_what_a_gpu_raises(gpu: Ledger, operation: Any, nbytes: int) -> None:
    a, b = torch.rand(nbytes // 4, device="cuda"), torch.rand(nbytes // 4)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        operation(a, b)


def test_embedding_with_host_indices_raises_what_a_gpu_raises(gpu: Ledger) -> None:
    model = nn.Embedding(10, 4).cuda()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        model(torch.tensor([1, 2]))


def test_a_host_scalar_meets_device_tensors(gpu: Ledger) -> None:
    x = torch.rand(3, device="cuda")
    result = x * torch.tensor(2.0) + torch.tensor(1)
    assert str(result.device) == "cuda:0"
    assert result.dtype is torch.float32


def test_device_tensors_are_indexed_by_host_indices(gpu: Ledger) -> None:
    x = torch.rand(5, 3, device="cuda")
    assert x[torch.tensor([0, 2])].shape == (2, 3)
    assert x[torch.tensor([True, False, True, False, False])].shape == (2, 3)
    x[torch.tensor([1])] = 0.0


def test_a_device_tensor_stays_there_under_a_big_host_mask(gpu: Ledger) -> None:
    count = 2 * MIB
    mask = torch.rand(count).floor().bool()
    assert str(torch.ones(count, device="cuda")[mask].device) == "cuda:0"
    assert str(torch.ones(2, count, device="cuda")[:, mask].device) == "cuda:0"


def test_copying_between_devices_is_no_mixing(gpu: Ledger) -> None:
    host, device = torch.arange(6.0), torch.zeros(6, device="cuda")
    device.copy_(host)
    assert device.tolist() == [0, 1, 2, 3, 4, 5]
    host.zero_()
    host.copy_(device * 2)
    assert host.tolist() == [0, 2, 4, 6, 8, 10]
    device[2:4] = torch.tensor([7.0, 8.0])
    assert device.tolist() == [0, 1, 7, 8, 4, 5]


def test_a_backward_on_the_host_takes_a_gradient_that_the_program_makes(gpu: Ledger) -> None:
    x = torch.ones(3, requires_grad=True)
    (x * 2).backward(torch.full((3,), 5.0))
    assert x.grad is not None
    assert x.grad.tolist() == [10.0, 10.0, 10.0]
    (grad,) = torch.autograd.grad([x * 3], [x], [torch.ones(3)])
    assert grad.tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="invalid gradient"):
        (x.cuda() * 2).backward(torch.ones(3))


def test_gradients_flow_back_to_the_host(gpu: Ledger) -> None:
    weight = nn.Parameter(torch.rand(512, 1024))
    loss = (weight.cuda() * 2).sum()
    loss.backward()
    assert weight.grad is not None
    assert str(weight.grad.device) == "cpu"
    assert live(gpu) == 4


def test_gradients_flow_on_to_the_device(gpu: Ledger) -> None:
    weight = nn.Parameter(torch.rand(512, 1024, device="cuda"))
    loss = (weight * 2).cpu().sum()
    loss.backward()
    assert weight.grad is not None
    assert str(weight.grad.device) == "cuda:0"
    assert live(gpu) == 2 * 2 * MIB


def test_a_small_host_tensor_gets_its_gradient_on_the_host(gpu: Ledger) -> None:
    x = torch.rand(4, requires_grad=True)
    x.cuda().exp().sum().backward()
    assert x.grad is not None
    assert str(x.grad.device) == "cpu"


def test_a_model_is_saved_and_loaded(gpu: Ledger) -> None:
    model = nn.Linear(4, 4).cuda()
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    for place in ("cpu", "cuda", None):
        file.seek(0)
        state = torch.load(file, map_location=place)
        assert str(state["weight"].device) == ("cpu" if place == "cpu" else "cuda:0")
        model.load_state_dict(state)


def test_big_host_tensors_take_no_real_memory() -> None:
    program = """
import resource, torch
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
with virtual_device(device_named("a100-80gb")):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for make in (
        lambda: torch.nn.Linear(80_000, 90_000),
        lambda: torch.zeros(7_000_000_000),
        lambda: torch.nn.Parameter(torch.rand(2, 3_500_000_000)),
        lambda: torch.zeros(4).new_ones(7_000_000_000),
        lambda: torch.ones(1, 4).expand(7_000_000_000, 4) + torch.zeros(7_000_000_000, 4),
    ):
        moved = make().to("cuda").half()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert int(done.stdout) < 300
