"""Rows of Fourier transforms: copies of operands, and workspaces of cuFFT."""

import math

import torch

from memlint.accelerator.device import scratch
from memlint.accelerator.inference import to_meta
from memlint.cuda.hidden.table import Steps, copy_of, hidden

Tensor = torch.Tensor
LONG = 1 << 15
"""Points up to which cuFFT transforms in one kernel; it has no workspace at 1,024 and one at 500,000."""
LARGEST_FACTOR = 7
"""Largest prime factor of a length for which cuFFT has kernels of its own."""
MOST_DIMENSIONS = 3


def _order(x: Tensor, dims: list[int]) -> list[int]:
    """Return the dimensions that are not transformed, slowest first, then those that are."""
    transformed = [d % x.dim() for d in dims]
    rest = (d for d in range(x.dim()) if d not in transformed)
    return [*sorted(rest, key=x.stride, reverse=True), *transformed]


def _is_copied(x: Tensor, dims: list[int]) -> bool:
    """Return True if the dimensions that are not transformed cannot be viewed as one."""
    permuted = x.permute(_order(x, dims))
    try:
        permuted.view([-1, *permuted.shape[x.dim() - len(dims) :]])
    except RuntimeError:
        return True
    return False


@hidden("_fft_r2c", "_fft_c2c", source="mkl/SpectralOps.cpp: _exec_fft", devices="host")
def _transform(x: Tensor, dims: list[int], *_: object) -> Steps:
    """A copy of the input if the dimensions that are not transformed cannot be viewed as one."""
    yield
    if _is_copied(to_meta(x), dims):
        copy_of(x)


@hidden("_fft_c2r", source="mkl/SpectralOps.cpp: _fft_c2r_mkl", devices="host")
def _to_real(x: Tensor, dims: list[int], *_: object) -> Steps:
    """The transform over all dimensions but the last, then the last, each with a copy of its input if it needs one."""
    x = to_meta(x)
    partial = None
    if len(dims) > 1:
        partial = copy_of(x)
        if _is_copied(x, dims[:-1]):
            copy_of(x)
        order = _order(x, dims[:-1])
        x = x.new_empty([x.shape[d] for d in order]).permute([order.index(d) for d in range(x.dim())])
    yield
    copy = copy_of(x) if _is_copied(x, dims[-1:]) else None
    del copy, partial


@hidden("_fft_c2c", source="cuda/SpectralOps.cpp: _fft_c2c_cufft; measured on H200")
def _complex_on_gpu(x: Tensor, dims: list[int], *_: object) -> Steps:
    """A copy as on the host, and cuFFT's workspace; a second result for more than three dimensions."""
    yield
    x = to_meta(x)
    if not dims:
        return
    taken = [copy_of(x)] if len(dims) > MOST_DIMENSIONS else []
    if _is_copied(x, dims[-MOST_DIMENSIONS:]):
        taken.append(copy_of(x))
    if any(x.shape[d] > LONG for d in dims):
        taken.append(copy_of(x))
    del taken


@hidden("_fft_r2c", source="cuda/SpectralOps.cpp: _fft_r2c_cufft; measured on H200")
def _from_real_on_gpu(x: Tensor, dims: list[int], *_: object) -> Steps:
    """A copy as on the host, and cuFFT's workspace; then a second result where it cannot do all dimensions at once."""
    yield
    x = to_meta(x)
    length, at_once = x.shape[dims[-1]], _is_at_once(dims)
    copy = copy_of(x) if _is_copied(x, dims if at_once else dims[-1:]) else None
    workspace = scratch(_workspace_of_real(length, x.numel(), x.element_size()))
    del workspace, copy
    if not at_once:
        scratch(2 * x.element_size() * (x.numel() // max(length, 1)) * (length // 2 + 1))


@hidden("_fft_c2r", source="cuda/SpectralOps.cpp: _fft_c2r_cufft; measured on H200")
def _to_real_on_gpu(x: Tensor, dims: list[int], _normalization: int, length: int) -> Steps:
    """A copy of the input, which cuFFT overwrites, a copy as on the host, and cuFFT's workspace."""
    yield
    x = to_meta(x)
    clone = copy_of(x)
    dense = x.new_empty(x.shape)
    copy = copy_of(x) if _is_copied(dense, dims if _is_at_once(dims) else dims[-1:]) else None
    numel = x.numel() // max(x.shape[dims[-1]], 1) * length
    workspace = scratch(_workspace_of_real(length, numel, x.element_size() // 2))
    del workspace, copy, clone


def _is_at_once(dims: list[int]) -> bool:
    """Return True if cuFFT is let to transform all dimensions (`use_optimized_cufft_path`)."""
    return len(dims) <= MOST_DIMENSIONS and list(dims[:2]) != [0, 1]


def _workspace_of_real(length: int, numel: int, item: int) -> int:
    """Bytes of complex numbers for half of an even length, else for all: where it is long or has a large factor."""
    points = length if length % 2 else length // 2
    if points <= LONG and _largest_factor(points) <= LARGEST_FACTOR:
        return 0
    return 2 * item * points * (numel // max(length, 1))


def _largest_factor(n: int) -> int:
    """Return the largest prime that divides `n`."""
    for divisor in range(2, math.isqrt(max(n, 1)) + 1):
        if n % divisor == 0:
            return max(divisor, _largest_factor(n // divisor))
    return n
