"""Transformer Engine 2.9: linear layers, norms, the MLP and attention, in fp8 or without.

transformer_engine/pytorch/module/linear.py, layernorm_linear.py and layernorm_mlp.py; what kernels take is in
pytorch/csrc (quantizer.cpp, extensions/gemm.cpp, bias.cpp, normalization.cpp). What fp8 is made of has a byte an
element, and as many by columns, which products of gradients need; with a scale a tensor Blackwell does not need these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlint.cuda.simulated import simulated
from memlint.libraries.library import Library, assume_once, launch, temporary

Tensor = torch.Tensor
library = Library("transformer_engine", distribution="transformer-engine", version="2.9.0")
_provides = library.provides("transformer_engine.pytorch")
_recipe = library.provides("transformer_engine.common.recipe")


# --- fp8


@_recipe
class Format(Enum):
    """Which of the formats of a byte: their sizes are the same."""

    E4M3, E5M2, HYBRID = range(3)


@dataclass
class _Recipe:
    fp8_format: Format = Format.HYBRID
    fp8_dpa: bool = False
    fp8_mha: bool = False


@_recipe
@dataclass
class DelayedScaling(_Recipe):
    """Scales of what the largest values were before."""

    margin: int = 0
    amax_history_len: int = 1024
    amax_compute_algo: Any = "max"
    scaling_factor_compute_algo: Any = None
    reduce_amax: bool = True


@_recipe
@dataclass
class Float8CurrentScaling(_Recipe):
    """Scales of what the values are: kernels make them in full, and then fp8 of them."""

    use_power_2_scales: bool = False


@_recipe
@dataclass
class MXFP8BlockScaling(_Recipe):
    """A scale of a byte for each 32 values."""

    margin: int = 0


@_recipe
@dataclass
class Float8BlockScaling(_Recipe):
    """A scale in float32 for each 128 values, of weights for each 128 x 128."""

    use_f32_scales: bool = False


for _name, _kinds in {
    "delayed": (DelayedScaling,), "float8_current_scaling": (Float8CurrentScaling,),
    "float8_per_tensor_scaling": (DelayedScaling, Float8CurrentScaling), "mxfp8": (MXFP8BlockScaling,),
    "float8_block_scaling": (Float8BlockScaling,), "nvfp4": (), "custom": (),
}.items():  # fmt: skip
    setattr(_Recipe, _name, lambda self, kinds=_kinds: isinstance(self, kinds))


_active: list[_Recipe | None] = [None]
"""The recipe of each context that the program is in."""


def _chosen(recipe: _Recipe | None) -> _Recipe:
    """The recipe, or what the GPU has if it is None. Raises AssertionError where the GPU cannot have it, as there."""
    capability = simulated().device.capability
    if capability < (8, 9):
        raise AssertionError("Device compute capability 8.9 or higher required for FP8 execution.")
    has_blocks = (10, 0) <= capability < (12, 0)
    default = Float8CurrentScaling() if capability >= (12, 0) else DelayedScaling()
    chosen = recipe or (MXFP8BlockScaling() if has_blocks else default)
    if isinstance(chosen, MXFP8BlockScaling) and not has_blocks:
        raise AssertionError("Device compute capability 10.0 or higher required for MXFP8 execution.")
    if isinstance(chosen, Float8BlockScaling) and capability < (9, 0):
        raise AssertionError("FP8 block scaled GEMM requires compute capability 9.0 or higher and CUDA >= 12.9.")
    if isinstance(chosen, Float8BlockScaling) and capability >= (10, 0):
        library.unknown("transformer_engine.common.recipe.Float8BlockScaling(of a GPU since Blackwell)")()
    return chosen


@_provides
@contextlib.contextmanager
def autocast(
    enabled: bool = True, calibrating: bool = False, recipe: _Recipe | None = None, amax_reduction_group: Any = None,
    _graph: bool = False,
) -> Iterator[None]:  # fmt: skip
    """Let layers multiply in fp8 meanwhile."""
    chosen = _chosen(recipe) if enabled else recipe or DelayedScaling()
    if chosen.fp8_dpa or chosen.fp8_mha or calibrating:
        library.unknown("transformer_engine.pytorch.autocast(fp8_dpa=True, fp8_mha=True, calibrating=True)")()
    _active.append(chosen if enabled else None)
    try:
        yield
    finally:
        _active.pop()


@_provides
def fp8_autocast(
    enabled: bool = True, calibrating: bool = False, fp8_recipe: _Recipe | None = None, fp8_group: Any = None,
    _graph: bool = False,
) -> Any:  # fmt: skip
    """The same by its older name."""
    return autocast(enabled, calibrating, fp8_recipe, fp8_group)


library.modules["transformer_engine.pytorch.fp8"] = {"fp8_autocast": fp8_autocast}


def _availability(name: str, least: tuple[int, int], below: tuple[int, int] = (99, 0)) -> None:
    def available(return_reason: bool = False) -> Any:
        is_there = least <= simulated().device.capability < below
        reason = "" if is_there else f"Device compute capability {least[0]}.{least[1]} or higher required"
        return (is_there, reason) if return_reason else is_there

    available.__name__ = name
    _provides(available)


_availability("is_fp8_available", (8, 9))
_availability("is_mxfp8_available", (10, 0), below=(12, 0))
_availability("is_fp8_block_scaling_available", (9, 0))
_availability("is_nvfp4_available", (10, 0))
_availability("is_bf16_available", (8, 0))


def _tiles(number: int, size: int, multiple: int = 1) -> int:
    """How many of this size there are, rounded up to a multiple."""
    tiles = -(-number // size)
    return -(-tiles // multiple) * multiple


_of_weights: list[_Recipe | None] = [None]
"""The recipe of weights that are made now, in each context that the program is in."""


@_provides
@contextlib.contextmanager
def quantized_model_init(
    enabled: bool = True, recipe: _Recipe | None = None, preserve_high_precision_init_val: bool = False
) -> Iterator[None]:
    """Let layers that are made meanwhile have their weights in fp8 alone."""
    if enabled and preserve_high_precision_init_val:
        library.unknown("transformer_engine.pytorch.quantized_model_init(preserve_high_precision_init_val=True)")()
    _of_weights.append(_chosen(recipe) if enabled else None)
    try:
        yield
    finally:
        _of_weights.pop()


@_provides
def fp8_model_init(enabled: bool = True, **options: Any) -> Any:
    """The same by its older name."""
    return quantized_model_init(enabled, **options)


def _multiplies_rows() -> bool:
    """Whether gradients are multiplied without columns (`is_non_tn_fp8_gemm_supported`, transformer_engine.cpp:719)."""
    capability = simulated().device.capability
    return (10, 0) <= capability < (12, 0) or capability >= (13, 0)


class Fp8:
    """Bytes of a tensor, and bytes of its columns where they are needed, with their scales."""

    def __init__(
        self, source: Tensor, recipe: _Recipe, *, columns: bool, shape: Sequence[int] | None = None,
        is_weight: bool = False,
    ) -> None:  # fmt: skip
        shape = source.shape if shape is None else shape
        self.has_columns = columns
        self.rows: list[Tensor] = [source.new_empty(shape, dtype=torch.uint8)]
        is_one_scale = not isinstance(recipe, (MXFP8BlockScaling, Float8BlockScaling))
        is_there = columns and not (is_one_scale and _multiplies_rows())
        self.columns = [source.new_empty(shape[::-1], dtype=torch.uint8)] if is_there else []
        self.scales: list[Tensor] = []
        self.swizzled = 0
        """Bytes of scales that are copied in another order for a product (util.cpp:12)."""
        number, width = shape[0], shape[-1]
        if isinstance(recipe, MXFP8BlockScaling):  # quantizer.cpp:1105
            self._scale(self.rows, torch.uint8, _tiles(number, 1, 128), _tiles(width, 32, 4))
            self._scale(self.columns, torch.uint8, _tiles(number, 32, 4), _tiles(width, 1, 128))
            self.swizzled = self.rows[1].nbytes
        elif isinstance(recipe, Float8BlockScaling):  # quantizer.cpp:824
            edge = 128 if is_weight else 1
            self._scale(self.rows, torch.float32, _tiles(number, edge, 4), _tiles(width, 128))
            self._scale(self.columns, torch.float32, _tiles(width, edge, 4), _tiles(number, 128))
        else:  # quantizer.cpp:121
            self.scales = [source.new_empty(1, dtype=torch.float32)]
        launch((source,), self.parts)

    def _scale(self, parts: list[Tensor], dtype: torch.dtype, *shape: int) -> None:
        if parts:
            parts.append(parts[0].new_empty(shape, dtype=dtype))

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """Its tensors."""
        return (*self.rows, *self.columns, *self.scales)

    def drop_rows(self) -> None:
        """Keep what a product with a gradient needs."""
        if self.columns:
            self.rows = []

    def transpose(self) -> None:
        """Add the bytes of columns, made of those of rows (`_create_transpose`)."""
        rows = self.rows[0]
        self.columns, self.has_columns = [rows.new_empty(rows.shape[::-1])], True
        launch((rows,), self.columns)


class Fp8Weight(torch.Tensor):
    """A weight that is in fp8 alone: ops other than products take it in full (quantized_tensor.py:462)."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    fp8: Fp8
    recipe: _Recipe

    @staticmethod
    def __new__(cls, like: Tensor, fp8: Fp8, recipe: _Recipe) -> Fp8Weight:  # noqa: D102
        made: Fp8Weight = torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)
        made.fp8, made.recipe = fp8, recipe
        return made

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("part_"):
            raise AttributeError(name)
        return self.fp8.parts[int(name.removeprefix("part_"))]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Names of the tensors that it wraps."""
        return [f"part_{n}" for n in range(len(self.fp8.parts))], None

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Float8Tensor(shape={tuple(self.shape)}, dtype={self.dtype})"

    def dequantize(self, *_: Any, **__: Any) -> Tensor:
        """The weight in full."""
        made = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        launch(self.fp8.parts, (made,))
        return made

    def multiplied(self, recipe: _Recipe | None, dtype: torch.dtype, *, columns: bool) -> Any:
        """As a product takes it: `get_weight_workspace`, module/base.py:1333; in full without fp8 (linear.py:1539)."""
        if recipe is None:
            return self.dequantize().to(dtype)
        if type(recipe) is not type(self.recipe):
            raise RuntimeError(f"Weights of {type(self.recipe).__name__} are not multiplied by {type(recipe).__name__}")
        if columns and not self.fp8.has_columns:
            if not isinstance(recipe, (DelayedScaling, Float8CurrentScaling)):
                raise RuntimeError("Requested column-wise usage, but the weight has no columns: it was made in no_grad")
            self.fp8.transpose()
        return self.fp8

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Compute an op of the weight in full, and make that fp8 where it is written."""
        if func is torch.ops.aten.detach.default:
            return cls(args[0], args[0].fp8, args[0].recipe)
        if func is torch.ops.aten.copy_.default and isinstance(args[0], cls):
            launch((args[1],), args[0].fp8.parts)
            return args[0]
        in_full = [each.dequantize() if isinstance(each, cls) else each for each in args]
        in_full = [
            [one.dequantize() if isinstance(one, cls) else one for one in each] if isinstance(each, list) else each
            for each in in_full
        ]
        out = func(*in_full, **(kwargs or {}))
        if not func._schema.is_mutable:
            return out
        for given, written in zip(args, in_full, strict=True):
            if isinstance(given, cls):
                launch((written,), given.fp8.parts)
        return args[0]


@dataclass(frozen=True)
class Call:
    """How a layer is called, beside its operands."""

    dtype: torch.dtype
    recipe: _Recipe | None
    needs_grad: bool
    centered: bool = True
    gated: bool = False
    cache: dict[str, Fp8] | None = None
    """Weights in fp8 that the layer keeps from one microbatch to the next."""

    @property
    def scales_now(self) -> bool:
        """Whether kernels make what is activated in full, and then fp8 of it (activation.cpp:33)."""
        return isinstance(self.recipe, (Float8CurrentScaling, Float8BlockScaling))

    def factor(self, x: Tensor, *, columns: bool, shape: Sequence[int] | None = None) -> Any:
        """An operand of a product."""
        return x.to(self.dtype) if self.recipe is None else Fp8(x, self.recipe, columns=columns, shape=shape)

    def weight(self, name: str, x: Tensor, *, columns: bool) -> Any:
        """A weight as it is multiplied: `get_weight_workspace`, module/base.py:1333."""
        if isinstance(x, Fp8Weight):
            return x.multiplied(self.recipe, self.dtype, columns=columns)
        if self.recipe is None:
            return x.to(self.dtype)
        kept = None if self.cache is None else self.cache.get(name)
        if kept is None or (columns and not kept.has_columns):
            kept = Fp8(x, self.recipe, columns=columns, is_weight=True)
            if self.cache is not None:
                self.cache[name] = kept
        return kept

    def product(self, *shape: int, of: Tensor, swizzled: int = 0, streams: int = 1) -> Tensor:
        """What a product gives. cuBLASLt's workspace is one for all (`get_workspace`, module/base.py:77)."""
        library.assume()
        is_wide = simulated().device.capability >= (9, 0)
        for stream in range(streams):
            name = f"transformer_engine {stream}" if streams > 1 else "transformer_engine"
            simulated().workspaces.hold(name, (32 << 20) + 1024 if is_wide else 4 << 20)
        out = self.made(*shape, of=of)
        scales = temporary(swizzled)
        del scales
        return out

    def made(self, *shape: int, of: Tensor) -> Tensor:
        """A tensor that a kernel writes."""
        out = torch.empty(shape, dtype=self.dtype, device=of.device)
        launch((of,), (out,))
        return out


def parts_of(*values: Any) -> list[Tensor | None]:
    """The tensors of operands."""
    return [part for value in values for part in (value.parts if isinstance(value, Fp8) else (value,))]


def swizzled_of(*factors: Any) -> int:
    """Bytes of their scales that a product copies."""
    return sum(factor.swizzled for factor in factors if isinstance(factor, Fp8))


def _clear(*values: Any) -> None:
    """`clear_tensor_data`: memory is given back, whoever holds the tensor."""
    for part in parts_of(*values):
        if part is not None:
            part.data = part.new_empty(0)


_ROWS_OF_A_TILE = 256
"""Of the kernel that makes fp8 and its transpose: 32 threads times eight bytes (cast_transpose_fusion.cu:180)."""
_ROWS_OF_A_CHUNK = 64
"""Of the kernel that makes blocks of 32 (cast_kernels.cuh:1556)."""


def fp8_and_bias(grad: Tensor, call: Call, *, has_bias: bool, rows: int = _ROWS_OF_A_TILE) -> tuple[Any, Tensor | None]:
    """The gradient in fp8, and that of a bias; delayed scales have one kernel, with float32 sums: bias.cpp:22."""
    bias = call.made(grad.shape[-1], of=grad) if has_bias else None
    if call.recipe is None:
        return grad, bias
    factor = call.factor(grad, columns=True)
    if isinstance(call.recipe, MXFP8BlockScaling):
        rows = _ROWS_OF_A_CHUNK
    elif call.scales_now or not factor.columns:
        rows = 0
    if has_bias and rows:
        sums = temporary(4 * -(-grad.shape[0] // rows) * grad.shape[1])
        del sums
    return factor, bias


# --- norms


def _norm(x: Tensor, call: Call, *, columns: bool) -> tuple[Any, Tensor | None, Tensor]:
    """The norm, in fp8 where a product takes that, and what backward needs of each row: normalization.cpp:61."""
    mean, spread = (torch.empty(x.shape[0], dtype=torch.float32, device=x.device) for _ in range(2))
    if call.recipe is None:
        out: Any = call.made(*x.shape, of=x)
    else:
        out = call.factor(x, columns=columns)
        full = temporary(0 if isinstance(call.recipe, DelayedScaling) else x.nbytes)
        del full
    launch((x,), (mean, spread))
    return out, mean if call.centered else None, spread


def _norm_backward(grad: Tensor, x: Tensor, weight: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients, with float32 sums of those of weights: a row of each block of the kernel.

    How many blocks a multiprocessor has depends on the compiled kernel; one is assumed (ln_bwd_semi_cuda_kernel.cu:15).
    """
    grads = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight) if call.centered else None
    sums = temporary(4 * simulated().device.num_sms * x.shape[1] * (1 + call.centered))
    launch((grad, x, weight), grads)
    del sums
    return grads


class _NormFunction(torch.autograd.Function):
    """Saves its input and a mean and a spread of each row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, _bias: Tensor | None, call: Call) -> Any:
        library.assume()
        flat = x.reshape(-1, x.shape[-1])
        out, mean, spread = _norm(flat, replace(call, recipe=None), columns=False)
        ctx.save_for_backward(flat, weight, mean, spread)
        ctx.call = call
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, *_ = ctx.saved_tensors
        dx, *rest = _norm_backward(grad.reshape(x.shape), x, weight, ctx.call)
        return dx.view(grad.shape), *rest, None


# --- products


class _LinearFunction(torch.autograd.Function):
    """Saves the input, or of fp8 its transpose, and the weight as it was multiplied; with a norm, what that saves."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm_weight: Tensor | None, _norm_bias: Tensor | None, weight: Tensor,
        bias: Tensor | None, call: Call,
    ) -> Any:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1])
        columns = call.needs_grad and weight.requires_grad
        normed: tuple[Any, ...] = ()
        if norm_weight is None:
            factor = call.factor(flat, columns=columns)
        else:
            flat = flat.to(call.dtype)
            factor, *normed = _norm(flat, call, columns=columns)  # type: ignore[assignment]
        is_needed = call.needs_grad and (norm_weight is not None or x.requires_grad)
        multiplied = call.weight("weight", weight, columns=is_needed)
        out = call.product(flat.shape[0], weight.shape[0], of=flat, swizzled=swizzled_of(factor, multiplied))
        if isinstance(factor, Fp8) and columns:
            factor.drop_rows()
        if call.needs_grad:
            saved = (None, None) if norm_weight is None else (flat, norm_weight)
            ctx.save_for_backward(weight, *saved, *normed, *parts_of(factor if columns else None, multiplied))
            ctx.call, ctx.has_bias = call, bias is not None
            ctx.swizzled = swizzled_of(factor), swizzled_of(multiplied)
        return out.view(*x.shape[:-1], weight.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, x, norm_weight, *_ = ctx.saved_tensors
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        factor, bias = fp8_and_bias(flat, ctx.call, has_bias=ctx.has_bias)
        needs_x, _, _, needs_weight, *_ = ctx.needs_input_grad
        needs_product = needs_x or norm_weight is not None
        of_x, of_weight = (swizzled_of(factor) + swizzled for swizzled in reversed(ctx.swizzled))
        dx = ctx.call.product(flat.shape[0], weight.shape[1], of=flat, swizzled=of_x) if needs_product else None
        dweight = ctx.call.product(*weight.shape, of=flat, swizzled=of_weight) if needs_weight else None
        rest: list[Tensor | None] = [None, None]
        if norm_weight is not None:
            dx, *rest = _norm_backward(dx, x, norm_weight, ctx.call)  # type: ignore[arg-type]
        del factor
        dx = dx.view(*grad.shape[:-1], dx.shape[1]) if dx is not None and needs_x else None
        return dx, *rest, dweight, bias, None


class _MLPFunction(torch.autograd.Function):
    """Saves its input and that normed, what is activated and what comes of it, and the weights as multiplied."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, norm_weight: Tensor, _norm_bias: Tensor | None, first: Tensor, first_bias: Tensor | None,
        second: Tensor, second_bias: Tensor | None, call: Call,
    ) -> Any:  # fmt: skip
        flat = x.reshape(-1, x.shape[-1]).to(call.dtype)
        normed, *of_rows = _norm(flat, call, columns=call.needs_grad and first.requires_grad)
        named = {"fc1_weight": first, "fc2_weight": second}
        weights = [call.weight(name, weight, columns=call.needs_grad) for name, weight in named.items()]
        hidden = call.product(flat.shape[0], first.shape[0], of=flat, swizzled=swizzled_of(normed, weights[0]))
        shape = flat.shape[0], second.shape[1]
        if call.recipe is None:
            active: Any = call.made(*shape, of=hidden)
        else:
            active = call.factor(hidden, columns=True, shape=shape)
            full = temporary(shape[0] * shape[1] * hidden.element_size() if call.scales_now else 0)
            del full
        out = call.product(flat.shape[0], second.shape[0], of=flat, swizzled=swizzled_of(active, weights[1]))
        if call.needs_grad:
            ctx.save_for_backward(flat, norm_weight, first, second, hidden, *of_rows, *parts_of(*weights),
                                  *parts_of(normed, active))  # fmt: skip
            ctx.call, ctx.num_normed, ctx.num_active = call, len(parts_of(normed)), len(parts_of(active))
            ctx.swizzled = tuple(swizzled_of(each) for each in (normed, weights[0], active, weights[1]))
            ctx.has_first, ctx.has_second = first_bias is not None, second_bias is not None
        return out.view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        call = ctx.call
        x, norm_weight, first, second, hidden, *rest = ctx.saved_tensors
        active, rest = rest[-ctx.num_active :], rest[: -ctx.num_active]
        normed = rest[-ctx.num_normed :]
        of_normed, of_first, of_active, of_second = ctx.swizzled
        flat = grad.reshape(-1, grad.shape[-1]).contiguous()
        factor, second_bias = fp8_and_bias(flat, call, has_bias=ctx.has_second)
        dactive = call.product(flat.shape[0], second.shape[1], of=flat, swizzled=swizzled_of(factor) + of_second)
        dsecond = call.product(*second.shape, of=flat, swizzled=swizzled_of(factor) + of_active)
        _clear(*active)
        if call.recipe is None or call.gated or call.scales_now:
            dhidden: Any = call.made(*hidden.shape, of=dactive)
            dhidden, first_bias = fp8_and_bias(dhidden, call, has_bias=ctx.has_first or call.recipe is not None)
        else:  # the gradient of the activation is made in fp8
            dhidden, first_bias = fp8_and_bias(dactive, call, has_bias=True, rows=_ROWS_OF_A_TILE // 2)
        _clear(hidden)
        dx = call.product(*x.shape, of=flat, swizzled=swizzled_of(dhidden) + of_first)
        dfirst = call.product(*first.shape, of=flat, swizzled=swizzled_of(dhidden) + of_normed)
        _clear(dhidden, *normed)
        grads = _norm_backward(dx, x, norm_weight, call)
        del factor, dactive
        first_bias = first_bias if ctx.has_first else None
        return grads[0].view(grad.shape), *grads[1:], dfirst, first_bias, dsecond, second_bias, None


# --- layers


_HARMLESS = {
    "init_method", "output_layer_init_method", "get_rng_state_tracker", "rng_tracker_name", "name", "seq_length",
    "micro_batch_size", "parallel_mode", "set_parallel_mode", "sequence_parallel", "zero_centered_gamma",
    "layer_number", "softmax_scale", "attention_type",
}  # fmt: skip
"""Options that change no memory on one GPU."""


class Layer(torch.nn.Module):
    """A layer whose weights are made on the GPU, and its state for scales: `DelayedScalingRecipeState`."""

    def __init__(self, options: dict[str, Any], dtype: torch.dtype | None, device: Any, eps: float = 1e-5) -> None:
        super().__init__()
        for name, value in options.items():
            if name not in _HARMLESS and (value is True or value not in (None, False, 1)):
                self._refuse(f"{name}={value!r}")
        self._made = {"dtype": dtype or torch.get_default_dtype(), "device": device}
        self._recipe_of_weights = _of_weights[-1]
        self.eps = eps
        self._scales: list[Tensor] = []
        self._fp8_workspaces: dict[str, Fp8] = {}

    def _refuse(self, what: str) -> None:
        library.unknown(f"transformer_engine.pytorch.{type(self).__name__}({what})")()

    def reset_parameters(self, **_: Any) -> None:
        """Make what was left on `meta` on the GPU."""
        for name, parameter in list(self.named_parameters(recurse=False)):
            if parameter.is_meta:
                self.register_parameter(name, torch.nn.Parameter(torch.empty_like(parameter, device="cuda")))
                self._quantize(name)

    def _quantize(self, *names: str) -> None:
        """Let weights be in fp8 alone where they were made so: `reset_parameters`, module/base.py:1248."""
        for name in names:
            weight, recipe = getattr(self, name), self._recipe_of_weights
            if recipe is not None and weight.dim() == 2 and not weight.is_meta:
                with torch.no_grad():
                    full = weight.detach()
                fp8 = Fp8(full, recipe, columns=torch.is_grad_enabled(), is_weight=True)
                self.register_parameter(name, torch.nn.Parameter(Fp8Weight(full, fp8, recipe)))

    def _add(self, name: str, *shape: int, used: bool = True) -> None:
        value = torch.nn.Parameter(torch.empty(shape, **self._made)) if used else None
        self.register_parameter(name, value)

    def _add_norm(self, size: int, normalization: str) -> None:
        self.normalization = normalization
        self._add("layer_norm_weight", size)
        self._add("layer_norm_bias", size, used=normalization == "LayerNorm")

    def _call(self, x: Tensor, products: int = 0, is_first_microbatch: bool | None = None, **options: Any) -> Call:
        """How it is called; `products`, of which each has scales of three operands forward and two backward.

        With `is_first_microbatch` the layer keeps its weights in fp8.
        """
        recipe = _active[-1]
        if isinstance(recipe, DelayedScaling) and not self._scales:
            for number in (3 * products, 2 * products):
                self._scales += [
                    torch.ones(number, device=x.device),
                    torch.zeros(recipe.amax_history_len, number, device=x.device),
                ]
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        cache = None if is_first_microbatch is None else self._fp8_workspaces
        return Call(dtype, recipe, torch.is_grad_enabled(), cache=cache, **options)


@_provides
class LayerNorm(Layer):
    """Layer norm."""

    centered = True

    def __init__(
        self, normalized_shape: int, eps: float = 1e-5, dtype: torch.dtype | None = None, device: Any = "cuda",
        params_dtype: torch.dtype | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, dtype or params_dtype, device, eps)
        self._add("weight", normalized_shape)
        self._add("bias", normalized_shape, used=self.centered)

    def forward(self, x: Tensor) -> Any:
        """The norm of the last dimension."""
        return _NormFunction.apply(x, self.weight, self.bias, self._call(x, centered=self.centered))  # type: ignore[no-untyped-call]


@_provides
class RMSNorm(LayerNorm):
    """The norm without mean and bias."""

    centered = False


@_provides
class Linear(Layer):
    """A product."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, params_dtype: torch.dtype | None = None,
        device: Any = "cuda", return_bias: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device)
        self.in_features, self.out_features, self.return_bias = in_features, out_features, return_bias
        self._add("weight", out_features, in_features)
        self._add("bias", out_features, used=bias)
        self._quantize("weight")

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """The product of the last dimension; with `return_bias` the bias beside it, which is not added."""
        bias = None if self.return_bias else self.bias
        norm = getattr(self, "layer_norm_weight", None), getattr(self, "layer_norm_bias", None)
        call = self._call(inp, 1, is_first_microbatch, centered=norm[1] is not None)
        out = _LinearFunction.apply(inp, *norm, self.weight, bias, call)  # type: ignore[no-untyped-call]
        return (out, self.bias) if self.return_bias else out


@_provides
class LayerNormLinear(Linear):
    """A norm and a product of it."""

    def __init__(
        self, in_features: int, out_features: int, eps: float = 1e-5, bias: bool = True,
        normalization: str = "LayerNorm", params_dtype: torch.dtype | None = None, device: Any = "cuda", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(in_features, out_features, bias, params_dtype, device, **options)
        self._add_norm(in_features, normalization)


@_provides
class LayerNormMLP(Layer):
    """A norm, a product, an activation and a product."""

    def __init__(
        self, hidden_size: int, ffn_hidden_size: int, eps: float = 1e-5, bias: bool = True,
        normalization: str = "LayerNorm", activation: str = "gelu", params_dtype: torch.dtype | None = None,
        device: Any = "cuda", return_bias: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, params_dtype, device, eps)
        self.activation, self.return_bias = activation, return_bias
        self._add_norm(hidden_size, normalization)
        wide = ffn_hidden_size * (2 if activation.endswith("glu") else 1)
        self._add("fc1_weight", wide, hidden_size)
        self._add("fc1_bias", wide, used=bias)
        self._add("fc2_weight", hidden_size, ffn_hidden_size)
        self._add("fc2_bias", hidden_size, used=bias)
        self._quantize("fc1_weight", "fc2_weight")

    def forward(self, inp: Tensor, is_first_microbatch: bool | None = None) -> Any:
        """The block, without the residual; with `return_bias` the second bias beside it, which is not added."""
        call = self._call(inp, 2, is_first_microbatch, centered=self.layer_norm_bias is not None,
                          gated=self.activation.endswith("glu"))  # fmt: skip
        weights = (self.layer_norm_weight, self.layer_norm_bias, self.fc1_weight, self.fc1_bias, self.fc2_weight,
                   None if self.return_bias else self.fc2_bias)  # fmt: skip
        out = _MLPFunction.apply(inp, *weights, call)  # type: ignore[no-untyped-call]
        return (out, self.fc2_bias) if self.return_bias else out


@_provides
class DotProductAttention(Layer):
    """Attention by cuDNN, whose workspace nothing tells: it is taken as FlashAttention's. A mask is causal or none."""

    def __init__(
        self, num_attention_heads: int, kv_channels: int, num_gqa_groups: int | None = None,
        attention_dropout: float = 0.0, qkv_format: str = "sbhd", attn_mask_type: str = "causal", **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(options, None, "cuda")
        if qkv_format not in _HEADS_FIRST:
            self._refuse(f"qkv_format={qkv_format!r}")
        self.qkv_format, self.attn_mask_type, self.attention_dropout = qkv_format, attn_mask_type, attention_dropout

    def forward(
        self, query_layer: Tensor, key_layer: Tensor, value_layer: Tensor, attention_mask: Any = None,
        attn_mask_type: str | None = None, **options: Any,
    ) -> Any:  # fmt: skip
        """Attention of [sequence, batch, heads, size] or [batch, sequence, heads, size], heads made one dimension."""
        mask = attn_mask_type or self.attn_mask_type
        if mask not in {"causal", "no_mask"}:
            self._refuse(f"attn_mask_type={mask!r}")
        for name, value in {"attention_mask": attention_mask, **options}.items():
            if value is not None:
                self._refuse(name)
        assume_once("cuDNN's attention in Transformer Engine is taken to need what FlashAttention needs")
        order = _HEADS_FIRST[self.qkv_format]
        q, k, v = (each.permute(order) for each in (query_layer, key_layer, value_layer))
        dropout = self.attention_dropout if self.training else 0.0
        options = {"is_causal": mask == "causal", "enable_gqa": q.shape[1] != k.shape[1]}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, **options)
        back = [order.index(n) for n in range(4)]
        return out.permute(back).flatten(2)


_HEADS_FIRST = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3)}
"""From each format to the one that PyTorch takes."""
