"""Recurrent layers: cuDNN's on a GPU, what they keep for backward, and the packed sequences that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import allocate, entry_of, strides
from memlint.accelerator.registration import composite, kernel, overload
from memlint.cuda.kernels.packed_sequences import readable

if TYPE_CHECKING:
    from collections.abc import Sequence

aten = torch.ops.aten
Tensor = torch.Tensor

_CUDNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


def _cudnn(
    mode: str,
    x: Tensor,
    batch_sizes: Sequence[int],
    hx: Any,
    params: Sequence[Tensor],
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """A recurrent layer as cuDNN carries it out, of padded sequences or, with `batch_sizes`, of packed ones."""
    h, c = hx if mode == "lstm" else (hx, None)
    hidden = h.shape[2]
    per_layer = len(params) // (num_layers * (2 if bidirectional else 1))
    projected = hidden if per_layer in (3, 5) else 0
    cell = c.shape[2] if projected and c is not None else hidden
    out, hy, cy, _, _ = aten._cudnn_rnn(
        x,
        list(params),
        per_layer,
        None,
        h,
        c,
        _CUDNN_MODES[mode],
        cell,
        projected,
        num_layers,
        batch_first,
        dropout,
        train,
        bidirectional,
        batch_sizes,
        None,
    )
    return (out, hy, cy) if mode == "lstm" else (out, hy)


def _recurrent(mode: str) -> Any:
    op = overload(f"{mode}.input")

    def call(
        x: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if not state.current.cuda:
            if mode == "lstm":
                state.assume("the workspace in which oneDNN runs an LSTM is not counted: it may be most of the step")
            return op.decompose(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)
        return _cudnn(mode, x, [], hx, params, num_layers, dropout, train, bidirectional, batch_first)

    return call


def _recurrent_packed(mode: str) -> Any:
    op = overload(f"{mode}.data")

    def call(
        data: Tensor,
        batch_sizes: Tensor,
        hx: Any,
        params: Sequence[Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> Any:
        sizes = readable(batch_sizes)
        if not state.current.cuda:
            return op.decompose(data, sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)
        return _cudnn(mode, data, sizes.tolist(), hx, params, num_layers, dropout, train, bidirectional, False)

    return call


for _mode in _CUDNN_MODES:
    composite(f"{_mode}.input")(_recurrent(_mode))
    composite(f"{_mode}.data")(_recurrent_packed(_mode))


@kernel("_cudnn_rnn")
def _cudnn_rnn(
    x: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden: int,
    projected: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
) -> tuple[Tensor, ...]:
    directions = 2 if bidirectional else 1
    width = projected or hidden
    if batch_sizes:
        steps, batch = len(batch_sizes), batch_sizes[0]
        shape: tuple[int, ...] = (x.shape[0], directions * width)
    else:
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
        shape = (steps, batch, directions * width)
    rows = sum(batch_sizes) if batch_sizes else steps * batch
    out = allocate(shape, strides(shape), x.dtype)
    if batch_first and not batch_sizes:
        out = out.transpose(0, 1)
    state = (num_layers * directions, batch, width)
    hy = allocate(state, strides(state), x.dtype)
    cell_state = (num_layers * directions, batch, hidden)
    cy = (
        allocate(cell_state, strides(cell_state), x.dtype)
        if cx is not None
        else allocate((0,), (1,), x.dtype)
    )
    reserve = cudnn_rnn_reserve(mode, rows, hidden, num_layers, directions, x.element_size()) if train else 0
    buffer = weight_buf if weight_buf is not None else _weight_buffer(weight, x.dtype)
    return out, hy, cy, allocate((reserve,), (1,), torch.uint8), buffer


def _weight_buffer(weight: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The one chunk cuDNN wants all weights in: theirs if they were flattened, else a copy at every call."""
    numel = sum(w.numel() for w in weight)
    if len({entry_of(w).number for w in weight}) == 1 and weight[0].dtype is dtype:
        return weight[0].detach().as_strided((numel,), (1,), 0)
    return allocate((numel,), (1,), dtype)


def cudnn_rnn_reserve(mode: int, rows: int, hidden: int, num_layers: int, directions: int, itemsize: int) -> int:
    """Bytes that a training forward keeps for its backward, for `rows` = steps x batch.

    cuDNN does not publish the layout. Modelled as what the gradient of every cell needs: the gates, the cell state and
    its tanh, and the input of every layer but the first.
    """
    gates = {0: 1, 1: 1, 2: 6, 3: 5}[mode]
    state.assume("cuDNN's reserve of a recurrent layer is modelled from what its gradient needs, not measured")
    return rows * hidden * directions * itemsize * (gates * num_layers + num_layers - 1)


@kernel("_cudnn_rnn_backward")
def _cudnn_rnn_backward(
    x: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    output: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    mode: int,
    hidden: int,
    projected: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
    reserve: Tensor,
    output_mask: Sequence[bool],
) -> tuple[Any, ...]:
    grad_x = allocate(x.shape, x.stride(), x.dtype) if output_mask[0] else None
    grad_hx = allocate(hx.shape, strides(hx.shape), hx.dtype)
    grad_cx = allocate(cx.shape, strides(cx.shape), cx.dtype) if cx is not None else None
    buffer = allocate((sum(w.numel() for w in weight),), (1,), x.dtype)
    grads, offset = [], 0
    for w in weight:
        grads.append(buffer.as_strided(w.shape, strides(w.shape), offset))
        offset += w.numel()
    return grad_x, grad_hx, grad_cx, grads


@kernel("_cudnn_rnn_flatten_weight")
def _cudnn_rnn_flatten_weight(weights: Sequence[Tensor], *_: Any) -> Tensor:
    buffer = allocate((sum(w.numel() for w in weights),), (1,), weights[0].dtype)
    offset = 0
    for w in weights:
        with torch.no_grad():
            w.set_(buffer.untyped_storage(), offset, w.shape, strides(w.shape))
        offset += w.numel()
    return buffer
