"""User code runs as it would on hardware: no dispatch mode, no tensor subclass, no thread of autograd's own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger


def assert_undisturbed(*tensors: torch.Tensor) -> None:
    assert not _get_current_dispatch_mode_stack()
    assert not _get_current_function_mode_stack()
    assert not torch._C._is_torch_function_mode_enabled()
    for tensor in tensors:
        assert type(tensor) in (torch.Tensor, torch.nn.Parameter)
        assert not torch.overrides.is_tensor_like(tensor) or isinstance(tensor, torch.Tensor)


class Watching(torch.autograd.Function):
    threads: ClassVar[list[int]] = []

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        assert_undisturbed(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        assert_undisturbed(grad)
        Watching.threads.append(threading.get_ident())
        return grad


class Watched:
    def setup(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        assert_undisturbed(*self.model.parameters())

    def step(self) -> None:
        y = self.model(torch.rand(2, 4, device="cuda"))
        assert_undisturbed(y)
        Watching.apply(y).sum().backward()
        self.optimizer.step()
        assert_undisturbed(*(p.grad for p in self.model.parameters() if p.grad is not None))
        self.optimizer.zero_grad()


def test_no_mode_and_no_subclass_while_a_program_is_traced() -> None:
    Watching.threads.clear()
    trace_program(Watched(), device_named("a100-80gb"))
    assert Watching.threads == [threading.get_ident()] * 2


def test_a_users_own_dispatch_mode_works(gpu: Ledger) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    x = torch.rand(3, device="cuda")
    with Counting():
        y = (x + 1).relu()
    assert seen == ["aten.add.Tensor", "aten.relu.default"]
    assert y.device.type == "cuda"


def test_a_users_own_function_mode_works(gpu: Ledger) -> None:
    from torch.overrides import TorchFunctionMode

    seen: list[str] = []

    class Counting(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    x = torch.rand(3, device="cuda")
    with Counting():
        torch.relu(x + 1)
    assert seen == ["add", "relu"]


def test_tensor_subclasses_of_the_user_keep_their_type(gpu: Ledger) -> None:
    class Named(torch.Tensor):
        pass

    x = torch.rand(3, device="cuda").as_subclass(Named)
    y = x + 1
    assert type(y) is Named
    assert y.device.type == "cuda"
