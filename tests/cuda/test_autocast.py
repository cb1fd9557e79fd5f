"""`torch.autocast("cuda")`: result types against the lists PyTorch tests its own autocast with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from memlint.cuda import autocast as autocast_module
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

pytest.importorskip("expecttest")  # PyTorch's test lists import it
with patch("torch.backends.disable_global_flags"):  # it forbids the tests that follow to set flags
    from torch.testing._internal.autocast_test_lists import AutocastTestLists

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.accelerator.ledger import Ledger

HALVES = [torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def gpu() -> Iterator[Ledger]:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


_LISTS = (
    "torch_fp16",
    "torch_fp32",
    "torch_need_autocast_promote",
    "nn_fp16",
    "nn_fp32",
    "methods_fp16",
    "methods_fp32",
    "torch_expect_builtin_promote",
    "methods_expect_builtin_promote",
)
_NOT_ON_GPU = {
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "equal",
    "einsum",
}
"""Never called by a program, giving no tensor, or listed with operands that do not fit."""


def _cases() -> list[tuple[str, int, str]]:
    lists = AutocastTestLists("cpu")
    return [
        (name, index, case[0])
        for name in _LISTS
        for index, case in enumerate(getattr(lists, name))
        if case[0] not in _NOT_ON_GPU
    ]


def _call(list_name: str, index: int) -> tuple[Any, ...]:
    case = getattr(AutocastTestLists(torch.device("cuda")), list_name)[index]
    name, args = case[0], case[1]
    rest = case[2] if len(case) > 2 else None
    kwargs = rest if isinstance(rest, dict) else {}
    promised = rest if isinstance(rest, torch.dtype) else None
    owner: Any = torch._C._nn if list_name.startswith("nn_") else torch
    if list_name.startswith("methods"):
        return lambda: getattr(args[0], name)(*args[1:], **kwargs), args, promised
    return lambda: getattr(owner, name)(*args, **kwargs), args, promised


def _dtype(result: Any) -> torch.dtype:
    while isinstance(result, (list, tuple)):
        result = result[0]
    found: torch.dtype = result.dtype
    return found


@pytest.mark.parametrize(("list_name", "index", "name"), _cases())
def test_result_types_are_those_of_cuda(list_name: str, index: int, name: str) -> None:
    call, args, promised = _call(list_name, index)
    with torch.autocast("cuda", dtype=torch.float16):
        found = _dtype(call())
    expected = {"fp16": torch.float16, "fp32": torch.float32}.get(list_name.rpartition("_")[2], promised)
    if expected is None:  # the widest of the operands
        floats = [a.dtype for a in _flatten(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
        expected = torch.float32 if torch.float32 in floats else torch.float16
    assert found is expected


def _flatten(value: Any) -> list[Any]:
    return [x for v in value for x in _flatten(v)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("half", HALVES)
def test_the_dtype_is_the_one_asked_for(half: torch.dtype) -> None:
    x, w = torch.rand(4, 4, device="cuda"), torch.rand(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=half):
        assert (x @ w).dtype is half
        assert F.linear(x, w).dtype is half
        assert torch.einsum("ij,jk->ik", x, w).dtype is half
        assert (x @ w).softmax(-1).dtype is torch.float32
        assert torch.relu(x @ w).dtype is half
        assert (x + x @ w).dtype is torch.float32
        assert torch.cat([x, x @ w]).dtype is torch.float32
        assert F.layer_norm(x @ w, (4,)).dtype is torch.float32
        assert F.cross_entropy(x @ w, torch.zeros(4, dtype=torch.int64, device="cuda")).dtype is torch.float32
        assert (x.double() @ w.double()).dtype is torch.float64
        assert torch.arange(3, device="cuda").sum().dtype is torch.int64
    assert (x @ w).dtype is torch.float32


def test_half_is_the_default() -> None:
    x = torch.rand(4, 4, device="cuda")
    for context in (torch.autocast("cuda"), torch.autocast(device_type="cuda"), torch.amp.autocast("cuda")):
        with context:
            assert (x @ x).dtype is torch.float16
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") is torch.float16
    assert not torch.is_autocast_enabled("cuda")
    with pytest.warns(FutureWarning), torch.cuda.amp.autocast():
        assert (x @ x).dtype is torch.float16


def test_autocast_nests_and_switches_off() -> None:
    x = torch.rand(4, 4, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype is torch.float32
            with torch.autocast("cuda", dtype=torch.float16):
                assert (x @ x).dtype is torch.float16
        assert (x @ x).dtype is torch.bfloat16


def test_autocast_decorates() -> None:
    @torch.autocast("cuda", dtype=torch.bfloat16)
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    assert product(torch.rand(4, 4, device="cuda")).dtype is torch.bfloat16


def test_host_tensors_are_not_cast() -> None:
    small, big = torch.rand(4, 4), torch.rand(1024, 1024)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (small @ small).dtype is torch.float32
        assert (big @ big).dtype is torch.float32


def test_weights_are_cast_once_and_kept_until_autocast_ends(gpu: Ledger) -> None:
    model = nn.Linear(256, 256, bias=False).cuda()
    x = torch.rand(2, 256, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        model(x)
        casts = [b for b in gpu.births if b.nbytes == 2 * 256 * 256]
        assert len(casts) == 1
        model(x)
        assert len([b for b in gpu.births if b.nbytes == 2 * 256 * 256]) == 1
        assert _alive(gpu, 2 * 256 * 256) == 1
    assert _alive(gpu, 2 * 256 * 256) == 0


def test_casts_of_leaves_that_are_gone_are_kept_until_autocast_ends(gpu: Ledger) -> None:
    model = nn.Linear(256, 2, bias=False).cuda()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):  # else the cast's graph keeps the leaf
        addresses: list[int] = []
        while len(addresses) == len(set(addresses)):  # until one is at the address of another
            x = torch.rand(64, 256, device="cuda", requires_grad=True)
            addresses.append(id(x))
            model(x)
            del x
            assert len(addresses) < 10_000
        assert _alive(gpu, 2 * 64 * 256) == len(addresses)
    assert _alive(gpu, 2 * 64 * 256) == 0


def _alive(ledger: Ledger, nbytes: int) -> int:
    numbers = [e for e in ledger.events if e >= 0]
    return sum(ledger.births[n].nbytes == nbytes and ~n not in ledger.events for n in numbers)


def test_weights_are_cast_anew_without_a_cache(gpu: Ledger) -> None:
    model = nn.Linear(256, 256, bias=False).cuda()
    x = torch.rand(2, 256, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        model(x)
        model(x)
    assert len([b for b in gpu.births if b.nbytes == 2 * 256 * 256]) == 2


def test_a_cast_weight_that_autograd_saved_outlives_autocast(gpu: Ledger) -> None:
    model = nn.Linear(256, 256, bias=False).cuda()
    x = torch.rand(2, 256, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = model(x)
    assert _alive(gpu, 2 * 256 * 256) == 1
    del y
    assert _alive(gpu, 2 * 256 * 256) == 0


def test_gradients_of_weights_are_float32() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.rand(2, 8, device="cuda")).float().sum()
    loss.backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


def test_the_cache_is_of_no_other_session() -> None:
    assert not autocast_module._cache


def test_binary_cross_entropy_is_refused() -> None:
    x = torch.rand(4, device="cuda")
    with torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(x, x)


def test_custom_functions_choose_their_dtype() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert x.dtype is torch.float32
            assert not torch.is_autocast_enabled("cuda")
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            assert not torch.is_autocast_enabled("cuda")
            return grad @ x

    x = torch.rand(4, 4, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Product.apply(x)
    assert y.dtype is torch.float32
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.dtype is torch.float16


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_under_autocast(gpu: Ledger, reentrant: bool) -> None:
    layer = nn.Linear(64, 64).cuda()
    seen: list[torch.dtype] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = layer(x)
        seen.append(y.dtype)
        return layer(y)

    x = torch.rand(2, 64, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = checkpoint(block, x, use_reentrant=reentrant).float().sum()
    loss.backward()
    assert seen == [torch.bfloat16] * 2
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is torch.float32


def test_a_scaler_takes_every_step() -> None:
    model = nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[int] = []
    step = optimizer.step
    optimizer.step = lambda *a, **k: (steps.append(1), step(*a, **k))  # type: ignore[method-assign, assignment]
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0, growth_interval=2)
    scales = [scaler.get_scale()]
    for _ in range(4):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.rand(2, 8, device="cuda")).float().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    assert len(steps) == 4
    assert scales == [1024, 1024, 2048, 2048, 4096]


def test_autocast_is_off_after_the_device_is_gone() -> None:
    assert not torch.is_autocast_enabled("cuda")
    assert not torch.is_autocast_enabled("vgpu")
