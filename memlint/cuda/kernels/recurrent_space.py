"""Memory that cuDNN asks for to run a recurrent layer: a reserve kept for backward, and a workspace for every call.

cuDNN publishes neither. The formulas are those that an NVIDIA H200 answered to (torch 2.11, cuDNN 9.19): two layers
each of LSTM, GRU and RNN in three dtypes, with two directions, dropout, projections and packed sequences, and two LSTM
language models in training and one in evaluation. An LSTM of four layers on a P100 with the cuDNN of 2017 kept 23
tensors of the size of its output, and a GRU 27 (pytorch/pytorch#2895): the same reserve.

What a workspace depends on was told apart for LSTM and GRU of two layers in one direction. That cuDNN asks for the
same with other numbers of layers, for RNN, two directions and projections of other sizes, and for the algorithms that
PyTorch chooses for small layers and for single ones in float16, is a guess with bounds. The LSTM on the P100 took
17.7 MB, of which 12.1 are weights: neither the gates of every step nor the constant, so weights are the lower bound.
"""

import math
from dataclasses import dataclass

RNN_RELU, RNN_TANH, LSTM, GRU = range(4)
_GATES = {RNN_RELU: 1, RNN_TANH: 1, LSTM: 4, GRU: 3}
_KEPT = {RNN_RELU: 1, RNN_TANH: 1, LSTM: 5, GRU: 6}
"""Tensors of the size of its output that a layer keeps for backward."""
_SMALL = {RNN_RELU: 384, RNN_TANH: 384, LSTM: 192, GRU: 192}
"""Largest hidden sizes that PyTorch gives to algorithms of their own (`get_algo` in aten/src/ATen/native/cudnn)."""
_CONSTANT = 16 << 20
"""Bytes of a workspace that each direction takes whatever the sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentLayers:
    """Layers of one `nn.LSTM`, `nn.GRU` or `nn.RNN`, and the sequences that they run over."""

    mode: int
    itemsize: int
    input_size: int
    hidden: int
    projected: int
    """Size of the outputs of an LSTM with projections; 0 without."""
    num_layers: int
    directions: int
    rows: int
    """Number of steps of all sequences together."""
    batch: int
    packed: bool
    """True without padding, which cuDNN removes from its operands before it begins."""
    dropout: bool
    """True if the outputs of a layer are dropped out on their way to the next one."""

    def reserve(self) -> int:
        """Compute the bytes that a forward in training keeps, among them the outputs of all layers but the last."""
        layer = _KEPT[self.mode] * self.hidden + (self.hidden + self.projected if self.projected else 0)
        values = self.num_layers * layer + (self.num_layers - 1) * self.hidden
        masks = (self.num_layers - 1) * self.directions * math.ceil(self._between / 8) if self.dropout else 0
        return _aligned(self.rows * self.directions * values * self.itemsize + masks)

    def workspace(self, *, train: bool) -> int:
        """Compute the bytes that one call most likely takes."""
        values = self._matrices + self._states + (0 if self.packed else self._unpadded)
        values += max(self._forward_steps(train), self._backward_steps if train else 0)
        lengths = 0 if self.packed else 8 * self.batch
        return _aligned(values * self.itemsize + self.directions * _CONSTANT + lengths)

    def bounds(self, *, train: bool, is_hopper: bool) -> tuple[int, int]:
        """Compute the least and the most bytes that one call may take."""
        likely = self.workspace(train=train)
        is_known = self.mode in (LSTM, GRU) and self.directions == 1 and not self.projected and self.num_layers == 2
        if is_known and is_hopper and not self._has_own_algorithm:
            return likely, likely
        least = 0 if self._has_own_algorithm else self._matrices * self.itemsize
        return least, likely * 5 * max(self.num_layers, 2) // 8

    @property
    def _width(self) -> int:
        return self.projected or self.hidden

    @property
    def _between(self) -> int:
        """Values that go from one layer to the next one."""
        return self.rows * self.directions * self._width

    @property
    def _has_own_algorithm(self) -> bool:
        is_small = self.hidden <= _SMALL[self.mode] or (self.num_layers == 1 and self.itemsize == 2)
        return is_small and not self.packed and not self.projected and self.itemsize < 8

    @property
    def _matrices(self) -> int:
        """Weights without biases."""
        inputs = self.input_size + (self.num_layers - 1) * self.directions * self._width
        gates = _GATES[self.mode] * self.hidden * (inputs + self.num_layers * self._width)
        return self.directions * (gates + self.num_layers * self.hidden * self.projected)

    @property
    def _states(self) -> int:
        """Hidden and cell states of one step, three times, and more for two directions."""
        of_layers = self.num_layers * self.directions * self.batch * self.hidden
        return of_layers * (3 * (2 if self.mode == LSTM else 1) + 2 * (self.directions - 1))

    @property
    def _unpadded(self) -> int:
        """Input, output and the states before and after, in the order of packed sequences."""
        states = 2 * self._width + (2 * self.hidden if self.mode == LSTM else 0)
        of_steps = self.rows * self.input_size + self._between
        return of_steps + self.num_layers * self.directions * self.batch * states

    def _forward_steps(self, train: bool) -> int:
        """Gates of every step of one layer, its outputs before they are projected, and inputs that were dropped out."""
        gates = _GATES[self.mode] + (1 if self.projected else 0)
        dropped = self.directions * self._between if self.dropout and train else 0
        return self.rows * self.directions * gates * self.hidden + dropped

    @property
    def _backward_steps(self) -> int:
        """Values for gradients where they take more than the gates.

        Fitted to one RNN, and to a GRU in two directions, which takes 0.4 % less in all.
        """
        outputs = self.directions * (3 * self.directions - 1) * self.hidden
        return self.rows * (self.input_size + outputs) + 12 * self.num_layers * self.batch * self.hidden


def _aligned(nbytes: int) -> int:
    return math.ceil(nbytes / 32) * 32 + 256
