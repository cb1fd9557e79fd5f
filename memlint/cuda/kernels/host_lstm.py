"""An LSTM as oneDNN runs it on the host: layer by layer, with a workspace of its own in training.

The choice of layers and the loop over them are in aten/src/ATen/native/mkldnn/RNN.cpp; the sizes of workspace and
scratchpad in oneDNN's src/cpu/rnn/rnn_utils.cpp (`get_good_ld`, `set_offsets`), and equal to what was measured with
torch 2.10 to 2.13. oneDNN 3.7, which is in torch up to 2.10, takes more of both. For bfloat16 it keeps cell states and
gradients in float32; its scratchpad is smaller then, by an amount that depends on the processor.
"""

from collections.abc import Sequence
from typing import Any

import torch

from memlint.accelerator.device import allocate, contiguous, like, scratch
from memlint.accelerator.ledger import Entry
from memlint.accelerator.registration import kernel
from memlint.cuda.versions import torch_version

aten = torch.ops.aten
Tensor = torch.Tensor
LSTM = 2
"""`rnn_mode` of an LSTM."""
GATES = 4
PAGE = 4096
CACHE_LINE = 64
ALIASING = 256
"""Alignment of rows, in numbers: no row length is a multiple of this, or caches would alias."""
SCRATCHPAD = 4664
"""Bytes of the scratchpad that do not grow with sizes."""
HALF_SCRATCHPAD = 17_224
"""Bytes of the scratchpad for bfloat16 and small sizes; up to twice that was measured."""
WIDE = 4
"""Bytes of a float32."""
SCRATCHPAD_OF_3_7 = 384
"""Additional bytes of the scratchpad in oneDNN 3.7."""


def takes(x: Tensor) -> bool:
    """Return True if oneDNN runs an LSTM of this input (`use_mkldnn` of RNN.cpp); else it is composed of cells."""
    dtypes = (torch.float32, torch.bfloat16, *(() if torch.is_grad_enabled() else (torch.float16,)))
    return bool(torch.backends.mkldnn.enabled) and x.dtype in dtypes and x.numel() != 0


def lstm(
    x: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Run every layer in each direction; `rest` as in `aten::lstm.input`."""
    num_layers, dropout, train, bidirectional, batch_first = rest
    h, c = (each.contiguous() for each in hx)
    layer_input = (x.transpose(0, 1) if batch_first else x).contiguous()
    directions, per_layer = (2 if bidirectional else 1), (4 if has_biases else 2)
    ends: list[tuple[Tensor, Tensor]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = len(ends)
            weights = list(params[index * per_layer : (index + 1) * per_layer])
            weights += [torch.zeros_like(w) for w in weights[: 4 - per_layer]]
            states = h[index], c[index], direction > 0
            sizes = LSTM, h.shape[-1], num_layers
            out, *end, _workspace = aten.mkldnn_rnn_layer(
                layer_input, *weights, *states, [], *sizes, has_biases, bidirectional, batch_first, train
            )
            outputs.append(out)
            ends.append((end[0], end[1]))
        layer_input = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            layer_input = torch.dropout(layer_input, dropout, True)
    out = layer_input.transpose(0, 1) if batch_first else layer_input
    return out, torch.stack([end[0] for end in ends]), torch.stack([end[1] for end in ends])


@kernel("mkldnn_rnn_layer")
def _layer(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    hx = rest[2]
    (steps, batch), hidden, item = x.shape[:2], hx.shape[-1], x.element_size()
    out = contiguous((steps, batch, hidden), x.dtype)
    hy, cy = like(hx), like(hx)
    bias = contiguous(weight_ih.shape[:1], x.dtype)
    trains = torch.is_grad_enabled()
    workspace = contiguous((_workspace(x, hidden) if trains else 0,), torch.uint8)
    rows = _row(GATES * hidden, item)
    copies = [scratch(n * rows * item) for n in (x.shape[-1], hidden)]
    gates = steps * batch * GATES * hidden * item
    highest = gates + 2 * (steps + 2) * batch * max(x.shape[-1], hidden) * item + 8 * batch * rows * item + 16 * PAGE
    highest += 2 * gates if _is_3_7() else 0
    pad = _pad(x, hidden) if trains else scratch((gates + highest) // 2, (gates, highest))
    del pad, copies, bias
    return out, hy, cy, workspace


@kernel("mkldnn_rnn_layer_backward")
def _layer_backward(x: Tensor, weight_ih: Tensor, weight_hh: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    hx, output = rest[2], rest[4]
    hidden, item = hx.shape[-1], x.element_size()
    grad_output = [contiguous(output.shape, output.dtype), like(hx), like(hx)]
    bias = contiguous(weight_ih.shape[:1], x.dtype)
    grads = [allocate(t.shape, t.stride(), t.dtype) for t in (x, weight_ih, weight_hh)]
    biases = [contiguous(weight_ih.shape[:1], x.dtype) for _ in range(2)]
    grad_hx, grad_cx = like(hx), like(hx)
    widths = (x.shape[-1], hidden)
    gates = GATES * hidden
    copies = [scratch(gates * _row(n, item) * item) for n in widths if _row(n, item) != n]
    copies += [scratch(n * _row(gates, item) * item) for n in widths]
    if item < WIDE:  # gradients of both sides and weights in float32, not all at once
        numel = x.numel() + output.numel() + 4 * hx.numel() + 2 * (weight_ih.numel() + weight_hh.numel() + gates)
        copies.append(scratch(WIDE * numel // 2, (0, WIDE * numel)))
    pad = _pad(x, hidden)
    del pad, copies, bias, grad_output
    return *grads, *biases, grad_hx, grad_cx


def _pad(x: Tensor, hidden: int) -> Entry:
    nbytes = _scratchpad(x, hidden)
    return scratch(nbytes) if x.element_size() == WIDE else scratch(min(nbytes, HALF_SCRATCHPAD), (0, nbytes))


def _is_3_7() -> bool:
    return torch_version() <= (2, 10)


def _row(width: int, item: int) -> int:
    """Return the stride in numbers from one row of `width` to the next."""
    line = CACHE_LINE // item
    row = -(-width // line) * line
    return row + line if row % ALIASING == 0 else row


def _pages(numel: int, item: int) -> int:
    return -(-numel * item // PAGE) * PAGE


def _workspace(x: Tensor, hidden: int) -> int:
    """Gates; states and their gradients of every step, for the layer and for the one before it; hidden states."""
    (steps, batch, width), item = x.shape, x.element_size()
    states = 2 * (steps + 1) * batch
    row = max(width, hidden)
    return (
        _pages(steps * batch * _row(GATES * hidden, item), item)
        + _pages(states * _row(row, item), item)
        + (4 if _is_3_7() else 2) * _pages(states * _row(row, WIDE), WIDE)
        + _pages(states * hidden, item)
        + _pages(states * hidden, WIDE)
        + _pages(steps * batch * _row(hidden, item), item)
    )


def _scratchpad(x: Tensor, hidden: int) -> int:
    """Gates of every step, and two states of one; in oneDNN 3.7 four times the gates and eight states more."""
    (steps, batch, _width), item = x.shape, x.element_size()
    gates, state = steps * batch * _row(GATES * hidden, item), batch * _row(hidden, item)
    more = (4 * gates + 8 * state) * item + SCRATCHPAD_OF_3_7 if _is_3_7() else 0
    return _pages(gates, item) + 2 * _pages(state, item) + SCRATCHPAD + more
