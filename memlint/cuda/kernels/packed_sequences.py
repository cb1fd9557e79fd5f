"""Packed sequences. What is packed, and how much of it, depends on lengths, which PyTorch's C++ reads on the host.

Lengths that are known are used; else every sequence is taken to be as long as all are padded to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import state, values
from memlint.accelerator.device import entry_of, is_virtual, real
from memlint.accelerator.registration import KEY, composite, implement, overload
from memlint.base.errors import TraceError
from memlint.cuda.facade.placement import to_host

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensor = torch.Tensor
_PACK = overload("_pack_padded_sequence")
_PACK_BACKWARD = overload("_pack_padded_sequence_backward")
_PAD = overload("_pad_packed_sequence")
_COMPOSED = torch._C.DispatchKey.CompositeExplicitAutograd


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
    data, batch_sizes = _PACK._op_dk(_COMPOSED, x, lengths, batch_first)
    return data, _shown(batch_sizes)


@composite("_pack_padded_sequence_backward")
def _pack_backward(grad: Tensor, size: Sequence[int], batch_sizes: Tensor, batch_first: bool) -> Any:
    return _PACK_BACKWARD.decompose(grad, size, readable(batch_sizes), batch_first)


@composite("_pad_packed_sequence")
def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Tensor, Tensor]:
    padded, lengths = _PAD.decompose(data, readable(batch_sizes), batch_first, padding_value, total_length)
    return padded, _shown(lengths)


def readable(batch_sizes: Tensor) -> Tensor:
    """`batch_sizes` as a CPU tensor with its values. Raises TraceError where they are not known."""
    known = values.content(batch_sizes)
    if known is None:
        raise TraceError(
            "the batch_sizes of a PackedSequence are not known",
            "Make it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence.",
        )
    return known


def _shown(counts: Tensor) -> Tensor:
    """What the program gets: without a GPU the host's memory is what is counted, that of small tensors too."""
    return counts if state.current.cuda or counts.nbytes > values.MAX_SHADOW else to_host(counts)


implement(_PACK, KEY, _pack)
