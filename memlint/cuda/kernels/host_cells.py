"""Recurrent layers that the host composes of cells, step by step: aten/src/ATen/native/RNN.cpp.

PyTorch also has fused cells for other devices, and Python cells for compilers that do not work in place.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import linear

Tensor = torch.Tensor
Hidden = Any
"""State that passes from step to step: a tensor, or two for an LSTM."""
Weights = Sequence[Tensor | None]
"""Weights of input and hidden state, their biases, and the weight of a projection."""
Cell = Callable[[Tensor, Hidden, Weights], Hidden]


def layers(mode: str, x: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, *rest: Any) -> tuple[Tensor, ...]:
    """Run every layer in each direction.

    Arguments as in `aten::lstm.input` and its siblings, with `mode` the op's name.
    """
    num_layers, dropout, train, bidirectional, batch_first = rest
    cell, pair = _CELLS[mode], mode == "lstm"
    x = x.transpose(0, 1) if batch_first else x
    states: list[Hidden] = list(zip(*(each.unbind(0) for each in hx), strict=True)) if pair else list(hx.unbind(0))
    directions = 2 if bidirectional else 1
    weights = _weights(params, has_biases, num_layers * directions)
    ends: list[Hidden] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            index = len(ends)
            out, end = _layer(cell, x, states[index], weights[index], backwards=direction > 0)
            outputs.append(out)
            ends.append(end)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        del outputs, out
        if dropout and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *((torch.stack(each, 0) for each in zip(*ends, strict=True)) if pair else [torch.stack(ends, 0)])


def _weights(params: Sequence[Tensor], has_biases: bool, count: int) -> list[Weights]:
    """Split the weights into those of each of `count` layers and directions."""
    size = len(params) // count
    each = [list(params[start : start + size]) for start in range(0, len(params), size)]
    num_biases = 2 if has_biases else 0
    return [
        [*w[:2], *(w[2 : 2 + num_biases] or (None, None)), w[2 + num_biases] if size == 3 + num_biases else None]
        for w in each
    ]


def _layer(cell: Cell, x: Tensor, hidden: Hidden, weights: Weights, *, backwards: bool) -> tuple[Tensor, Hidden]:
    """Run one layer in one direction; the inputs of all steps are multiplied at once."""
    steps = linear(x, weights[0], weights[2]).unbind(0)  # type: ignore[arg-type]
    outputs = []
    for step in reversed(steps) if backwards else steps:
        hidden = cell(step, hidden, weights)
        outputs.append(hidden[0] if isinstance(hidden, tuple) else hidden)
    return torch.stack(outputs[::-1] if backwards else outputs, 0), hidden


def _of_hidden(hidden: Tensor, weights: Weights) -> Tensor:
    return linear(hidden, weights[1], weights[3])  # type: ignore[arg-type]


def _tanh(step: Tensor, hidden: Tensor, weights: Weights) -> Tensor:
    return _of_hidden(hidden, weights).add_(step).tanh()


def _relu(step: Tensor, hidden: Tensor, weights: Weights) -> Tensor:
    return _of_hidden(hidden, weights).add_(step).relu()


def _gru(step: Tensor, hidden: Tensor, weights: Weights) -> Tensor:
    of_input = step.unsafe_chunk(3, 1)
    gates = _of_hidden(hidden, weights).unsafe_chunk(3, 1)
    reset = gates[0].add_(of_input[0]).sigmoid_()
    update = gates[1].add_(of_input[1]).sigmoid_()
    new = of_input[2].add(gates[2].mul_(reset)).tanh_()
    return (hidden - new).mul_(update).add_(new)


def _lstm(step: Tensor, hidden: tuple[Tensor, Tensor], weights: Weights) -> tuple[Tensor, Tensor]:
    h, c = hidden
    gates = _of_hidden(h, weights).add_(step).unsafe_chunk(4, 1)
    enter, forget, content, leave = gates[0].sigmoid_(), gates[1].sigmoid_(), gates[2].tanh_(), gates[3].sigmoid_()
    c = (forget * c).add_(enter * content)
    h = leave * c.tanh()
    return (h if weights[4] is None else h @ weights[4].t()), c


_CELLS: dict[str, Any] = {"rnn_tanh": _tanh, "rnn_relu": _relu, "gru": _gru, "lstm": _lstm}
