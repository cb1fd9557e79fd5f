"""torch_scatter 2.1.2: reductions over groups of rows, each of PyTorch's ops and one kernel that takes nothing.

csrc/scatter.cpp, segment_csr.cpp, segment_coo.cpp and what they call in csrc/cuda; torch_scatter/scatter.py and
composite/softmax.py. What lies on the host has its values.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import Library, launch
from memlint_libraries.groups import (
    CHOOSING,
    at_positions,
    broadcast,
    divided,
    first,
    gathered_on_host,
    number_of,
    reduced_on_host,
    resized,
    segment_of_each,
    trailing,
)

Tensor = torch.Tensor
library = Library("torch_scatter", distribution="torch-scatter", version="2.1.2")


def _kernel(read: tuple[Tensor, ...], written: tuple[Tensor, ...]) -> None:
    library.assume()
    launch(read, written)


def _reduced(source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int, reduce: str) -> tuple[Tensor, ...]:
    """Return what `scatter_cuda` and its like return: the reduction, and for `min` and `max` also the positions."""
    source = source.contiguous()
    made = out.contiguous() if out is not None else source.new_empty(resized(source.shape, dim, size))
    positions = (torch.full_like(made, source.size(dim), dtype=index.dtype),) if reduce in CHOOSING else ()
    _kernel((source, index), (made, *positions))
    if out is None and positions:
        made.masked_fill_(made == 0, 0)
    return made, *positions


class _Scattered(torch.autograd.Function):
    """`mul` saves its input, the index and the output, `min` and `max` the index and the positions."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int, reduce: str) -> Any:
        results = _reduced(source, index, dim, out, size, reduce)
        ctx.dim, ctx.shape, ctx.reduce = dim, source.shape, reduce
        ctx.save_for_backward(*((source, index, results[0]) if reduce == "mul" else (index, results[1])))
        if out is not None:
            ctx.mark_dirty(out)
        ctx.mark_non_differentiable(*results[1:])
        return results

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        if ctx.reduce == "mul":
            source, index, out = ctx.saved_tensors
            made = torch.gather(grad * out, ctx.dim, index).div_(source)
            made.masked_fill_(made.isnan(), 0)
        else:
            made = at_positions(grad, ctx.saved_tensors[1], ctx.shape, ctx.dim)
        return made, *(None,) * 5


class _Segments(torch.autograd.Function):
    """Rows of each segment: saves where segments begin, or the index of each row, and what `_reduced` gives beside."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor, out: Tensor | None, size: int, reduce: str, kind: str) -> Any:
        ctx.dim, ctx.shape, ctx.reduce, ctx.kind = index.dim() - 1, source.shape, reduce, kind
        common = index.dim() - (kind == "csr")  # of CSR the last dimension counts segments
        index = index.expand(source.shape[:common] + index.shape[common:])
        results = _reduced(source, index, ctx.dim, out, size, reduce)
        if kind == "coo" and reduce == "mean":
            count = source.new_zeros((*index.shape[:-1], results[0].size(ctx.dim)))
            _kernel((index,), (count,))
            count.masked_fill_(count < 1, 1)
            divided(results[0], trailing(count, source))
            results = (*results, count)
        ctx.save_for_backward(index, *results[1:])
        if out is not None:
            ctx.mark_dirty(out)
        given = results if reduce in CHOOSING else results[:1]
        ctx.mark_non_differentiable(*given[1:])
        return given

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        index, *more = ctx.saved_tensors
        if ctx.reduce in CHOOSING:
            return at_positions(grad, more[0], ctx.shape, ctx.dim), *(None,) * 5
        made = grad.new_empty(ctx.shape)
        grad = grad.contiguous()
        _kernel((grad, index), (made,))
        if ctx.reduce == "mean":
            count = more[0] if more else (index[..., 1:] - index[..., :-1]).to(made)
            counts = count.new_empty((*count.shape[:-1], ctx.shape[ctx.dim]))
            _kernel((count, index), (counts,))
            made.true_divide_(trailing(counts, grad))
        return made, *(None,) * 5


class _Gathered(torch.autograd.Function):
    """A row for each of the segment; backward sums."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor, out: Tensor | None, size: int, kind: str) -> Any:
        dim = index.dim() - 1
        source = source.contiguous()
        made = out if out is not None else source.new_empty(resized(source.shape, dim, size))
        _kernel((source, index), (made,))
        ctx.shape, ctx.kind = source.shape, kind
        ctx.save_for_backward(index)
        if out is not None:
            ctx.mark_dirty(out)
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (index,) = ctx.saved_tensors
        make = grad.new_empty if ctx.kind == "csr" else grad.new_zeros
        made = make(ctx.shape)
        _kernel((grad.contiguous(), index), (made,))
        return made, *(None,) * 4


def _scattered(reduce: str, *names: str) -> None:
    def function(
        src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
    ) -> Any:
        dim = dim + src.dim() if dim < 0 else dim
        index = broadcast(index, src, dim)
        size = out.size(dim) if out is not None else number_of(index, dim_size)
        if not is_virtual(src):
            return reduced_on_host(src, index, dim, out, size, reduce)
        results = _Scattered.apply(src, index, dim, out, size, reduce)  # type: ignore[no-untyped-call]
        return results if reduce in CHOOSING else results[0]

    _enter(function, *names)


def _segments(reduce: str, *names: str) -> None:
    def csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Any:
        if not is_virtual(src) and out is not None:
            results = csr(src, indptr)
            return (out.copy_(results[0]), results[1]) if isinstance(results, tuple) else out.copy_(results)
        return _apply(src, indptr, out, max(indptr.size(-1) - 1, 0), "csr")

    def coo(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Any:
        dim = index.dim() - 1
        size = out.size(dim) if out is not None else number_of(index[..., -1:], dim_size)
        return _apply(src, index, out, size, "coo")

    def _apply(src: Tensor, index: Tensor, out: Tensor | None, size: int, kind: str) -> Any:
        if not is_virtual(src):
            return reduced_on_host(src, segment_of_each(index, kind, src.shape), index.dim() - 1, out, size, reduce)
        results = _Segments.apply(src, index, out, size, reduce, kind)  # type: ignore[no-untyped-call]
        return results if reduce in CHOOSING else results[0]

    _enter(csr, *(f"{name}_csr" for name in names))
    _enter(coo, *(f"{name}_coo" for name in names))


def _enter(function: Callable[..., Any], *names: str) -> None:
    for name in names:
        library.modules.setdefault("torch_scatter", {})[name] = function


_scattered("mul", "scatter_mul")
_scattered("min", "scatter_min")
_scattered("max", "scatter_max")
_segments("sum", "segment_sum", "segment_add")
_segments("mean", "segment_mean")
_segments("min", "segment_min")
_segments("max", "segment_max")
_module = library.modules["torch_scatter"]
_provided = library.provides("torch_scatter")


@_provided
def scatter_sum(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """PyTorch's own `scatter_add_`."""
    index = broadcast(index, src, dim)
    if out is None:
        out = src.new_zeros(resized(src.shape, dim, number_of(index, dim_size)))
    return out.scatter_add_(dim, index, src)


@_provided
def scatter_mean(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
) -> Tensor:
    """The sum, divided by the sum of ones."""
    out = scatter_sum(src, index, dim, out, dim_size)
    index_dim = min(dim + src.dim() if dim < 0 else dim, index.dim() - 1)
    ones = torch.ones(index.size(), dtype=src.dtype, device=src.device)
    count = scatter_sum(ones, index, index_dim, None, out.size(dim))
    count[count < 1] = 1
    return divided(out, broadcast(count, out, dim))


@_provided
def scatter(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    reduce: str = "sum",
) -> Any:  # fmt: skip
    """One of the others, by name."""
    return first(_module[f"scatter_{'sum' if reduce == 'add' else reduce}"](src, index, dim, out, dim_size))


@_provided
def segment_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum") -> Any:
    """One of the others, by name."""
    return first(_module[f"segment_{reduce}_csr"](src, indptr, out))


@_provided
def segment_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None, reduce: str = "sum"
) -> Any:
    """One of the others, by name."""
    return first(_module[f"segment_{reduce}_coo"](src, index, out, dim_size))


@_provided
def gather_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Any:
    """A row for each of a segment; how many there are, the library reads from the GPU."""
    last = int(indptr.flatten()[-1]) if out is None and indptr.numel() else 0
    return gathered(src, indptr, last if out is None else out.size(indptr.dim() - 1), out)


def gathered(source: Tensor, indptr: Tensor, size: int, out: Tensor | None = None) -> Any:
    """`gather_csr` of so many rows in all."""
    if not is_virtual(source):
        return gathered_on_host(source, indptr, out, size, "csr")
    return _Gathered.apply(source, indptr, out, size, "csr")  # type: ignore[no-untyped-call]


@_provided
def gather_coo(src: Tensor, index: Tensor, out: Tensor | None = None) -> Any:
    """A row for each of the index."""
    if not is_virtual(src):
        return gathered_on_host(src, index, out, index.size(-1), "coo")
    return _Gathered.apply(src, index, out, index.size(-1), "coo")  # type: ignore[no-untyped-call]


def _centered(src: Tensor, index: Tensor, dim: int, dim_size: int | None) -> Any:
    """Less the largest of each group."""
    return src - _module["scatter_max"](src, index, dim, None, dim_size)[0].gather(dim, index)


@_provided
def scatter_softmax(src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None) -> Any:
    """The softmax of each group, of the functions above."""
    index = broadcast(index, src, dim)
    centered = _centered(src, index, dim, dim_size)
    exponentials = centered.exp_()
    sums = scatter_sum(exponentials, index, dim, None, dim_size)
    return exponentials.div(sums.gather(dim, index))


@_provided
def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, eps: float = 1e-12, dim_size: int | None = None
) -> Any:
    """Its logarithm."""
    index = broadcast(index, src, dim)
    centered = _centered(src, index, dim, dim_size)
    sums = scatter_sum(centered.exp(), index, dim, None, dim_size)
    return centered.sub_(sums.add_(eps).log_().gather(dim, index))


@_provided
def scatter_logsumexp(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    eps: float = 1e-12,
) -> Any:  # fmt: skip
    """The logarithm of the sum of exponentials; groups of nothing keep what `out` had, or have zero."""
    index = broadcast(index, src, dim)
    size = number_of(index, dim_size) if out is None else out.size(dim)
    most = src.new_full(resized(src.shape, dim, size), -torch.inf)
    _module["scatter_max"](src, index, dim, most, size)
    centered = src - most.gather(dim, index)
    centered.masked_fill_(centered.isnan(), -torch.inf)
    before = None if out is None else out.clone()
    out = None if out is None else out.sub_(most).exp_()
    out = scatter_sum(centered.exp_(), index, dim, out, size).add_(eps).log_().add_(most)
    if before is None:
        return out.nan_to_num_(neginf=0.0)
    mask = ~out.isfinite()
    out[mask] = before[mask]
    return out


@_provided
def scatter_std(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    unbiased: bool = True,
) -> Any:  # fmt: skip
    """The standard deviation of each group."""
    size = dim_size if out is None else out.size(dim)
    dim = dim + src.dim() if dim < 0 else dim
    ones = torch.ones(index.size(), dtype=src.dtype, device=src.device)
    count = scatter_sum(ones, index, min(dim, index.dim() - 1), None, size)
    index = broadcast(index, src, dim)
    total = scatter_sum(src, index, dim, None, size)
    count = broadcast(count, total, dim).clamp(1)
    spread = src - total.div(count).gather(dim, index)
    spread = spread * spread
    out = scatter_sum(spread, index, dim, out, size)
    count = count.sub(1).clamp_(1) if unbiased else count
    return out.div(count + 1e-6).sqrt()


_enter(scatter_sum, "scatter_add")
