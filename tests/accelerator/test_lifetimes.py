"""A storage is born with its first tensor and dies with its last reference, as on a real device."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.accelerator.bytes import live, peak, sizes

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger

pytestmark = pytest.mark.usefixtures("copied_pythons")

KIB = 1024


def kib(n: int = 1) -> torch.Tensor:
    return torch.rand(256 * n, device="cuda")


def test_a_tensor_lives_from_its_making_to_its_last_name(gpu: Ledger) -> None:
    x = kib()
    y = x
    assert live(gpu) == KIB
    del x
    assert live(gpu) == KIB
    del y
    assert live(gpu) == 0


def test_rebinding_a_name_frees_after_the_new_value_is_made(gpu: Ledger) -> None:
    x = kib()
    x = x + 1
    assert live(gpu) == KIB
    assert peak(gpu) == 2 * KIB


def test_a_temporary_dies_within_its_expression(gpu: Ledger) -> None:
    x = kib()
    y = (x + 1) * 2
    assert sizes(gpu) == [KIB, KIB]
    assert peak(gpu) == 3 * KIB
    del y


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:1],
        lambda x: x.view(2, -1)[1],
        lambda x: x.unsqueeze(0).expand(3, -1),
        lambda x: x.detach(),
        lambda x: x.unfold(0, 2, 2),
        lambda x: x.split(2)[3],
        lambda x: x.view(torch.int32),
        lambda x: x.data,
        lambda x: x.as_strided((2,), (1,), 3),
        lambda x: x.reshape(16, 16).t().diagonal(),
        lambda x: x.untyped_storage(),
        lambda x: x.chunk(4)[0].narrow(0, 1, 1),
    ],
)
def test_a_view_makes_no_bytes_and_keeps_the_whole_storage(gpu: Ledger, view: Any) -> None:
    x = kib()
    y = view(x)
    assert sizes(gpu) == [KIB]
    del x
    assert sizes(gpu) == [KIB]
    del y
    assert live(gpu) == 0


def test_what_autograd_saves_lives_until_the_backward(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    y = w.exp().sum()
    assert live(gpu) == 2 * KIB + 4
    y.backward()
    assert live(gpu) == 2 * KIB + 4  # the weight, its gradient and the sum
    assert w.grad is not None
    w.grad = None
    assert live(gpu) == KIB + 4


def test_what_autograd_does_not_need_dies_at_once(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    y = (w + 1).sum()
    assert sizes(gpu) == [KIB, 4]
    del y


def test_dropping_the_result_frees_the_saved_tensors(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    y = w.exp().exp().exp()
    assert live(gpu) == 4 * KIB
    del y
    assert live(gpu) == KIB


def test_a_kept_graph_keeps_its_saved_tensors(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    y = w.exp().sum()
    y.backward(retain_graph=True)
    kept = live(gpu)
    w.grad = None
    y.backward()
    w.grad = None
    assert kept == 3 * KIB + 4
    assert live(gpu) == KIB + 4


def test_no_grad_and_inference_mode_save_nothing(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = w.exp().exp()
        assert live(gpu) == 2 * KIB
        del y


def test_gradients_add_up_in_place(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    (w * 2).sum().backward()
    before = live(gpu)
    (w * 2).sum().backward()
    assert live(gpu) == before == 2 * KIB


class AddsANumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.exp())
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (saved,) = ctx.saved_tensors
        return gradient * (saved + 1e-6)


def test_a_backward_of_the_users_own_adds_a_number_to_what_it_saved(gpu: Ledger) -> None:
    for _ in range(3):
        x = kib().requires_grad_()
        (AddsANumber.apply(x) + AddsANumber.apply(x)).sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert live(gpu) == 2 * KIB


def test_checkpoint_keeps_only_its_input(gpu: Ledger) -> None:
    w = kib().requires_grad_()

    def block(x: torch.Tensor) -> torch.Tensor:
        return x.exp().exp().exp().exp()

    for reentrant in (True, False):
        y = checkpoint(block, w, use_reentrant=reentrant)
        assert live(gpu) == 2 * KIB
        y.sum().backward()
        w.grad = None
        del y
        assert live(gpu) == KIB


def test_in_place_operations_make_no_bytes(gpu: Ledger) -> None:
    x = kib()
    x.add_(1).mul_(x).relu_().zero_().fill_(3).normal_().clamp_(0, 1)
    x[3] = 1
    x[:5] += 2
    torch.add(x, x, out=x)
    assert sizes(gpu) == [KIB]


def test_out_resizes_what_does_not_fit_and_leaves_what_does(gpu: Ledger) -> None:
    x, out = kib(), torch.empty(0, device="cuda")
    torch.add(x, 1, out=out)
    assert sizes(gpu) == [KIB, KIB]
    number = len(gpu.births)
    torch.mul(x, 2, out=out)
    assert len(gpu.births) == number


def test_resize_grows_the_storage_and_never_shrinks_it(gpu: Ledger) -> None:
    x = kib()
    x.resize_(1024)
    assert sizes(gpu) == [4 * KIB]
    assert peak(gpu) == 5 * KIB
    x.resize_(1)
    assert x.shape == (1,)
    assert sizes(gpu) == [4 * KIB]
    y = torch.rand(2, 3, device="cuda").t()
    assert y.resize_(3, 2).stride() == (1, 3)


def test_a_storage_resized_to_nothing_frees_its_bytes_and_comes_back(gpu: Ledger) -> None:
    x = kib(2)
    x.untyped_storage().resize_(0)
    assert live(gpu) == 0
    assert x.shape == (512,)
    x.untyped_storage().resize_(2 * KIB)
    assert live(gpu) == 2 * KIB
    assert (x + 1).shape == (512,)


def test_a_storage_says_whether_it_is_freed_and_taking_it_back_takes_bytes(gpu: Ledger) -> None:
    x = kib(2)
    for _ in range(2):
        if x.untyped_storage().size():
            x.untyped_storage().resize_(0)
        if x.untyped_storage().size() != x.nbytes:
            x.untyped_storage().resize_(x.nbytes)
    assert sizes(gpu) == [2 * KIB]
    assert [gpu.births[e].nbytes if e >= 0 else -gpu.births[~e].nbytes for e in gpu.events] == [
        *(2 * KIB, -2 * KIB),
        *(2 * KIB, -2 * KIB),
        2 * KIB,
    ]
    assert gpu.births[-1][1:3] == ((512,), torch.float32)


def test_a_tensor_that_outgrows_the_storage_it_is_set_to_lets_it_grow(gpu: Ledger) -> None:
    x, y = kib(1), kib(2)
    x.set_(y.untyped_storage(), 0, (1024,), (1,))
    assert sizes(gpu) == [4 * KIB]
    y.untyped_storage().resize_(0)
    y.resize_(16, 32)
    assert sizes(gpu) == [2 * KIB]


def test_set_moves_a_tensor_to_another_storage(gpu: Ledger) -> None:
    x, y = kib(1), kib(2)
    x.set_(y)
    assert sizes(gpu) == [2 * KIB]
    assert x.shape == (512,)
    assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    del y
    assert sizes(gpu) == [2 * KIB]


def test_assigning_data_moves_a_parameter_to_another_storage(gpu: Ledger) -> None:
    parameter = torch.nn.Parameter(kib(4))
    parameter.data = parameter.data.half()
    assert sizes(gpu) == [2 * KIB]
    assert parameter.dtype is torch.float16


def test_empty_tensors_make_no_event(gpu: Ledger) -> None:
    x = torch.empty(0, 5, device="cuda")
    y = torch.cat([x, x]) + 1
    z = y.sum(1)
    assert z.shape == (0,)
    assert not gpu.events


def test_bytes_are_those_of_the_storage_not_of_the_elements(gpu: Ledger) -> None:
    x = torch.empty_strided((4, 4), (8, 1), device="cuda")
    assert sizes(gpu) == [4 * (3 * 8 + 4)]
    y = torch.zeros(10, dtype=torch.complex64, device="cuda")
    z = torch.ones(3, dtype=torch.bool, device="cuda")
    assert sizes(gpu)[1:] == [80, 3]
    del x, y, z


def test_a_cycle_is_freed_by_the_collector_only(gpu: Ledger) -> None:
    import gc

    class Node:
        pass

    gc.disable()
    try:
        a, b = Node(), Node()
        a.other, b.other, a.x = b, a, kib()  # type: ignore[attr-defined]
        del a, b
        assert live(gpu) == KIB
        gc.collect()
        assert live(gpu) == 0
    finally:
        gc.enable()


def test_an_exception_that_is_kept_keeps_the_tensors_of_its_frames(gpu: Ledger) -> None:
    def fail() -> None:
        x = kib()
        raise ValueError(x.shape)

    try:
        fail()
    except ValueError as error:
        kept = error
        assert live(gpu) == KIB
        del kept, error
    assert live(gpu) == 0


def test_saved_tensor_hooks_decide_what_is_kept(gpu: Ledger) -> None:
    w = kib().requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = w.exp()
        z = y.exp()
    del y
    assert live(gpu) == 2 * KIB  # the weight and the last result; what was saved is on the host
    z.sum().backward()
    assert w.grad is not None
    assert w.grad.device.type == "cuda"


def test_a_custom_function_saves_what_it_says(gpu: Ledger) -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            assert type(x) is torch.Tensor
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    w = kib().requires_grad_()
    x = w + 1
    y = Square.apply(x)
    del x
    assert live(gpu) == 3 * KIB
    y.sum().backward()
    del y
    assert live(gpu) == 2 * KIB


def test_hooks_see_gradients_while_they_live(gpu: Ledger) -> None:
    seen: list[int] = []
    w = kib().requires_grad_()
    w.register_hook(lambda grad: seen.append(live(gpu)))
    (w.exp()).sum().backward()
    assert seen == [2 * KIB + 8]  # the weight, its gradient, the sum and the one that the backward starts from


_FIRST_BACKWARD = """
import torch
from torch.utils.checkpoint import checkpoint
from memlint.memory.devices import device_named
from memlint.cuda.session import virtual_device

def moved(x):
    (gradient,) = torch.autograd.grad(x.tanh().square().sum(), x, create_graph=True)
    return x - 0.1 * gradient

with virtual_device(device_named("DEVICE")):
    x = torch.ones(8, 32, device="cuda" if "DEVICE" != "cpu" else "cpu", requires_grad=True)
    checkpoint(moved, x * 1, use_reentrant=False).sum().backward()
    print(tuple(x.grad.shape))
"""


@pytest.mark.parametrize("device", ["a100-80gb", "cpu"])
def test_the_first_backward_of_a_process_may_be_inside_of_a_checkpoint(device: str) -> None:
    # In a process of its own: how autograd adds up gradients is measured once, before the first backward.
    text = _FIRST_BACKWARD.replace("DEVICE", device)
    ran = subprocess.run([sys.executable, "-c", text], check=False, capture_output=True, text=True)
    assert ran.stdout == "(8, 32)\n", ran.stderr
