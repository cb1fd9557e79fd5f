"""Rows of Fourier transforms on the host."""

import torch

from memlint.accelerator.inference import to_meta
from memlint.cuda.hidden.table import Steps, copy_of, hidden

Tensor = torch.Tensor


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
