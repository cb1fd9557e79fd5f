"""pyg_lib 0.9.0: B-splines of places, and products of rows with the matrices that these choose.

csrc/ops/spline.cpp, csrc/ops/autograd/spline_kernel.cpp and csrc/ops/cuda/spline_kernel.cu:153, :233, :303, :373, :444,
:516. A place of D dimensions has S = (degree + 1) ** D splines. What lies on the host has its values.
"""

from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import launch
from memlint_libraries.pyg_lib.checks import check, dispatch, library

Tensor = torch.Tensor
_provides = library.provides("pyg_lib.ops")


@_provides
def spline_basis(pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int = 1) -> tuple[Tensor, Tensor]:
    """Compute the splines of places [edges, D], and as int64 the matrices that they choose: both [edges, S]."""
    check(pseudo.dim() == 2, "Expected 2-dimensional tensor for argument 'pseudo'")
    width = pseudo.shape[1]
    check(width == kernel_size.numel(), "pseudo.size(1) must equal kernel_size.numel()")
    check(width == is_open_spline.numel(), "pseudo.size(1) must equal is_open_spline.numel()")
    check(degree in {1, 2, 3}, "Basis degree not implemented")
    if not is_virtual(pseudo):
        return _basis_on_host(pseudo, kernel_size.tolist(), is_open_spline.tolist(), degree)
    return _Basis.apply(pseudo, kernel_size, is_open_spline, degree)  # type: ignore[no-any-return, no-untyped-call]


class _Basis(torch.autograd.Function):
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, pseudo: Tensor, kernel_size: Tensor, is_open_spline: Tensor, degree: int) -> Any:
        ctx.save_for_backward(pseudo, kernel_size, is_open_spline)
        library.assume()
        pseudo = pseudo.contiguous()
        dispatch("spline_basis_fw_cuda", pseudo)
        shape = pseudo.shape[0], (degree + 1) ** pseudo.shape[1]
        basis, chosen = pseudo.new_empty(shape), kernel_size.new_empty(shape)
        launch((pseudo, kernel_size, is_open_spline), (basis, chosen))
        ctx.mark_non_differentiable(chosen)
        return basis, chosen

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> Any:
        pseudo, *sizes = ctx.saved_tensors
        grad, pseudo = grad.contiguous(), pseudo.contiguous()
        made = torch.empty_like(pseudo)
        launch((grad, pseudo, *sizes), (made,))
        return made, None, None, None


def _basis_on_host(pseudo: Tensor, sizes: list[int], opened: list[int], degree: int) -> tuple[Tensor, Tensor]:
    count = (degree + 1) ** pseudo.shape[1]
    basis: Tensor = pseudo.new_ones(pseudo.shape[0], count)
    chosen = torch.zeros(pseudo.shape[0], count, dtype=torch.int64)
    splines, offset = torch.arange(count), 1
    for dim, (size, is_open) in enumerate(zip(sizes, opened, strict=True)):
        kind = splines % (degree + 1)
        splines = splines // (degree + 1)
        place = pseudo[:, dim, None] * (size - degree * is_open)
        chosen += (place.long() + kind) % size * offset
        offset *= size
        values = _splines(place - place.floor(), degree)
        basis = basis * values.gather(1, kind.expand(len(pseudo), -1))
    return basis, chosen


def _splines(v: Tensor, degree: int) -> Tensor:
    """All B-splines of a degree where `v` of [edges, 1] lies between two knots."""
    if degree == 1:
        parts = [1 - v, v]
    elif degree == 2:
        parts = [0.5 * v * v - v + 0.5, -v * v + v + 0.5, 0.5 * v * v]
    else:
        parts = [
            (1 - v) ** 3 / 6,
            (3 * v**3 - 6 * v * v + 4) / 6,
            (-3 * v**3 + 3 * v * v + 3 * v + 1) / 6,
            v**3 / 6,
        ]
    return torch.cat(parts, 1)


@_provides
def spline_weighting(x: Tensor, weight: Tensor, basis: Tensor, weight_index: Tensor) -> Tensor:
    """Rows [edges, width] times their matrices of [matrices, width, columns], by how much each counts."""
    check(x.shape[1] == weight.shape[1], "x.size(1) must equal weight.size(1)")
    check(x.shape[0] == basis.shape[0], "x.size(0) must equal basis.size(0)")
    check(x.shape[0] == weight_index.shape[0], "x.size(0) must equal weight_index.size(0)")
    check(basis.shape[1] == weight_index.shape[1], "basis.size(1) must equal weight_index.size(1)")
    if not is_virtual(x):
        parts = zip(basis.unbind(1), weight_index.unbind(1), strict=True)
        return sum((x[:, None] @ weight[of]).squeeze(1) * share[:, None] for share, of in parts)  # type: ignore[return-value]
    return _Weighting.apply(x, weight, basis, weight_index)  # type: ignore[no-any-return, no-untyped-call]


class _Weighting(torch.autograd.Function):
    """Saves its operands; a gradient of rows needs the matrices transposed."""

    @staticmethod
    def forward(ctx: Any, *operands: Tensor) -> Any:
        ctx.save_for_backward(*operands)
        library.assume()
        operands = tuple(t.contiguous() for t in operands)
        x, weight, *_ = operands
        dispatch("spline_weighting_fw_cuda", x)
        out = x.new_empty(x.shape[0], weight.shape[2])
        launch(operands, (out,))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        *operands, chosen = ctx.saved_tensors
        grads: list[Tensor | None] = [None, None, None]
        for place, like in enumerate(operands):
            if ctx.needs_input_grad[place]:
                others = operands[:place] + operands[place + 1 :]
                grads[place] = _gradient(grad, like, others, chosen, of_rows=place == 0)
        return *grads, None


def _gradient(grad: Tensor, like: Tensor, others: list[Tensor], chosen: Tensor, *, of_rows: bool) -> Tensor:
    """Zeros that a kernel adds into, beside copies of what is not contiguous and, for rows, transposed matrices."""
    grad, chosen, *others = (t.contiguous() for t in (grad, chosen, *others))
    made = grad.new_zeros(like.shape)
    if of_rows:
        others[0] = others[0].transpose(1, 2).contiguous()
    launch((grad, chosen, *others), (made,))
    return made
