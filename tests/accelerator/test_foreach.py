"""Kernels over lists: one position of each kind stands for all, and PyTorch's meta tensors say what comes out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

from memlint.accelerator import backend
from memlint.accelerator.inference import distinct_positions, infer
from memlint.accelerator.kernel import kernel_of

aten: Any = torch.ops.aten
assert backend


def tensors(dtype: torch.dtype = torch.float32, shapes: tuple[tuple[int, ...], ...] = ((3, 4), (5,))) -> list[Any]:
    """Eight, in turn of each shape, the last one transposed."""
    made = [torch.empty(shapes[index % len(shapes)], dtype=dtype, device="meta") for index in range(7)]
    return [*made, torch.empty(4, 3, dtype=dtype, device="meta").t()]


CALLS = {
    "one list and a number": (aten._foreach_mul.Scalar, (tensors(), 0.5)),
    "integers and a float": (aten._foreach_add.Scalar, (tensors(torch.int64), 0.5)),
    "two lists": (aten._foreach_add.List, (tensors(), tensors(torch.bfloat16))),
    "two lists that differ in order": (aten._foreach_mul.List, (tensors(), [*tensors()[:7], tensors()[0]])),
    "a list that spreads": (aten._foreach_sub.List, (tensors(), tensors(shapes=((4,), (1,))))),
    "numbers of two kinds": (aten._foreach_add.ScalarList, (tensors(torch.int64), [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5])),
    "norms": (aten._foreach_norm.Scalar, (tensors(torch.bfloat16), 2)),
    "written": (aten._foreach_lerp_.Scalar, (tensors(), tensors(), 0.1)),
    "written by three": (aten._foreach_addcdiv_.ScalarList, (tensors(), tensors(), tensors(), [0.1] * 8)),
    "a number for all in a tensor": (aten._foreach_mul.Tensor, (tensors(), torch.tensor(2.0))),
    "numbers in tensors of the host": (aten._foreach_mul.List, (tensors(torch.int64), [torch.tensor(0.5)] * 8)),
}


@pytest.mark.parametrize("name", CALLS)
def test_geometries_are_those_pytorch_gives(name: str) -> None:
    op, args = CALLS[name]
    kernel = kernel_of(op)
    inferred = infer(kernel, args, {})
    result: Any = op(*args)
    expected = [list(args[index]) for index, _ in kernel.written] if kernel.written else result
    shown = tree_map(lambda shape: (shape.shape, shape.stride, shape.dtype), inferred)
    assert shown == tree_map(lambda tensor: (tuple(tensor.shape), tensor.stride(), tensor.dtype), expected)


def test_each_kind_of_position_is_kept_once() -> None:
    distinct = distinct_positions((tensors(), [0.1] * 8), {})
    assert distinct is not None
    assert [len(values) for values in distinct.args] == [3, 3]
    assert distinct.kinds == [0, 1, 0, 1, 0, 1, 0, 2]


def test_lists_that_do_not_fit_together_fail_as_they_do_in_pytorch() -> None:
    op = aten._foreach_add.List
    with pytest.raises(RuntimeError) as expected:
        op(tensors(), tensors(shapes=((7,),)))
    with pytest.raises(RuntimeError) as found:
        infer(kernel_of(op), (tensors(), tensors(shapes=((7,),))), {})
    assert str(found.value) == str(expected.value)
