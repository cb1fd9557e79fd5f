"""Recurrent layers: cuDNN's on a GPU, the tensors they keep for backward, and packed sequences.

The packed sizes depend on lengths, which PyTorch's C++ reads on the host. Known lengths are used; otherwise every
sequence is assumed to have the padded length.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.device import allocate, contiguous, entry_of, is_virtual, like, real, strides
from memlint.accelerator.registration import KEY, composite, implement, kernel, overload
from memlint.base.errors import TraceError
from memlint.cuda.kernels import host_cells, host_lstm

aten = torch.ops.aten
Tensor = torch.Tensor

_CUDNN_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
_PACK = overload("_pack_padded_sequence")
_PACK_BACKWARD = overload("_pack_padded_sequence_backward")
_PAD = overload("_pad_packed_sequence")


def _cudnn(mode: str, x: Tensor, batch_sizes: Sequence[int], hx: Any, params: Sequence[Tensor], *rest: Any) -> Any:
    """Run a recurrent layer as cuDNN does, on padded sequences or, with `batch_sizes`, on packed ones.

    `rest` are number of layers, dropout, and the flags `train`, `bidirectional` and `batch_first`.
    """
    num_layers, dropout, train, bidirectional, batch_first = rest
    h, c = hx if mode == "lstm" else (hx, None)
    hidden = h.shape[2]
    per_layer = len(params) // (num_layers * (2 if bidirectional else 1))
    projected = hidden if per_layer in (3, 5) else 0
    cell = c.shape[2] if projected and c is not None else hidden
    buffer = None
    if torch.is_autocast_enabled("cuda"):
        x, h = _as_half(x), _as_half(h)
        c = None if c is None else _as_half(c)
        params, buffer = _flattened_as_half(params)
    weights = x, list(params), per_layer, buffer
    sizes = _CUDNN_MODES[mode], cell, projected, num_layers
    out, hy, cy, _, _ = aten._cudnn_rnn(
        *weights, h, c, *sizes, batch_first, dropout, train, bidirectional, batch_sizes, None
    )
    return (out, hy, cy) if mode == "lstm" else (out, hy)


def _as_half(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.half()


def _flattened_as_half(params: Sequence[Tensor]) -> tuple[Sequence[Tensor], Tensor | None]:
    """Flatten the weights to one float16 chunk, as autocast does at each call, whatever its dtype (AutocastRNN.cpp)."""
    if params[0].dtype in (torch.float16, torch.float64):
        return params, None
    buffer = torch.zeros(sum(w.numel() for w in params), dtype=torch.float16, device=params[0].device)
    offsets = accumulate((w.numel() for w in params), initial=0)
    copies = []
    for weight, offset in zip(params, offsets, strict=False):
        copy = torch.empty(0, dtype=torch.float16, device=weight.device)
        copy.set_(buffer.untyped_storage(), offset, weight.shape, strides(weight.shape))
        copies.append(copy.copy_(weight))
    return copies, buffer


def _recurrent(mode: str, x: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, *rest: Any) -> Any:
    if state.current.cuda:
        if not torch.backends.cudnn.enabled:
            state.assume("recurrent layers are taken to run on cuDNN although torch.backends.cudnn.enabled is off")
        return _cudnn(mode, x, [], hx, params, *rest)
    if mode == "lstm" and host_lstm.takes(x) and len(params) == _num_weights(has_biases, *rest):
        return host_lstm.lstm(x, hx, params, has_biases, *rest)  # cells run layers with projections
    return host_cells.layers(mode, x, hx, params, has_biases, *rest)


def _num_weights(has_biases: bool, num_layers: int, _dropout: float, _train: bool, bidirectional: bool, *_: Any) -> int:
    """Number of weights of a layer without projections."""
    return num_layers * (4 if has_biases else 2) * (2 if bidirectional else 1)


def _recurrent_packed(mode: str, data: Tensor, batch_sizes: Tensor, hx: Any, params: Any, *rest: Any) -> Any:
    sizes = readable(batch_sizes)
    if state.current.cuda:
        return _cudnn(mode, data, sizes.tolist(), hx, params, *rest[1:], False)
    return overload(f"{mode}.data").decompose(data, sizes, hx, params, *rest)


for _mode in _CUDNN_MODES:
    composite(f"{_mode}.input")(partial(_recurrent, _mode))
    composite(f"{_mode}.data")(partial(_recurrent_packed, _mode))


@kernel("_cudnn_rnn")
def _cudnn_rnn(
    x: Tensor, weight: Sequence[Tensor], weight_stride0: int, weight_buf: Tensor | None, hx: Tensor, *rest: Any
) -> tuple[Tensor, ...]:
    cx, mode, hidden, projected, num_layers, batch_first, _dropout, train, bidirectional, batch_sizes, _state = rest
    directions = 2 if bidirectional else 1
    width = projected or hidden
    if batch_sizes:
        batch, rows = batch_sizes[0], sum(batch_sizes)
        out = contiguous((x.shape[0], directions * width), x.dtype)
    else:
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
        rows = steps * batch
        out = contiguous((steps, batch, directions * width), x.dtype)
        out = out.transpose(0, 1) if batch_first else out
    hy = contiguous((num_layers * directions, batch, width), x.dtype)
    cy = contiguous((0,) if cx is None else (num_layers * directions, batch, hidden), x.dtype)
    reserve = cudnn_rnn_reserve(mode, rows, hidden, num_layers, directions, x.element_size()) if train else 0
    buffer = weight_buf if weight_buf is not None else _weight_buffer(weight, x.dtype)
    return out, hy, cy, contiguous((reserve,), torch.uint8), buffer


def _weight_buffer(weight: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the one chunk in which cuDNN wants all weights: theirs if they were flattened, else a copy a call."""
    numel = sum(w.numel() for w in weight)
    if len({entry_of(w).number for w in weight}) == 1 and weight[0].dtype is dtype:
        return weight[0].detach().as_strided((numel,), (1,), 0)
    return contiguous((numel,), dtype)


def cudnn_rnn_reserve(mode: int, rows: int, hidden: int, num_layers: int, directions: int, itemsize: int) -> int:
    """Bytes that a training forward keeps for its backward, for `rows` = steps x batch.

    cuDNN does not publish the layout. It is modelled as the tensors that the gradient of every cell needs: the gates,
    the cell state and its tanh, and the input of every layer but the first.
    """
    gates = {0: 1, 1: 1, 2: 6, 3: 5}[mode]
    state.assume("cuDNN's reserve of a recurrent layer is modelled from what its gradient needs, not measured")
    return rows * hidden * directions * itemsize * (gates * num_layers + num_layers - 1)


@kernel("_cudnn_rnn_backward")
def _cudnn_rnn_backward(
    x: Tensor, weight: Sequence[Tensor], stride0: int, weight_buf: Tensor, hx: Tensor, cx: Tensor | None, *rest: Any
) -> tuple[Any, ...]:
    output_mask = rest[-1]
    grad_x = allocate(x.shape, x.stride(), x.dtype) if output_mask[0] else None
    grad_hx, grad_cx = like(hx), None if cx is None else like(cx)
    buffer = contiguous((sum(w.numel() for w in weight),), x.dtype)
    places = zip(weight, accumulate((w.numel() for w in weight), initial=0), strict=False)
    return grad_x, grad_hx, grad_cx, [buffer.as_strided(w.shape, strides(w.shape), offset) for w, offset in places]


@kernel("_cudnn_rnn_flatten_weight")
def _cudnn_rnn_flatten_weight(weights: Sequence[Tensor], *_: Any) -> Tensor:
    buffer = contiguous((sum(w.numel() for w in weights),), weights[0].dtype)
    for w, offset in zip(weights, accumulate((w.numel() for w in weights), initial=0), strict=False):
        with torch.no_grad():
            w.set_(buffer.untyped_storage(), offset, w.shape, strides(w.shape))
    return buffer


def _pack(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    if is_virtual(lengths):
        if state.current.cuda and not entry_of(lengths).host:
            raise RuntimeError(
                f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D cuda:0 Long tensor"
            )
        known = values.content(lengths)
        if known is None:
            state.assume("pack_padded_sequence() with lengths that are not known is taken to keep every step")
            known = real.full(lengths.shape, x.shape[1 if batch_first else 0], dtype=lengths.dtype, device="cpu")
        lengths = known
    data, batch_sizes = _PACK._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, x, lengths, batch_first)
    return data, _as_program_sees(batch_sizes)


@composite("_pack_padded_sequence_backward")
def _pack_backward(grad: Tensor, size: Sequence[int], batch_sizes: Tensor, batch_first: bool) -> Any:
    return _PACK_BACKWARD.decompose(grad, size, readable(batch_sizes), batch_first)


@composite("_pad_packed_sequence")
def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Tensor, Tensor]:
    padded, lengths = _PAD.decompose(data, readable(batch_sizes), batch_first, padding_value, total_length)
    return padded, _as_program_sees(lengths)


def readable(batch_sizes: Tensor) -> Tensor:
    """Return `batch_sizes` as a CPU tensor with its values. Raises TraceError if they are not known."""
    known = values.content(batch_sizes)
    if known is None:
        raise TraceError(
            "the batch_sizes of a PackedSequence are not known",
            "Make it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence.",
        )
    return known


def _as_program_sees(counts: Tensor) -> Tensor:
    """Return the tensor as the program sees it: without a GPU the host's memory counts, that of small tensors too."""
    return counts if state.current.cuda or counts.nbytes > values.MAX_SHADOW else values.to_host(counts)


implement(_PACK, KEY, _pack)
