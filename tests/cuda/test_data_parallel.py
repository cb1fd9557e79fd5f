"""The first of several GPUs of `DataParallel`: its part of the batch, all outputs, and gradients that are added up."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.accelerator.bytes import live, peak

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.accelerator.ledger import Ledger

MIB = 1 << 20
Pair = namedtuple("Pair", "first second")


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


class Recorder(nn.Module):
    """Keeps the shapes of what it gets, and returns what `answer` makes of it."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.answer, self.shapes = answer, []

    def forward(self, x: torch.Tensor, **named: Any) -> Any:
        self.shapes.append((tuple(x.shape), *(tuple(each.shape) for each in named.values())))
        return self.answer(x * self.weight)


def test_the_first_gpu_gets_its_part_and_all_outputs(gpu: Ledger) -> None:
    assumed: list[str] = []
    state.current.assume = assumed.append
    model = nn.DataParallel(Recorder(lambda x: x), device_ids=[0, 1, 2, 3]).cuda()
    output = model(torch.rand(10, 6), mask=torch.ones(10, 2))
    assert model.module.shapes == [((3, 6), (3, 2))]
    assert output.shape == (10, 6)
    assert output.device == torch.device("cuda", 0)
    assert assumed == ["DataParallel divides batches among 4 GPUs: the figures are those of the first"]


@pytest.mark.parametrize(
    ("answer", "shape"),
    [
        (lambda x: {"loss": x.sum(), "name": None, "x": x}, [(4,), (8, 6)]),
        (lambda x: Pair(x, [x.mean(1), x[:, :2]]), [(8, 6), (8,), (8, 2)]),
    ],
)
def test_outputs_of_all_kinds_are_brought_together(gpu: Ledger, answer: Any, shape: list[tuple[int, ...]]) -> None:
    model = nn.DataParallel(Recorder(answer), range(4)).cuda()
    with pytest.warns(UserWarning, match="scalars") if shape[0] == (4,) else torch.enable_grad():
        output = model(torch.rand(8, 6, device="cuda"))
    leaves = [each for each in torch.utils._pytree.tree_leaves(output) if each is not None]
    assert [tuple(each.shape) for each in leaves] == shape
    sum(each.sum() for each in leaves).backward()
    assert model.module.weight.grad.shape == (1,)


def test_a_batch_smaller_than_the_number_of_gpus_is_divided_among_fewer(gpu: Ledger) -> None:
    model = nn.DataParallel(Recorder(lambda x: x), range(4)).cuda()
    assert model(torch.rand(2, 6)).shape == (2, 6)
    assert model.module.shapes == [((1, 6),)]


def test_gradients_of_all_gpus_are_added_up_beside_those_of_the_first(gpu: Ledger) -> None:
    size = 1024 * 1024 * 4
    net = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(4)))
    model = nn.DataParallel(net, [0, 1]).cuda()
    model(torch.rand(2, 1024, device="cuda")).sum().backward()
    before = live(gpu)  # with the workspaces of both threads, and gradients
    net.zero_grad()
    gradients = before - live(gpu)
    assert gradients == 4 * size
    model(torch.rand(2, 1024, device="cuda")).sum().backward()
    in_buffers = 2 * 3 * size  # as they are and added up; a buffer is full with three weights, above 10 MiB
    assert in_buffers <= peak(gpu) - before <= in_buffers + MIB
    assert live(gpu) == before


def test_weights_are_sent_in_buffers_that_the_first_gpu_lets_go_of(gpu: Ledger) -> None:
    net = nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(4)))
    model = nn.DataParallel(net, [0, 1]).cuda().eval()
    with torch.no_grad():
        model(torch.rand(2, 512, device="cuda"))
        before = live(gpu)
        model(torch.rand(2, 512, device="cuda"))
        assert peak(gpu) - before >= 4 * 512 * 512 * 4
        assert live(gpu) == before


def test_the_input_of_a_network_behind_another_has_the_gradient_of_the_whole_batch(gpu: Ledger) -> None:
    first, second = (nn.DataParallel(nn.Linear(256, 256), [0, 1]).cuda() for _ in range(2))
    batch = torch.rand(64, 256, device="cuda", requires_grad=True)
    second(first(batch)).sum().backward()
    assert batch.grad is not None
    assert batch.grad.shape == (64, 256)
    assert all(each.grad is not None for each in first.parameters())


def test_the_function_does_the_same_for_one_call(gpu: Ledger) -> None:
    module = Recorder(lambda x: x).cuda()
    assert nn.parallel.data_parallel(module, torch.rand(8, 6, device="cuda"), range(4)).shape == (8, 6)
    assert module.shapes == [((2, 6),)]
