"""pyg_lib 0.9.0: reductions over groups of rows, and rows of their groups.

pyg_lib/ops/__init__.py:353 and scatter_reduce.py; csrc/ops/autograd/scatter_kernel.cpp, segment_coo_kernel.cpp and
segment_csr_kernel.cpp; csrc/ops/cuda/scatter_kernel.cu:79, :190, :357, :542, segment_coo_kernel.cu:183, :373, :772,
:1129, :1362, segment_csr_kernel.cu:206, :334, :521, :810, :1082. They are those of torch_scatter, written anew: kernels
copy an index that is expanded to the shape of their input. What lies on the host has its values.
"""

from collections.abc import Callable
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import launch
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
from memlint_libraries.pyg_lib.checks import check, host_alone, library

Tensor = torch.Tensor
_module = library.modules["pyg_lib.ops"]
_provides = library.provides("pyg_lib.ops")
_START = {"sum": 0, "mean": 0, "mul": 1, "min": 0, "max": 0}


def _reduced(
    source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None, reduce: str, kind: str
) -> tuple[Tensor, ...]:
    """Return what the kernels return: the reduction, and for `min` and `max` also the positions."""
    check(source.device == index.device, "src and index must be on the same device")
    if not is_virtual(source):
        return _on_host(source, index, dim, out, size, reduce, kind)
    library.assume()
    source, index = source.contiguous(), index.contiguous()
    if out is None:
        size = number_of(index if kind == "scatter" else index[..., -1:], size)
        made = source.new_full(resized(source.shape, dim, size), _START[reduce])
    else:
        made = out.contiguous()
    positions = [made.new_full(made.shape, source.size(dim), dtype=torch.int64)] if reduce in CHOOSING else []
    launch((source, index), (made, *positions))
    if reduce == "mean":
        divided(made, trailing(_counted(index, dim, made, kind), made))
    if positions and out is None:
        made.masked_fill_(positions[0] == source.size(dim), 0)
    return made, *positions


def _counted(index: Tensor, dim: int, made: Tensor, kind: str) -> Tensor:
    """How many rows each segment has, and one where it has none."""
    if kind == "csr":
        count = index.diff().to(made.dtype)
        return count.masked_fill_(count == 0, 1)
    count = index.new_zeros(resized(index.shape, dim, made.size(dim)))
    launch((index,), (count,))
    return count.clamp_min_(1)


def _on_host(
    source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None, reduce: str, kind: str
) -> tuple[Tensor, ...]:
    groups = index if kind == "scatter" else segment_of_each(index, kind, source.shape)
    size = number_of(groups, size) if out is None else out.size(dim)
    if reduce == "mean":
        made = reduced_on_host(source, groups, dim, out, size, "sum")
        count = reduced_on_host(torch.ones_like(source), groups, dim, None, size, "sum")
        return (divided(made, trailing(count.clamp_(1), made)),)
    results = reduced_on_host(source, groups, dim, out, size, reduce)
    made, *positions = results if isinstance(results, tuple) else (results,)
    return made if out is None else out, *positions


class _Scattered(torch.autograd.Function):
    """A sum saves the index, a product its input and output as well, a mean its counts, `min` and `max` positions."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, index: Tensor, dim: int, out: Tensor | None, size: int | None, reduce: str
    ) -> Any:
        ctx.dim, ctx.shape, ctx.reduce = dim, source.shape, reduce
        whole = broadcast(index, source, dim)
        results: tuple[Tensor, ...]
        if reduce == "mean":
            (made,) = _reduced(source, whole, dim, out, size, "sum", "scatter")
            ones = torch.ones(index.shape, dtype=source.dtype, device=source.device)
            (count,) = _reduced(ones, index, min(dim, index.dim() - 1), None, made.size(dim), "sum", "scatter")
            count.masked_fill_(count < 1, 1)
            count = broadcast(count, made, dim)
            divided(made, trailing(count, made))
            results = (made,)
            ctx.save_for_backward(whole, count)
        else:
            results = _reduced(source, whole, dim, out, size, reduce, "scatter")
            positions = results[1:]
            ctx.save_for_backward(*positions or ((source, whole, results[0]) if reduce == "mul" else (whole,)))
            ctx.mark_non_differentiable(*positions)
        if out is not None:
            ctx.mark_dirty(out)
        return results

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        saved = ctx.saved_tensors
        if ctx.reduce in CHOOSING:
            made = at_positions(grad, saved[0], ctx.shape, ctx.dim)
        elif ctx.reduce == "mul":
            source, index, out = saved
            rows = (grad * out).gather(ctx.dim, index)
            made = torch.where(source != 0, rows / source, torch.zeros_like(source))
        elif ctx.reduce == "mean":
            index, count = saved
            counts = count.gather(ctx.dim, index)
            made = grad.gather(ctx.dim, index).true_divide_(counts)
        else:
            made = grad.gather(ctx.dim, saved[0])
        return made, *(None,) * 5


class _Segmented(torch.autograd.Function):
    """Saves the index; of `coo` a mean, `min` and `max` save it as wide as the input has groups, a mean its counts."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, index: Tensor, out: Tensor | None, size: int | None, reduce: str, kind: str
    ) -> Any:
        dim = index.dim() - 1
        check(source.dim() >= index.dim() > 0, "src.dim() must be >= that of the index, which has a dimension")
        ctx.dim, ctx.shape, ctx.reduce, ctx.kind = dim, source.shape, reduce, kind
        common = index.dim() - (kind == "csr")  # of CSR the last dimension counts segments
        whole = index.expand(source.shape[:common] + index.shape[common:])
        kept = whole.contiguous() if kind == "coo" and reduce != "sum" else index
        made, *more = _reduced(source, whole, dim, out, size, reduce, kind)
        ctx.mark_non_differentiable(*more)
        counts = []
        if kind == "coo" and reduce == "mean":
            ones = torch.ones(kept.shape, dtype=made.dtype, device=made.device)
            counts = [*_reduced(ones, kept, dim, None, made.size(dim), "sum", kind)]
        ctx.save_for_backward(kept, *more, *counts)
        if out is not None:
            ctx.mark_dirty(out)
        return made, *more

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        index, *more = ctx.saved_tensors
        if ctx.reduce in CHOOSING:
            return at_positions(grad, more[0], ctx.shape, ctx.dim), *(None,) * 5
        if ctx.kind == "coo" and ctx.reduce == "sum":
            return _gathered(grad, index, None, index.size(-1), "coo"), *(None,) * 5
        made = grad.new_empty(ctx.shape)
        if made.numel() or ctx.reduce == "sum":
            made = _gathered(grad, index, made, made.size(ctx.dim), ctx.kind)
        if made.numel() and ctx.reduce == "mean":
            count = more[0] if more else (index[..., 1:] - index[..., :-1]).to(made.dtype)
            count = _gathered(count, index, None, made.size(ctx.dim), ctx.kind)
            made.true_divide_(trailing(count, made))
        return made, *(None,) * 5


class _Gathered(torch.autograd.Function):
    """A row for each of the segment, saves the index; backward sums into zeros."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, index: Tensor, out: Tensor | None, size: int, kind: str) -> Any:
        ctx.shape, ctx.kind = source.shape, kind
        ctx.save_for_backward(index)
        if out is not None:
            ctx.mark_dirty(out)
        check(source.device == index.device, "src and index must be on the same device")
        dim = index.dim() - 1
        check(
            kind == "coo" or source.size(dim) in {0, index.size(-1) - 1},
            "gather_csr: src has a row for each segment of indptr",
        )
        if not is_virtual(source):
            return gathered_on_host(source, index, out, size, kind)
        library.assume()
        source, index = source.contiguous(), index.expand(*source.shape[:dim], index.shape[-1]).contiguous()
        made = source.new_empty(resized(source.shape, dim, size)) if out is None else out.contiguous()
        launch((source, index), (made,))
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (index,) = ctx.saved_tensors
        return _segmented(grad, index, grad.new_zeros(ctx.shape), None, "sum", ctx.kind), *(None,) * 4


def _gathered(source: Tensor, index: Tensor, out: Tensor | None, size: int, kind: str) -> Tensor:
    return _Gathered.apply(source, index, out, size, kind)  # type: ignore[no-any-return, no-untyped-call]


def _segmented(source: Tensor, index: Tensor, out: Tensor | None, size: int | None, reduce: str, kind: str) -> Any:
    results = _Segmented.apply(source, index, out, size, reduce, kind)  # type: ignore[no-untyped-call]
    return results if reduce in CHOOSING else results[0]


def _enter(function: Callable[..., Any], *names: str) -> None:
    for name in names:
        _module[name] = function


def _reducing(reduce: str, *names: str) -> None:
    """Enter the three functions of a reduction; a product is one of `scatter` alone."""

    def scattered(
        src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None
    ) -> Any:
        dim = dim + src.dim() if dim < 0 else dim
        results = _Scattered.apply(src, index, dim, out, dim_size, reduce)  # type: ignore[no-untyped-call]
        return results if reduce in CHOOSING else results[0]

    def by_index(src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None) -> Any:
        return _segmented(src, index, out, dim_size, reduce, "coo")

    def by_ends(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Any:
        return _segmented(src, indptr, out, max(indptr.size(-1) - 1, 0), reduce, "csr")

    _enter(scattered, *(f"scatter_{name}" for name in names))
    if reduce != "mul":
        _enter(by_index, *(f"segment_{name}_coo" for name in names))
        _enter(by_ends, *(f"segment_{name}_csr" for name in names))


_reducing("sum", "sum", "add")
for _name in ("mul", "mean", "min", "max"):
    _reducing(_name, _name)


@_provides
def gather_coo(src: Tensor, index: Tensor, out: Tensor | None = None) -> Tensor:
    """A row for each of the index."""
    return _gathered(src, index, out, index.size(-1), "coo")


@_provides
def gather_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None) -> Tensor:
    """A row for each of a segment; how many there are, the library reads from the GPU."""
    last = int(indptr.flatten()[-1]) if out is None and src.numel() else 0
    return _gathered(src, indptr, out, last if out is None else out.size(indptr.dim() - 1), "csr")


def _named(name: str, reduce: str) -> Callable[..., Any]:
    """The function of a reduction. Raises ValueError where there is none of its name."""
    function = _module.get(name)
    if function is None:
        raise ValueError(f"Unknown reduce: {reduce!r}")
    return function  # type: ignore[no-any-return]


@_provides
def scatter(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    reduce: str = "sum",
) -> Any:  # fmt: skip
    """One of the others, by name."""
    return first(_named(f"scatter_{reduce}", reduce)(src, index, dim, out, dim_size))


@_provides
def segment_coo(
    src: Tensor, index: Tensor, out: Tensor | None = None, dim_size: int | None = None, reduce: str = "sum"
) -> Any:
    """One of the others, by name."""
    return first(_named(f"segment_{reduce}_coo", reduce)(src, index, out, dim_size))


@_provides
def segment_csr(src: Tensor, indptr: Tensor, out: Tensor | None = None, reduce: str = "sum") -> Any:
    """One of the others, by name."""
    return first(_named(f"segment_{reduce}_csr", reduce)(src, indptr, out))


def _floating(function: str, src: Tensor) -> None:
    if not src.is_floating_point():
        raise ValueError(f"{function} requires a floating-point src tensor (got {src.dtype})")


def _largest_of_each(src: Tensor, index: Tensor, dim: int, dim_size: int | None) -> Any:
    return _module["scatter_max"](src, index, dim, dim_size=dim_size)[0].gather(dim, broadcast(index, src, dim))


@_provides
def scatter_softmax(src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None) -> Any:
    """The softmax of each group, of the functions above (`ops/__init__.py:838`)."""
    _floating("scatter_softmax", src)
    most = _largest_of_each(src, index, dim, dim_size)
    exponentials = (src - most).exp()
    sums = _module["scatter_sum"](exponentials, index, dim, dim_size=dim_size)
    sum_of_each = sums.gather(dim, broadcast(index, src, dim))
    return exponentials / sum_of_each


@_provides
def scatter_log_softmax(
    src: Tensor, index: Tensor, dim: int = -1, dim_size: int | None = None, eps: float = 1e-12
) -> Any:
    """Its logarithm (:858)."""
    _floating("scatter_log_softmax", src)
    most = _largest_of_each(src, index, dim, dim_size)
    centered = src - most
    sums = _module["scatter_sum"](centered.exp(), index, dim, dim_size=dim_size)
    sum_of_each = sums.gather(dim, broadcast(index, src, dim))
    return centered - torch.log(sum_of_each + eps)


@_provides
def scatter_std(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    unbiased: bool = True,
) -> Any:  # fmt: skip
    """The standard deviation of each group; it counts each element of the input (:879)."""
    _floating("scatter_std", src)
    dim_size = dim_size if out is None else out.size(dim)
    scatter_sum = _module["scatter_sum"]
    index = broadcast(index, src, dim)
    ones = torch.ones_like(src)
    count = scatter_sum(ones, index, dim, dim_size=dim_size)
    total = scatter_sum(src, index, dim, dim_size=dim_size)
    at_least_one = count.clamp(min=1)
    mean = total / at_least_one
    spread = src - mean.gather(dim, index)
    spread = spread * spread
    result = scatter_sum(spread, index, dim, out, dim_size)
    result = result / ((count - 1).clamp(min=1) if unbiased else at_least_one)
    return result.sqrt()


@_provides
def scatter_logsumexp(
    src: Tensor, index: Tensor, dim: int = -1, out: Tensor | None = None, dim_size: int | None = None,
    eps: float = 1e-12,
) -> Any:  # fmt: skip
    """The logarithm of the sum of exponentials; groups of nothing keep what `out` had, or have zero (:920)."""
    _floating("scatter_logsumexp", src)
    size = number_of(index, dim_size) if out is None else out.size(dim)
    most = src.new_full(resized(src.shape, dim, size), -torch.inf)
    _module["scatter_max"](src, index, dim, most, size)
    most_of_each = most.gather(dim, broadcast(index, src, dim))
    centered = src - most_of_each
    centered = torch.where(torch.isnan(centered), torch.full_like(centered, -torch.inf), centered)
    sums = _module["scatter_sum"](centered.exp(), index, dim, dim_size=size)
    result = most + (sums + eps).log()
    if out is None:
        return result.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    before = out.clone()
    nothing = ~torch.isfinite(result)
    return out.copy_(torch.where(nothing, before, result))


@_provides
def softmax_csr(src: Tensor, ptr: Tensor, dim: int = 0) -> Tensor:
    """The softmax of each segment. On a GPU it has no kernel (csrc/ops/cpu/softmax_kernel.cpp:250)."""
    check(src.is_contiguous() and ptr.is_contiguous(), "src and ptr must be contiguous")
    host_alone("softmax_csr", src, ptr)
    return _Softmax.apply(src, ptr, dim + src.dim() if dim < 0 else dim)  # type: ignore[no-any-return, no-untyped-call]


class _Softmax(torch.autograd.Function):
    """Saves its input, its output and where segments begin (autograd/softmax_kernel.cpp:12)."""

    @staticmethod
    def forward(ctx: Any, src: Tensor, ptr: Tensor, dim: int) -> Tensor:
        groups = _groups(ptr, src, dim)
        most = reduced_on_host(src, groups, dim, None, ptr.numel() - 1, "max")[0]
        exponentials = (src - most.gather(dim, groups)).exp_()
        sums = reduced_on_host(exponentials, groups, dim, None, ptr.numel() - 1, "sum")
        out: Tensor = exponentials.div_(sums.gather(dim, groups))
        ctx.dim = dim
        ctx.save_for_backward(src, out, ptr)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        _src, out, ptr = ctx.saved_tensors
        groups = _groups(ptr, out, ctx.dim)
        sums = reduced_on_host(out * grad, groups, ctx.dim, None, ptr.numel() - 1, "sum")
        return out * (grad - sums.gather(ctx.dim, groups)), None, None


def _groups(ptr: Tensor, like: Tensor, dim: int) -> Tensor:
    return broadcast(torch.repeat_interleave(ptr.diff(), output_size=like.size(dim)), like, dim)


@library.provides("pyg_lib.ops.scatter_reduce")
def fused_scatter_reduce(inputs: Tensor, index: Tensor, dim_size: int, reduce_list: list[str]) -> Tensor:
    """Several reductions of rows side by side, by a kernel of Triton without a gradient (scatter_reduce.py:95)."""
    check(inputs.is_cuda and index.is_cuda, "inputs and index must be CUDA tensors")
    library.assume()
    width = inputs.size(1)
    out = inputs.new_empty(dim_size, len(reduce_list) * width)
    launch((inputs, index), (out,))
    for reduce in ("mean", "min", "max"):
        if reduce not in reduce_list:
            continue
        place = reduce_list.index(reduce)
        part = out[:, place * width : (place + 1) * width]
        if reduce == "mean":
            degree = inputs.new_zeros(dim_size)
            degree.scatter_add_(0, index, inputs.new_ones(index.numel()))
            degree.clamp_(min=1.0)
            part /= degree.view(-1, 1)
        else:
            part.masked_fill_(part == torch.inf, 0)
    return out
