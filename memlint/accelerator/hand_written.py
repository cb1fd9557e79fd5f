"""Kernels whose shapes PyTorch's meta kernels do not give.

The shape of a result that depends on values is exact if these are known, else the upper bound, noted as an assumption.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.branches import is_counted_to_raise
from memlint.accelerator.device import (
    META_KEYS,
    NAME,
    allocate,
    contiguous,
    entry_of,
    like,
    on_host,
    real_device_of,
    set_geometry,
    set_storage,
    strides,
)
from memlint.accelerator.dispatch import run
from memlint.accelerator.inference import infer_anew, materialize
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.private import OpOverload, schema_of, suggest_memory_format
from memlint.accelerator.ranges import largest, largest_index
from memlint.accelerator.registration import KEY, composite, implement, kernel, overload
from memlint.accelerator.routing import count_true

aten = torch.ops.aten
Tensor = torch.Tensor
MATRIX = 2
"""Number of dimensions of a matrix."""
_GRU_WORKSPACE = 5
"""Numbers per hidden unit that the fused cell keeps (aten/src/ATen/native/cuda/RNN.cu)."""


@kernel("_local_scalar_dense")
def _local_scalar_dense(x: Tensor) -> Any:
    ledger = state.current.ledger
    ledger.synchronize(ledger.stream)
    return values.read_scalar(x)


@kernel("equal")
def _equal(a: Tensor, b: Tensor) -> bool:
    known_a, known_b = values.content(a), values.content(b)
    if known_a is not None and known_b is not None:
        return torch.equal(known_a, known_b)
    state.assume("two tensors compared with torch.equal are taken as different")
    return False


@kernel("nonzero")
def _nonzero(x: Tensor) -> Tensor:
    count = count_true(x, "nonzero()")
    # CUDA writes the indices one dimension after the other.
    out = allocate((count, x.dim()), (1, max(count, 1)), torch.int64)
    known = values.content(x)
    if known is not None:
        values.remember(out, torch.nonzero(known))
    return out


@kernel("masked_select")
def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    numel = math.prod(torch.broadcast_shapes(x.shape, mask.shape))
    repeats = numel // max(mask.numel(), 1)
    count = count_true(mask, "masked_select()") * repeats
    if repeats > 1 and mask.numel() in state.current.unknown_sizes:
        state.take_as_upper_bound(count, state.current.unknown_sizes[mask.numel()])
    return allocate((count,), (1,), x.dtype)


def index_with_masks(indices: list[Tensor | None]) -> list[Tensor | None]:
    """Replace boolean masks by the index tensors that CUDA makes of them."""
    expanded: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            positions = aten.nonzero(index)
            expanded.extend(positions.select(1, d) for d in range(index.dim()))
        else:
            expanded.append(index)
    return expanded


@kernel("index.Tensor")
def _index(x: Tensor, indices: list[Tensor | None]) -> Any:
    place = state.current.of_thread.last_host
    indices = index_with_masks(indices)
    state.current.of_thread.last_host = place  # the result is where `x` is, wherever the masks are
    return materialize(infer_anew(kernel_of(aten.index.Tensor), (x, indices), {}))


def _register_unique(op: Any, *, dimension: int | None = None) -> None:
    """Register the kernel of an op of unique()'s family; `dimension` is the position of the argument of that name."""
    names = [argument.name for argument in schema_of(op).arguments]

    def is_made(name: str, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        on_gpu = state.current.cuda and not entry_of(x).host and dimension is None
        if not on_gpu and schema_of(op).name != "aten::unique_consecutive":
            return True  # the others sort, and hold as many numbers meanwhile
        if name not in names:
            return False
        position = names.index(name) - 1
        return bool(args[position] if position < len(args) else kwargs.get(name, False))

    def unique(x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        known = values.content(x)
        if known is not None:
            results = op(known, *args, **kwargs)
            tensors = tuple(allocate(r.shape, r.stride(), r.dtype) for r in results)
            for t, value in zip(tensors, results, strict=True):
                values.remember(t, value)
            return tensors
        dim = None if dimension is None else args[dimension - 1] if len(args) >= dimension else kwargs.get("dim")
        most = None if dim is not None else largest(x)
        count = x.shape[dim] if dim is not None else x.numel() if most is None else min(x.numel(), most + 1)
        share = 1.0 if x.is_floating_point() else 0.5
        kept = "every element" if share == 1 else "half of its elements" if most is None else f"{count} elements"
        if is_counted_to_raise():
            count, most, kept = min(count, 1), 1, "one element"
        state.assume(f"unique() of a tensor of shape {list(x.shape)} is taken to keep {kept}, and at most all")
        of_elements = tuple(x.shape) if dim is None else (count,)
        inverse = contiguous(of_elements if is_made("return_inverse", x, args, kwargs) else (0,), torch.int64)
        entry_of(inverse).largest = count - 1
        state.take_as_upper_bound(count, share if most is None else 1.0)
        out = contiguous((count,) if dim is None else tuple(x.shape), x.dtype)
        if len(schema_of(op).returns) == 2:
            return out, inverse
        return out, inverse, contiguous((count if is_made("return_counts", x, args, kwargs) else 0,), torch.int64)

    kernel(schema_of(op).name.removeprefix("aten::"))(unique)


_register_unique(aten._unique.default)
_register_unique(aten._unique2.default)
_register_unique(aten.unique_dim.default, dimension=1)
_register_unique(aten.unique_dim_consecutive.default, dimension=1)
_register_unique(aten.unique_consecutive.default, dimension=3)


@kernel("repeat_interleave.Tensor")
def _repeat_interleave(repeats: Tensor, output_size: int | None = None) -> Tensor:
    known = values.content(repeats)
    if output_size is None:
        if known is not None:
            output_size = int(known.sum())
        else:
            total = entry_of(repeats).total
            times = largest(repeats)
            output_size = total if total is not None else repeats.numel() * (1 if times is None else times)
            state.assume(f"repeat_interleave() with unknown counts is taken to give {output_size} elements")
    return allocate((output_size,), (1,), repeats.dtype)


@kernel("_padded_dense_to_jagged_forward")
def _padded_to_jagged(x: Tensor, offsets: list[Tensor], total: int | None = None) -> Tensor:
    """Return the steps that a nested tensor has out of a padded tensor (batch x steps x ...)."""
    if total is None:
        known = values.content(offsets[0])
        if known is None:
            state.assume("a nested tensor of a padded one, of lengths that are not known, is taken to keep every step")
        total = int(known[-1]) if known is not None else x.shape[0] * x.shape[1]
    return contiguous((total, *x.shape[2:]), x.dtype)


@kernel("bincount")
def _bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    known, most = values.content(x), largest_index(x)
    if most is None and x.numel():
        state.assume("bincount() of unknown values is taken to need only minlength bins")
    elif known is None and x.numel():
        state.assume(f"bincount() of unknown values is taken to need a bin for each up to the largest, {most}")
    size = max(0 if most is None or not x.numel() else most + 1, minlength)
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype in (torch.float32, torch.float64):
        dtype = weights.dtype  # SummaryOps.cpp
    out = allocate((size,), (1,), dtype)
    if known is not None and weights is None:
        values.remember(out, torch.bincount(known, minlength=minlength))
    return out


@kernel("resize_")
def _resize(x: Tensor, size: list[int], memory_format: torch.memory_format | None = None) -> Tensor:
    if memory_format is None and tuple(size) == x.shape:
        return x  # with the strides of the target
    set_storage(
        x, x.untyped_storage(), x.storage_offset(), size, strides(size, memory_format or torch.contiguous_format)
    )
    return x


@kernel("_copy_from")
def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    if real_device_of(target).type != NAME:
        target.detach().copy_(values.real_copy(source))
    return target


@kernel("_copy_from_and_resize")
def _copy_from_and_resize(source: Tensor, target: Tensor) -> Tensor:
    return target


@kernel("im2col", "col2im")
def _resized_from_input(x: Tensor, *rest: Any) -> Tensor:
    """Allocate as much as the input, then resize the result (Im2Col.cpp, Col2Im.cpp and .cu): storages never shrink."""
    op = aten.col2im.default if len(rest) == 5 else aten.im2col.default
    shape: Any = infer_anew(kernel_of(op), (x, *rest), {})
    out = like(x)
    set_storage(out, out.untyped_storage(), 0, shape.shape, shape.stride)
    return out


@kernel("max_unpool2d", "max_unpool3d")
def _max_unpool(x: Tensor, indices: Tensor, output_size: list[int], *_: Any) -> Tensor:
    shape = (*x.shape[: -len(output_size)], *output_size)
    return allocate(shape, strides(shape, suggest_memory_format(x)), x.dtype)


@kernel("_efficientzerotensor")
def _zeros_without_memory(size: list[int], dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    """Make the zero tensor without memory that autograd uses for zero gradients (TensorFactories.cpp)."""
    out = contiguous((0,), dtype or torch.get_default_dtype())
    set_geometry(META_KEYS, out, out.untyped_storage(), 0, size, strides(size))
    return out


@kernel("histogram.bin_ct", "histogram.bins_tensor")
def _histogram(x: Tensor, bins: int | Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    _refuse_gpu("histogram", x)
    edges = bins.numel() if isinstance(bins, Tensor) else bins + 1
    return contiguous((edges - 1,), x.dtype), contiguous((edges,), x.dtype)


@kernel("_histogramdd_bin_edges")
def _bin_edges(x: Tensor, bins: Sequence[int], **_: Any) -> list[Tensor]:
    _refuse_gpu("_histogramdd_bin_edges", x)
    return [contiguous((n + 1,), x.dtype) for n in bins]


@kernel("_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors")
def _histogram_of_rows(x: Tensor, bins: Sequence[Any], **_: Any) -> Tensor:
    """Count rows in bins, with a thread's counts and edges of bins: twice if they are computed (Histogram.cpp.

    Measured).
    """
    _refuse_gpu("_histogramdd_from_bin_cts", x)
    sizes = [n.numel() - 1 if isinstance(n, Tensor) else n for n in bins]
    out = contiguous(sizes, x.dtype)
    edges = sum(n + 1 for n in sizes) * (1 if isinstance(bins[0], Tensor) else 2)
    meanwhile = contiguous((out.numel() + edges,), x.dtype)
    del meanwhile
    return out


def _refuse_gpu(packet: str, x: Tensor) -> None:
    """Raise PyTorch's error for an op without a CUDA kernel."""
    if state.current.cuda and not entry_of(x).host:
        raise NotImplementedError(f"Could not run 'aten::{packet}' with arguments from the 'CUDA' backend.")


@kernel("linalg_lstsq")
def _lstsq(
    a: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Solution, in the storage of a copy of `b`, residuals, rank and singular values (BatchLinearAlgebra.cpp)."""
    *batch, rows, columns = a.shape
    is_vector = b.dim() == a.dim() - 1
    right = () if is_vector else b.shape[-1:]
    solution = contiguous((*batch, *right, max(rows, columns)), a.dtype)[..., :columns]
    solution = solution if is_vector else solution.mT
    has_residuals = rows > columns and driver != "gelsy"
    residuals = contiguous((*batch, *right) if has_residuals else (0,), a.dtype)
    rank = contiguous(tuple(batch) if driver != "gels" and not state.current.cuda else (0,), torch.int64)
    has_values = driver in ("gelsd", "gelss")
    return solution, residuals, rank, contiguous((*batch, min(rows, columns)) if has_values else (0,), a.dtype)


def _roll(x: Tensor, shifts: list[int], dims: list[int] = ()) -> Tensor:  # type: ignore[assignment]
    """Roll with one kernel for each dimension (TensorTransformations.cpp: roll_common)."""
    if len(shifts) == len(dims) == 1:
        rolled: Tensor = run(kernel_of(aten.roll.default), (x, shifts, dims), {})
        return rolled
    if not dims:
        return aten.roll(x.contiguous().view(-1), shifts, [0]).view(x.shape)  # type: ignore[no-any-return]
    return aten.roll(aten.roll(x, shifts[:1], dims[:1]), shifts[1:], dims[1:])  # type: ignore[no-any-return]


implement(aten.roll.default, KEY, _roll)


@composite("cov")
def _cov(x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Any:
    """Covariance: PyTorch reads the weights to refuse negative ones; unknown ones pass (Correlation.cpp)."""
    weights = [w for w in (fweights, aweights) if w is not None]
    if all(values.content(w) is not None for w in weights):
        return aten.cov.default.decompose(x, correction=correction, fweights=fweights, aweights=aweights)
    state.assume("weights of observations that are not known are taken as positive")
    rows = x.view(1, -1) if x.dim() < MATRIX else x
    weight = math.prod(weights[1:], start=weights[0])
    for w in weights:
        w.min().ge(0)
    total = weight.sum()
    average = (rows * weight).sum(1) / total
    factor = total - correction
    if aweights is not None and correction != 0:
        factor = total - correction * (weight * aweights).sum() / total
    rows = rows - average.unsqueeze(1)
    return (rows @ (rows * weight).t().conj()).true_divide(factor).squeeze()


@composite("tensor_split.tensor_indices_or_sections")
def _tensor_split(x: Tensor, sections: Tensor, dim: int = 0) -> Any:
    """Split at indices, which PyTorch wants on the host and reads."""
    if real_device_of(sections).type == NAME and not entry_of(sections).host and state.current.cuda:
        raise RuntimeError("tensor_split expected tensor_indices_or_sections to be on cpu, but it's on cuda:0")
    known = values.real_copy(sections)
    return x.tensor_split(known.tolist() if known.dim() else int(known), dim)


def _with_window(op: OpOverload, x: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Fourier transforms of windows: PyTorch wants window and signal on one device, and of the host there are two."""
    if real_device_of(x).type == NAME and entry_of(x).host:
        args, kwargs = tuple(map(on_host, args)), {name: on_host(value) for name, value in kwargs.items()}
    return op.decompose(x, *args, **kwargs)


for _name in ("stft", "stft.center", "istft"):
    composite(_name)(functools.partial(_with_window, overload(_name)))


@kernel("multinomial")
def _multinomial(x: Tensor, num_samples: int, *_: Any, **__: Any) -> Tensor:
    return contiguous((*x.shape[:-1], num_samples), torch.int64)


@kernel("set_.source_Storage_storage_offset")
def _set(x: Tensor, storage: torch.UntypedStorage, offset: Any, size: Any, stride: Any = ()) -> Tensor:
    set_storage(x, storage, offset, size, stride)
    return x


@kernel("set_.source_Tensor")
def _set_tensor(x: Tensor, source: Tensor) -> Tensor:
    return _set(x, source.untyped_storage(), source.storage_offset(), source.shape, source.stride())


@kernel("set_.source_Storage")
def _set_storage(x: Tensor, storage: Any) -> Tensor:
    return _set(x, storage, 0, (storage.entry.nbytes // x.element_size(),), (1,))


@kernel("set_")
def _set_empty(x: Tensor) -> Tensor:
    return _set(x, allocate((0,), (1,), x.dtype).untyped_storage(), 0, (0,), (1,))


@kernel("_ctc_loss", "_ctc_loss.Tensor")
def _ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, *_: Any) -> Any:
    steps, batch = log_probs.shape[:2]
    if isinstance(target_lengths, Tensor):
        known = values.content(target_lengths)
        longest = int(known.max()) if known is not None else targets.shape[-1]
    else:
        longest = max(target_lengths, default=0)
    # LossCTC.cu keeps alpha over every step and state for the backward.
    alpha = contiguous((batch, steps, 2 * longest + 1), log_probs.dtype)
    return contiguous((batch,), log_probs.dtype), alpha


@kernel("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def _ctc_loss_backward(grad: Tensor, log_probs: Tensor, *rest: Any) -> Tensor:
    alpha = rest[4]
    beta = allocate(alpha.shape, alpha.stride(), alpha.dtype)
    grad_input = like(log_probs)
    del beta
    return grad_input


@kernel(
    "_logcumsumexp",
    "binomial",
    "_sample_dirichlet",
    "_masked_softmax",
    "_standard_gamma",  # the last has a meta kernel from torch 2.13 on
    "batch_norm_elemt",
)
def _like_first(x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@kernel("_standard_gamma_grad", "_dirichlet_grad", "_masked_softmax_backward")
def _like_gradient(grad: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(grad)


@kernel(
    "multi_margin_loss_backward", "multilabel_margin_loss_backward", "fractional_max_pool3d_backward",
    "batch_norm_backward_elemt",
)  # fmt: skip
def _like_input(grad: Tensor, x: Tensor, *_: Any, **__: Any) -> Tensor:
    return like(x)


@kernel("_cummax_helper", "_cummin_helper")
def _writes_outputs(*_: Any) -> None:
    """Resize the two given outputs to their shape."""


@kernel(
    "fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)  # fmt: skip
def _fake_quantize(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return like(x), like(x, torch.bool)


@kernel("geqrf")
def _geqrf(x: Tensor) -> tuple[Tensor, Tensor]:
    *batch, rows, columns = x.shape
    factors = contiguous((*batch, columns, rows), x.dtype).mT
    return factors, contiguous((*batch, min(rows, columns)), x.dtype)


@kernel(
    "_fused_sgd_", "_fused_sgd_.tensor_lr", "_fused_adagrad_", "_fused_adagrad_.tensor_lr", "_fused_adam_.tensor_lr",
    "_fused_adamw_.tensor_lr",
)  # fmt: skip
def _fused_step(*_: Any, **__: Any) -> None:
    """Run one kernel for a whole list of parameters; it allocates nothing."""


@kernel("_thnn_fused_gru_cell")
def _gru_cell(input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, *_biases: Any) -> tuple[Tensor, Tensor]:
    workspace = contiguous((hx.shape[0], hx.shape[1] * _GRU_WORKSPACE), hx.dtype)
    return like(hx), workspace


@kernel("_thnn_fused_gru_cell_backward")
def _gru_cell_backward(grad: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    gates = (workspace.shape[0], workspace.shape[1] // _GRU_WORKSPACE * 3)
    grad_gates = [contiguous(gates, workspace.dtype) for _ in range(2)]
    grad_hx = like(grad)
    grad_biases = [contiguous(gates[1:], workspace.dtype) if has_bias else None for _ in range(2)]
    return *grad_gates, grad_hx, *grad_biases


@kernel("batch_norm_stats")
def _batch_norm_stats(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    dtype = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return contiguous((x.shape[1],), dtype), contiguous((x.shape[1],), dtype)


@kernel("batch_norm_gather_stats_with_counts")
def _batch_norm_gather(x: Tensor, mean: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return contiguous((x.shape[1],), mean.dtype), contiguous((x.shape[1],), mean.dtype)


@kernel("batch_norm_backward_reduce")
def _batch_norm_backward_reduce(grad: Tensor, x: Tensor, mean: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    _invstd, weight, input_g, weight_g, bias_g = rest
    dtype = mean.dtype if weight is None else weight.dtype
    results = (mean.dtype, input_g), (mean.dtype, input_g), (dtype, weight_g), (dtype, bias_g)
    return tuple(contiguous((x.shape[1],), dtype) if is_needed else None for dtype, is_needed in results)
