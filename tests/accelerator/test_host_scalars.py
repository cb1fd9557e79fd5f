"""A 0-dim tensor of the host meets tensors of the GPU, as CUDA lets it wherever TensorIterator does."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import torch

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCALARS = {
    "float32": lambda: torch.tensor(2.0),
    "float64": lambda: torch.tensor(2.0, dtype=torch.float64),
    "int64": lambda: torch.tensor(2),
    "bool": lambda: torch.tensor(True),
    "number": lambda: 2.0,
}
EXPRESSIONS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "scalar * x": lambda scalar, x: scalar * x,
    "x * scalar": lambda scalar, x: x * scalar,
    "scalar + x": lambda scalar, x: scalar + x,
    "scalar - x": lambda scalar, x: scalar - x if getattr(scalar, "dtype", None) is not torch.bool else x,
    "scalar / x": lambda scalar, x: scalar / x,
    "scalar > x": lambda scalar, x: scalar > x,
    "scalar == x": lambda scalar, x: scalar == x,
    "scalar ** x": lambda scalar, x: scalar**x,
    "maximum": lambda scalar, x: torch.maximum(torch.as_tensor(scalar), x),
    "clamp": lambda scalar, x: x.clamp(min=scalar),
    "masked_fill": lambda scalar, x: x.masked_fill(x > 0, scalar) if x.is_floating_point() else x,
    "where": lambda scalar, x: torch.where(x > 0, scalar, x),
    "lerp": lambda scalar, x: torch.lerp(x, x, scalar) if getattr(scalar, "dtype", x.dtype) is x.dtype else x,
    "addcmul": lambda scalar, x: torch.addcmul(torch.as_tensor(scalar), x, x),
}


@pytest.fixture
def gpu() -> Iterator[None]:
    with virtual_device(device_named("a100-80gb")):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32], ids=str)
@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_results_have_shape_and_dtype_of_the_same_on_the_host(name, kind, dtype):
    scalar, expression = SCALARS[kind](), EXPRESSIONS[name]
    try:
        real = expression(scalar, torch.ones(4, 3, dtype=dtype))
    except RuntimeError:
        pytest.skip("PyTorch refuses it on the host too")
    with virtual_device(device_named("a100-80gb")):
        simulated = expression(scalar, torch.ones(4, 3, dtype=dtype, device="cuda"))
        assert (simulated.shape, simulated.dtype, simulated.device.type) == (real.shape, real.dtype, "cuda")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_number_that_was_on_the_gpu_goes_back_to_where_the_other_operand_is(name):
    scalar = torch.arange(3.0, device="cuda").cpu()[2]
    assert EXPRESSIONS[name](scalar, torch.ones(4, 3, device="cuda")).device.type == "cuda"


@pytest.mark.usefixtures("gpu")
def test_a_loss_meter_adds_up_on_the_host():
    total = torch.tensor(0.0)
    total += torch.randn(8, device="cuda").sum().detach().cpu()
    assert total.device.type == "cpu"


@pytest.mark.usefixtures("gpu")
def test_a_gradient_flows_through_a_product_with_a_host_scalar():
    layer = torch.nn.Linear(4, 4, device="cuda")
    (torch.tensor(2.0) * layer(torch.randn(2, 4, device="cuda"))).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.shape == (4, 4)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("name", ["logical_and", "complex", "mse_loss"])
def test_what_cuda_refuses_is_refused_in_its_words(name):
    x = torch.randn(4, 4, device="cuda")
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    scalar = torch.tensor(2.0)
    with pytest.raises(RuntimeError, match="same device"):
        function(scalar.expand(4, 4) if name == "mse_loss" else scalar, x)


UNTRACED = {"histogram", "torch._scaled_mm", "torch._scaled_mm_v2"}
"""Ops that cannot be traced whatever their operands are."""
REFUSED_IN_OTHER_WORDS = {
    "nn.functional.batch_norm",
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "inner",
    "take_along_dim",
}
"""Ops that refuse a scalar for what they are given, before they look at its device or in words of their own."""


def _positions(value: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if isinstance(value, torch.Tensor):
        yield place
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _positions(item, (*place, index))


def _mapped(value: Any, function: Callable[[torch.Tensor, tuple[int, ...]], Any], place: tuple[int, ...] = ()) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value, place)
    if isinstance(value, list | tuple):
        return [_mapped(item, function, (*place, index)) for index, item in enumerate(value)]
    return value


def _samples() -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """Some operands and options for every op in OpInfo's database."""
    with patch("torch.backends.disable_global_flags"):  # it forbids the tests that follow to set flags
        from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        if op.dtypes:
            dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
            with contextlib.suppress(AssertionError, RuntimeError, ImportError):  # ops of other builds of PyTorch
                samples = itertools.islice(op.sample_inputs("cpu", dtype), 4)
                yield from ((op, [sample.input, *sample.args], sample.kwargs) for sample in samples)


def _scalar_at(operands: list[Any], place: tuple[int, ...]) -> torch.Tensor | None:
    for index in place:
        operands = operands[index]
    tensor: Any = operands
    return tensor.detach().reshape(-1)[0].clone() if tensor.layout is torch.strided and tensor.numel() else None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_each_operand_of_every_op_may_be_a_host_scalar_or_is_refused_as_on_a_gpu():
    """What the CPU takes with one operand replaced by a 0-dim tensor must run, or name two devices.

    Of 1,057 such calls 426, of 98 ops, ended in "Attempting to copy from device cpu to device meta" when it was written.
    """
    pytest.importorskip("expecttest", reason="OpInfo's database needs it")
    failures, num_run = [], 0
    for op, operands, options in _samples():
        places = list(_positions(operands))
        for place in places if len(places) > 1 else []:
            scalar = _scalar_at(operands, place)
            try:
                op.op(*_mapped(operands, lambda t, p, at=place, s=scalar: s if p == at else t.clone()), **options)
            except Exception:  # not taken on the host either
                continue
            num_run += 1
            with virtual_device(device_named("a100-80gb")):
                try:
                    moved = _mapped(operands, lambda t, p, at=place, s=scalar: s if p == at else t.detach().to("cuda"))
                    there = {k: v.to("cuda") if isinstance(v, torch.Tensor) else v for k, v in options.items()}
                    op.op(*moved, **there)
                except Exception as error:
                    if "same device" not in str(error) and op.name not in UNTRACED | REFUSED_IN_OTHER_WORDS:
                        failures.append(f"{op.name} {place}: {type(error).__name__}: {error}")
    assert num_run > 1000
    assert failures == []


@pytest.mark.parametrize("number", [0x80000000, -1, 1 << 40])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_numbers_that_a_dtype_does_not_hold_wrap(number, dtype):
    def result(device):
        return torch.full((2,), 7, dtype=dtype, device=device) & number

    real = result("cpu")
    with virtual_device(device_named("a100-80gb")):
        assert result("cuda").tolist() == real.tolist()
