"""Recurrent layers: cuDNN's on a GPU, the tensors they keep for backward, and packed sequences.

The packed sizes depend on lengths, which PyTorch's C++ reads on the host. Known lengths are used; otherwise every
sequence is assumed to have the padded length.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.device import contiguous, entry_of, is_virtual, like, real, scratch, strides
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import DispatchKey, kernel_under
from memlint.accelerator.registration import KEY, composite, implement, kernel, overload
from memlint.base.errors import TraceError
from memlint.cuda.kernels import host_cells, host_lstm
from memlint.cuda.kernels.recurrent_space import GRU, LSTM, RNN_RELU, RNN_TANH, RecurrentLayers
from memlint.cuda.simulated import simulated

aten = torch.ops.aten
Tensor = torch.Tensor

_CUDNN_MODES = {"rnn_relu": RNN_RELU, "rnn_tanh": RNN_TANH, "lstm": LSTM, "gru": GRU}
_DROPOUT_STATE = 48 * 1024
"""Bytes a multiprocessor of the random numbers of dropout between layers, which are kept: 6,488,064 on an H200."""
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
    cx, *sizes, batch_first, dropout, train, bidirectional, batch_sizes, _state = rest
    is_transposed = batch_first and not batch_sizes
    x = x.transpose(0, 1) if is_transposed else x
    layers = _layers(x, sizes, dropout, bidirectional, batch_sizes)
    if train and dropout and not state.current.new_on_host:
        simulated().workspaces.hold("cudnn", simulated().device.num_sms * _DROPOUT_STATE)
    copy = _copy(x)
    out = contiguous((*x.shape[:-1], layers.directions * hx.shape[2]), x.dtype)
    hy, cy = like(hx), contiguous((0,), x.dtype) if cx is None else like(cx)
    buffer = weight_buf if weight_buf is not None else _weight_buffer(weight, x.dtype)
    workspace = _workspace(layers, train)
    reserve = contiguous((layers.reserve() if train else 0,), torch.uint8)
    del workspace, copy
    return out.transpose(0, 1) if is_transposed else out, hy, cy, reserve, buffer


def _layers(
    x: Tensor, sizes: Sequence[int], dropout: float, bidirectional: bool, batch_sizes: Sequence[int]
) -> RecurrentLayers:
    """Describe layers and their sequences `x`: padded to [step, batch, feature], or packed to [row, feature]."""
    mode, hidden, projected, num_layers = sizes
    return RecurrentLayers(
        mode=mode,
        itemsize=x.element_size(),
        input_size=x.shape[-1],
        hidden=hidden,
        projected=projected,
        num_layers=num_layers,
        directions=2 if bidirectional else 1,
        rows=math.prod(x.shape[:-1]),
        batch=batch_sizes[0] if batch_sizes else x.shape[1],
        packed=bool(batch_sizes),
        dropout=dropout > 0 and num_layers > 1,
    )


def _copy(x: Tensor) -> Tensor | None:
    """Allocate the copy that cuDNN reads in place of `x`; None if it reads `x`."""
    return None if x.is_contiguous() else like(x)


def _workspace(layers: RecurrentLayers, train: bool) -> Entry | None:
    """Take the workspace of one call; None for layers that stay on the host, beside a GPU."""
    if state.current.new_on_host:
        return None
    is_hopper = simulated().device.capability == (9, 0)
    return scratch(layers.workspace(train=train), layers.bounds(train=train, is_hopper=is_hopper))


def _weight_buffer(weight: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Return the one chunk in which cuDNN wants all weights: theirs if they were flattened, else a copy a call."""
    numel = sum(w.numel() for w in weight)
    if len({entry_of(w).number for w in weight}) == 1 and weight[0].dtype is dtype:
        return weight[0].detach().as_strided((numel,), (1,), 0)
    return contiguous((numel,), dtype)


@kernel("_cudnn_rnn_backward")
def _cudnn_rnn_backward(
    x: Tensor, weight: Sequence[Tensor], stride0: int, weight_buf: Tensor, hx: Tensor, cx: Tensor | None, *rest: Any
) -> tuple[Any, ...]:
    out, *grads, mode, hidden, projected, num_layers, batch_first, dropout, _, bidirectional, batch_sizes = rest[:-3]
    of = [t for t in (out, hx, cx) if t is not None]
    grads = [like(t) if grad is None else grad for t, grad in zip(of, grads, strict=False)]
    is_transposed = batch_first and not batch_sizes
    if is_transposed:
        x, grads[0] = x.transpose(0, 1), grads[0].transpose(0, 1)
    layers = _layers(x, (mode, hidden, projected, num_layers), dropout, bidirectional, batch_sizes)
    grad_x, *grad_states = _input_gradients(layers, x, of[1:], grads[0])
    gradients = _weight_gradients(layers, x, weight, stride0) if rest[-1][3] else []
    grad_hx, grad_cx = grad_states if cx is not None else (*grad_states, None)
    return grad_x.transpose(0, 1) if is_transposed else grad_x, grad_hx, grad_cx, gradients


def _input_gradients(layers: RecurrentLayers, x: Tensor, states: Sequence[Tensor], grad: Tensor) -> list[Tensor]:
    """Allocate gradients of the input and of the first states; cuDNN computes them whether they are needed or not."""
    copies = _copy(x), _copy(grad)
    gradients = [like(x), *(like(each) for each in states)]
    workspace = _workspace(layers, train=True)
    del workspace, copies
    return gradients


def _weight_gradients(layers: RecurrentLayers, x: Tensor, weight: Sequence[Tensor], stride0: int) -> list[Tensor]:
    """Allocate gradients of all weights in one chunk; layers without biases (`stride0` 2 or 3) copy them out of it."""
    copy = _copy(x)
    buffer = contiguous((sum(w.numel() for w in weight),), x.dtype)
    workspace = _workspace(layers, train=True)
    if stride0 in (2, 3):
        return [like(w) for w in weight]
    del workspace, copy
    places = zip(weight, accumulate((w.numel() for w in weight), initial=0), strict=False)
    return [buffer.as_strided(w.shape, strides(w.shape), offset) for w, offset in places]


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
    data, batch_sizes = kernel_under(_PACK)(DispatchKey.CompositeExplicitAutograd, x, lengths, batch_first)
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
