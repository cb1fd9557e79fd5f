"""`torch.autocast` on the virtual device: op lists of CUDA, or of the host for `--gpu cpu`, and cached weight casts.

Lists from aten/src/ATen/autocast_mode.h and autocast_mode.cpp of torch 2.6, 2.11 and 2.13, which agree but for
`rms_norm`, cast to float32 from 2.12 on. The host casts to float32 every other op that the installed PyTorch casts
there.
"""

import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn

import torch

from memlint.accelerator import state
from memlint.accelerator.device import NAME, real_device_of, unwrapped
from memlint.accelerator.private import (
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    FakeTensor,
    OpOverload,
    all_op_names,
    has_kernel,
    is_view,
    schema_of,
)
from memlint.accelerator.registration import everything, implement, implemented, overload
from memlint.accelerator.sparse import is_host
from memlint.base.after_import import after_import
from memlint.cuda.simulated import Simulated
from memlint.cuda.versions import torch_version

KEY = "AutocastPrivateUse1"
_NUM_CAST = 3
"""Arguments of `flex_attention` that autocast casts: query, key and value."""
BELOW = DispatchKeySet(DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]

_LOWER_PRECISION = """
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
    baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
    rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention
"""
_FLOAT32 = """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits
    dist pdist cdist renorm logsumexp upsample_nearest1d upsample_nearest2d upsample_nearest3d
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
"""
_FLOAT32_OUTPUT = """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
"""
_PROMOTE = """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
"""
LOWER_PRECISION, FLOAT32 = _LOWER_PRECISION.split(), _FLOAT32.split()
FLOAT32_OUTPUT, PROMOTE = _FLOAT32_OUTPUT.split(), _PROMOTE.split()
BANNED = ("binary_cross_entropy",)
FLOAT32_SINCE_2_12 = ("rms_norm",)
FLOAT32_SINCE_2_14 = ("linalg_matrix_sqrth",)

_HOST_LOWER_PRECISION = """
    conv1d conv1d.padding conv2d conv2d.padding conv3d conv3d.padding bmm mm linalg_vecdot baddbmm addmm
    _addmm_activation addbmm linear _convolution.deprecated matmul conv_tbc mkldnn_rnn_layer conv_transpose1d
    conv_transpose2d.input conv_transpose3d.input prelu scaled_dot_product_attention _native_multi_head_attention
"""
HOST_LOWER_PRECISION = frozenset(_HOST_LOWER_PRECISION.split())
HOST_PROMOTE = frozenset(("stack", "cat", "index_copy"))

_cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
_casts: list[torch.Tensor] = []
"""Cast weights in order. PyTorch also keeps casts of weights that are gone, whatever is at their address now."""


def clear_cache() -> None:
    """Forget the cast weights, as PyTorch does when it leaves the outermost autocast."""
    _cache.clear()
    _casts.reverse()
    while _casts:
        _casts.pop()


def cast_weights() -> list[torch.Tensor]:
    """Return the cast weights that are kept until autocast ends, but for those of a graph that is traced meanwhile."""
    return [each for each in _casts if not isinstance(each, FakeTensor)]


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
        and real_device_of(value).type == NAME
        and not is_host(unwrapped(value))
    )


def _cast_lists(cast: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Cast the elements of lists as well."""

    def each(value: Any) -> Any:
        return [each(v) for v in value] if isinstance(value, (list, tuple)) else cast(value)

    return each


@_cast_lists
def lower(value: Any) -> Any:
    """Cast `value` to autocast's dtype; fp32 leaf weights are cast once and kept until autocast ends."""
    if not _eligible(value):
        return value
    dtype = torch.get_autocast_dtype("cuda" if state.current.cuda else "cpu")
    if value.dtype is dtype:
        return value
    cacheable = (
        value.dtype is torch.float32
        and value.requires_grad
        and not is_view(value)  # of which PyTorch may raise in place of saying that it is no leaf
        and value.is_leaf
        and torch.is_autocast_cache_enabled()
        and not torch.is_inference_mode_enabled()  # recorded runs free each cast at once in this case
    )
    if not cacheable:
        return value.to(dtype)
    cached = _cache.get(id(value))
    if cached is None or cached[0]() is not value:
        cached = _cache[id(value)] = (weakref.ref(value), value.to(dtype))
        _casts.append(cached[1])
    return cached[1]


@_cast_lists
def _float32(value: Any) -> Any:
    return value.float() if _eligible(value) else value


def _casting(op: OpOverload, cast: Callable[[Any], Any], *args: Any, **kwargs: Any) -> Any:
    with ExcludeDispatchKeyGuard(BELOW):
        casts = [cast(a) for a in args]
        result = op(*casts, **{k: cast(v) for k, v in kwargs.items()})
        while casts:  # C++ drops them in this order, the last first
            casts.pop()
        return result


def _float32_since_2_12(value: Any) -> Any:
    return _float32(value) if torch_version() >= (2, 12) else value


def _float32_output(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    position = [a.name for a in schema_of(op).arguments].index("dtype")
    with ExcludeDispatchKeyGuard(BELOW):
        dtype = args[position] if len(args) > position else kwargs.get("dtype")
        if dtype is None and _eligible(args[0]):
            args = args[:position]
            kwargs["dtype"] = torch.float32
        return op(*args, **kwargs)


def _promoting(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    values = [t for a in (*args, *kwargs.values()) for t in (a if isinstance(a, (list, tuple)) else [a])]
    any_wide = any(_eligible(t) and t.dtype is torch.float32 for t in values)
    cast = _float32 if any_wide else lambda value: value
    with ExcludeDispatchKeyGuard(BELOW):
        return op(*map(cast, args), **{k: cast(v) for k, v in kwargs.items()})


def _banned(op: OpOverload, *_: Any, **__: Any) -> NoReturn:
    raise RuntimeError(
        f"torch.nn.functional.{schema_of(op).name.split('::')[-1]} and torch.nn.BCELoss are unsafe to autocast. "
        "Use binary_cross_entropy_with_logits instead."
    )


def _kernels_of_gpu() -> dict[str, Callable[..., Any]]:
    """Kernels by op name, for the ops that the installed PyTorch has."""
    kernels: dict[str, Callable[..., Any]] = {}
    for names, kernel_of in (
        (LOWER_PRECISION, lambda op: partial(_casting, op, lower)),
        ((*FLOAT32, *FLOAT32_SINCE_2_14), lambda op: partial(_casting, op, _float32)),
        (FLOAT32_SINCE_2_12, lambda op: partial(_casting, op, _float32_since_2_12)),
        (FLOAT32_OUTPUT, lambda op: partial(_float32_output, op)),
        (PROMOTE, lambda op: partial(_promoting, op)),
        (BANNED, lambda op: partial(_banned, op)),
    ):
        for name in names:
            packet, _, rest = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet, None), rest or "default", None)
            if op is not None:
                kernels[name] = kernel_of(op)
    return kernels


def _kernels_of_host() -> dict[str, Callable[..., Any]]:
    """Kernels for `torch.autocast("cpu")` by op name; ops that CUDA alone casts pass through."""
    kernels: dict[str, Callable[..., Any]] = dict.fromkeys(_kernels_of_gpu(), torch.library.fallthrough_kernel)
    for name in _cast_on_host():
        if name in HOST_PROMOTE:
            kernels[name] = partial(_promoting, overload(name))
        else:
            kernels[name] = partial(_casting, overload(name), lower if name in HOST_LOWER_PRECISION else _float32)
    return kernels


@cache
def _cast_on_host() -> tuple[str, ...]:
    """Ops that the installed PyTorch casts on the host."""
    names = (name.removeprefix("aten::") for name in all_op_names() if name.startswith("aten::"))
    return tuple(name for name in names if has_kernel(f"aten::{name}", "AutocastCPU"))


def _cast_flex_attention(module: Any) -> None:
    """Let `flex_attention` run under autocast, which casts its first three arguments if it does on CUDA."""
    attention = module.flex_attention_hop
    is_cast = DispatchKey.AutocastCUDA in attention.py_kernels

    def attend(*arguments: Any, **named: Any) -> Any:
        with ExcludeDispatchKeyGuard(BELOW):
            inputs = map(lower, arguments[:_NUM_CAST]) if is_cast else arguments[:_NUM_CAST]
            return attention(*inputs, *arguments[_NUM_CAST:], **named)

    attention.py_impl(DispatchKey.AutocastPrivateUse1)(attend)  # type: ignore[attr-defined]
    backward = torch.ops.higher_order.flex_attention_backward
    backward.fallthrough(DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]


def _register() -> None:
    after_import("torch.nn.attention.flex_attention", _cast_flex_attention)
    for name, function in _kernels_of_gpu().items():
        implement(overload(name), KEY, function)
    everything.fallback(torch.library.fallthrough_kernel, KEY)


_set_enabled = torch.set_autocast_enabled
_set_dtype = torch.set_autocast_dtype
_clear = torch.clear_autocast_cache


def _clear_autocast_cache() -> None:
    _clear()
    clear_cache()


def patches(running: Simulated) -> list[tuple[Any, str, Any]]:
    """Patches of autocast's switches, which affect the virtual device as well: owner, name, replacement."""
    device_type, is_listed = "cuda" if running.cuda else "cpu", running.cuda

    def set_enabled(*args: Any) -> None:
        nonlocal is_listed
        _set_enabled(*args)
        if (args[0] if len(args) > 1 else "cuda") == device_type:
            if not is_listed:
                running.exits.enter_context(implemented(_kernels_of_host(), KEY))
                is_listed = True
            _set_enabled(NAME, args[-1])

    def set_dtype(named: str, dtype: torch.dtype) -> None:
        _set_dtype(named, dtype)
        if named == device_type:
            _set_dtype(NAME, dtype)

    return [
        (torch, "set_autocast_enabled", set_enabled),
        (torch, "set_autocast_dtype", set_dtype),
        (torch, "clear_autocast_cache", _clear_autocast_cache),
    ]


_register()
