"""Sparse kernels that PyTorch writes once for each device: the memory that CUDA allocates in them.

From aten/src/ATen/native/sparse/cuda/{SparseCUDATensor,SparseCUDATensorMath,SoftMax}.cu. The number of a result's
elements is exact if the indices are known, else an upper bound.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

from memlint.accelerator import state, values
from memlint.accelerator.device import allocate, contiguous, entry_of, is_virtual, real
from memlint.accelerator.sparse import (
    COMPRESSED,
    COO,
    ROW_COMPRESSED,
    become,
    compressed,
    coo,
    launched,
    parts_of,
    sparse_kernel,
)

Tensor = torch.Tensor
aten = torch.ops.aten
DispatchKey = torch._C.DispatchKey


def int64s(count: int) -> Tensor:
    """Make a new tensor of indices."""
    return allocate((count,), (1,), torch.int64)


def written(op: OpOverload, out: Tensor, *inputs: Tensor) -> Tensor:
    """Run a kernel that writes `out`, a strided tensor, and allocates nothing."""
    with launched(op, *inputs) as finish:
        values.forget(out)
        return finish(out)


def num_elements(x: Tensor) -> int:
    """Return the number of elements that a sparse tensor stores."""
    return parts_of(x)[1].shape[-1] if x.layout is not torch.sparse_coo else parts_of(x)[0].shape[1]


def pattern(x: Tensor) -> Tensor | None:
    """Return `x` with ones for values as a real CPU tensor, if its indices are known and small."""
    parts = [values.content(p) for p in parts_of(x)[:-1]]
    first, last = parts[0], parts[-1]
    if first is None or last is None or math.prod(parts_of(x)[-1].shape[1:]) != 1:
        return None
    ones = real.full(parts_of(x)[-1].shape, 1.0, dtype=torch.float64, device="cpu")
    if x.layout is torch.sparse_coo:
        return aten._sparse_coo_tensor_unsafe.default(first, ones, x.shape)  # type: ignore[no-any-return]
    make: Callable[..., Tensor] = aten._sparse_compressed_tensor_unsafe.default
    return make(first, last, ones, x.shape, dtype=ones.dtype, layout=x.layout)


def _flatten(indices: Tensor) -> None:
    """Make the one number per element that encodes its indices; this needs a product of the sizes."""
    if indices.shape[0] > 1:
        contiguous(indices.shape, torch.int64)


@sparse_kernel(COO, "_coalesce")
def _coalesce(x: Tensor) -> Tensor:
    indices, elements = parts_of(x)
    count = indices.shape[1]
    if count < 2:
        copy: Tensor = aten.clone.default(x)
        return aten._coalesced_.default(copy, True)  # type: ignore[no-any-return]
    known = values.content(indices)
    merged = _merge(x, known, values.content(elements))
    if merged is not None:
        nnz = merged._nnz()
    else:
        state.assume(f"coalesce() of a sparse tensor of shape {list(x.shape)} is taken to find no index twice")
        nnz = min(count, math.prod(x.shape[: indices.shape[0]]))  # at most as many different indices as exist
    with launched(aten._coalesce.default, x) as finish:
        _flatten(indices)
        flat, order, first = int64s(count), int64s(count), int64s(count)
        int64s(2 * count)  # thrust::sort_by_key with an order of its own is a merge sort: a second copy of both arrays
        new_values = contiguous((nnz, *elements.shape[1:]), elements.dtype)
        # With one sparse dimension the sorted numbers are the indices, in the storage of all of them.
        new_indices = contiguous((indices.shape[0], nnz), torch.int64) if indices.shape[0] > 1 else flat[None, :nnz]
        del flat, order, first
        if merged is not None:
            values.remember(new_indices, merged.indices())
            if values.content(elements) is not None:
                values.remember(new_values, merged.values())
        return finish(coo(new_indices, new_values, x.shape, coalesced=True))


def _merge(x: Tensor, indices: Tensor | None, elements: Tensor | None) -> Tensor | None:
    """Coalesce real values if the indices are known, with zeros for unknown values."""
    if indices is None:
        return None
    if elements is None:
        elements = real.full((), 0.0, dtype=parts_of(x)[1].dtype, device="cpu").expand(parts_of(x)[1].shape)
        elements = elements if elements.numel() <= values.MAX_SHADOW else elements.flatten(1)[:, :1]
    size = (*x.shape[: indices.shape[0]], *elements.shape[1:])
    return aten._sparse_coo_tensor_unsafe.default(indices, elements, size).coalesce()  # type: ignore[no-any-return]


def coalesced_form(x: Tensor) -> Tensor:
    """Return a COO tensor itself if it is coalesced, else a coalesced one."""
    return x if aten.is_coalesced.default(x) else _coalesce(x)


@sparse_kernel(COO, "add.out")
def _add(x: Tensor, y: Tensor, *, alpha: Any = 1, out: Tensor) -> Tensor:
    if y.layout is torch.strided:
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if x.shape != y.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(x.shape)} while other has "
            f"size {list(y.shape)} (FYI: op with sparse tensors does not support broadcasting)"
        )
    if x.layout is torch.strided:
        return _add_to_dense(x, y, out)
    if num_elements(y) == 0:
        return out if out is x else aten.copy_sparse_to_sparse_.default(out, x)
    dtype = torch.result_type(x, y)
    (x_indices, x_values), (y_indices, y_values) = parts_of(x), parts_of(y)
    x_values, y_values = x_values.to(dtype), y_values.to(dtype)
    if alpha != 1:
        y_values = aten.mul.Tensor(y_values, alpha)
    if num_elements(x) == 0:
        result = coo(y_indices.clone(), y_values.clone(), x.shape, coalesced=aten.is_coalesced.default(y))
    else:
        indices = aten.cat.default([x_indices, y_indices], 1)
        result = coo(indices, aten.cat.default([x_values, y_values], 0), x.shape, coalesced=False)
    if num_elements(result) > result.numel():
        result = _coalesce(result)
    return become(out, result)


def _add_to_dense(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    indices, elements = parts_of(y)
    before = 0 if entry_of(x).uniform == 0 else entry_of(x).nonzeros
    if out is not x:
        aten.resize_.default(out, x.shape)
        aten.copy_.default(out, x)
    if not elements.numel():
        return out
    with launched(aten.add.out, x, y) as finish:
        if not aten.is_coalesced.default(y):
            _flatten(indices)
        values.forget(out)
        finish(out)
    if before is not None and before + elements.numel() < out.numel():
        entry_of(out).nonzeros = before + elements.numel()
    return out


@sparse_kernel(COMPRESSED, "add.Tensor")
def _add_compressed(x: Tensor, y: Tensor, *, alpha: Any = 1) -> Any:
    if x.layout is torch.strided:
        return _add_compressed_out(x, y, out=contiguous(x.shape, torch.result_type(x, y)))
    known_x, known_y = pattern(x), pattern(y)
    if parts_of(x)[1].untyped_storage()._cdata == parts_of(y)[1].untyped_storage()._cdata:
        count = num_elements(x)
    elif known_x is not None and known_y is not None:
        count = (known_x + known_y)._nnz()
    else:
        state.assume(f"the sum of two sparse tensors of shape {list(x.shape)} is taken to have the elements of both")
        count = min(num_elements(x) + num_elements(y), x.numel())
    dtype = torch.result_type(x, y)
    with launched(aten.add.Tensor, x, y) as finish:
        return finish(compressed_of(x, x.shape, count, dtype))


@sparse_kernel(COMPRESSED, "add.out")
def _add_compressed_out(x: Tensor, y: Tensor, *, alpha: Any = 1, out: Tensor) -> Tensor:
    if x.layout is torch.strided:
        if out is not x:
            aten.resize_.default(out, x.shape)
            aten.copy_.default(out, x)
        return written(aten.add.out, out, x, y)
    return become(out, _add_compressed(x, y))


def compressed_of(like: Tensor, size: Sequence[int], count: int, dtype: torch.dtype) -> Tensor:
    """Make a new tensor of `count` elements in the layout of `like`."""
    first, second, elements = parts_of(like)
    by_rows = like.layout in ROW_COMPRESSED
    block = elements.shape[first.dim() :]
    lines = size[-2 if by_rows else -1] // (block[0 if by_rows else 1] if block else 1)
    batch = first.shape[:-1]
    shapes = (*batch, lines + 1), (*batch, count), (*batch, count, *block)
    dtypes = first.dtype, second.dtype, dtype
    return compressed(like.layout, [contiguous(s, d) for s, d in zip(shapes, dtypes, strict=True)], size)


def _recompressed(op: OpOverload, layout: torch.layout, x: Tensor, dense_dim: int | None = None) -> Tensor:
    """Compress `x` by the other dimension: its elements in another order."""
    first, second, elements = parts_of(x)
    if x.layout is layout:
        return x
    if x.layout not in (torch.sparse_csr, torch.sparse_csc):
        raise NotImplementedError(f"{op.name()} of a tensor of layout {x.layout} cannot be traced")
    known = pattern(x)
    lines = x.shape[-1 if layout is torch.sparse_csc else -2]
    with launched(op, x) as finish:
        parts = [contiguous((*first.shape[:-1], lines + 1), first.dtype)]
        parts += [contiguous(p.shape, p.dtype) for p in (second, elements)]
        int64s(2 * second.numel())  # the order of its elements, and the memory that sorts them
        if known is not None:
            ordered = known.to_sparse_csc() if layout is torch.sparse_csc else known.to_sparse_csr()
            for part, value in zip(parts[:2], parts_of(ordered)[:2], strict=True):
                values.remember(part, value)
        return finish(compressed(layout, parts, x.shape))


sparse_kernel(COMPRESSED, "_to_sparse_csr")(partial(_recompressed, aten._to_sparse_csr.default, torch.sparse_csr))
sparse_kernel(COMPRESSED, "_to_sparse_csc")(partial(_recompressed, aten._to_sparse_csc.default, torch.sparse_csc))


@sparse_kernel(COO, "mul.out")
def _mul(x: Any, y: Any, *, out: Tensor) -> Tensor:
    sparse = all(isinstance(t, Tensor) and t.layout is torch.sparse_coo for t in (x, y))
    if not sparse or x.dim() == 0 or y.dim() == 0:
        return aten.mul.out._op_dk(DispatchKey.SparseCPU, x, y, out=out)  # type: ignore[no-any-return]
    x, y = coalesced_form(x), coalesced_form(y)
    known_x, known_y = pattern(x), pattern(y)
    if known_x is not None and known_y is not None:
        count = (known_x * known_y)._nnz()
    else:
        state.assume(f"the product of two sparse tensors of shape {list(x.shape)} has all elements of the emptier one")
        count = min(num_elements(x), num_elements(y))
    indices, elements = parts_of(x)
    dtype = torch.result_type(x, y)
    with launched(aten.mul.out, x, y) as finish:
        # CUDA searches the shorter in the longer and makes the result at the size of the shorter, then narrows it.
        new_indices = contiguous((indices.shape[0], min(num_elements(x), num_elements(y))), torch.int64)
        new_values = contiguous((min(num_elements(x), num_elements(y)), *elements.shape[1:]), dtype)
        product = finish(coo(new_indices[:, :count], new_values[:count], x.shape, coalesced=True))
    del new_indices, new_values
    return become(out, product)


@sparse_kernel(COO, "sparse_mask")
def _sparse_mask(x: Tensor, mask: Tensor) -> Tensor:
    if x.layout is torch.strided:
        return aten.sparse_mask.default._op_dk(DispatchKey.SparseCPU, x, mask)  # type: ignore[no-any-return]
    x = coalesced_form(x)
    indices, elements = parts_of(mask)
    chosen = parts_of(x)[1].dtype
    with launched(aten.sparse_mask.default, x, mask) as finish:
        copied = contiguous(indices.shape, torch.int64)
        return finish(
            coo(copied, contiguous(elements.shape, chosen), x.shape, coalesced=aten.is_coalesced.default(mask))
        )


def _softmax(x: Tensor, dim: int) -> Tensor:
    indices, elements = parts_of(x)
    count = indices.shape[1]
    copied, result = contiguous(indices.shape, torch.int64), contiguous(elements.shape, elements.dtype)
    if dim % x.dim() < indices.shape[0]:
        # Elements are sorted by the other dimensions; every pool of them has its size, offset and greatest value.
        int64s(4 * count)
    return coo(copied, result, x.shape, coalesced=True)


@sparse_kernel(COO, "_sparse_softmax", "_sparse_log_softmax")
def _sparse_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    x = coalesced_form(x)
    with launched(aten._sparse_softmax.default, x) as finish:
        return finish(_softmax(x, dim))


@sparse_kernel(COO, "_sparse_softmax_backward_data", "_sparse_log_softmax_backward_data")
def _sparse_softmax_backward(grad: Tensor, output: Tensor, dim: int, x: Tensor) -> Tensor:
    grad, output = coalesced_form(grad), coalesced_form(output)
    with launched(aten._sparse_softmax_backward_data.default, grad, output) as finish:
        return finish(_softmax(output, dim))


@sparse_kernel(COO, "_sparse_sum_backward")
def _sparse_sum_backward(grad: Tensor, x: Tensor, dims: Sequence[int]) -> Tensor:
    x = coalesced_form(x)
    if grad.layout is torch.sparse_coo:
        grad = coalesced_form(grad)
    indices, elements = parts_of(x)
    dtype = parts_of(grad)[-1].dtype
    with launched(aten._sparse_sum_backward.default, grad, x) as finish:
        new_values, new_indices = contiguous(elements.shape, dtype), contiguous(indices.shape, torch.int64)
        return finish(coo(new_indices, new_values, x.shape, coalesced=aten.is_coalesced.default(x)))


@sparse_kernel(COO, "index_select")
def _index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    dim %= x.dim()
    indices, elements = parts_of(x)
    size = (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :])
    count = num_elements(x)
    if dim < indices.shape[0]:
        known, chosen = pattern(x), values.content(index) if is_virtual(index) else index
        if known is not None and chosen is not None:
            count = aten.index_select.default(known, dim, chosen)._nnz()
        else:
            text = f"index_select() on a sparse tensor of shape {list(x.shape)} is taken to keep every element once"
            state.assume(text)
    with launched(aten.index_select.default, x, index) as finish:
        of_element = elements.shape[1:] if dim < indices.shape[0] else size[indices.shape[0] :]
        new_indices = contiguous((indices.shape[0], count), torch.int64)
        return finish(coo(new_indices, contiguous((count, *of_element), elements.dtype), size, coalesced=False))
