"""Recurrent layers of packed sequences take what they take of padded ones, and lengths may come in every usual form."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from memlint.accelerator import state
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlint.accelerator.ledger import Ledger

STEPS, BATCH, FEATURES, HIDDEN = 7, 4, 5, 6
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
LENGTHS: dict[str, Callable[[], Any]] = {
    "list": lambda: [7, 5, 5, 2],
    "host tensor": lambda: torch.tensor([7, 5, 5, 2]),
    "of the device, cpu()": lambda: torch.tensor([7, 5, 5, 2]).to(device()).cpu(),
    "of the device, to('cpu')": lambda: torch.tensor([7, 5, 5, 2], device=device()).to("cpu"),
    "of the device, long().to(cpu)": lambda: (
        torch.tensor([7.0, 5, 5, 2], device=device()).long().to(torch.device("cpu"))
    ),
    "of the device, tolist()": lambda: torch.tensor([7, 5, 5, 2], device=device()).tolist(),
    "counted": lambda: (
        (torch.arange(7, device=device()) < torch.tensor([[7], [5], [5], [2]], device=device())).sum(-1).cpu()
    ),
}


def device() -> str:
    return "cuda" if state.current.cuda else "cpu"


@pytest.fixture(params=["a100-80gb", "cpu"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    with virtual_device(device_named(request.param)) as ledger:
        yield ledger


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


@pytest.fixture
def assumed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    texts: list[str] = []
    monkeypatch.setattr(state.current, "assume", texts.append)
    return texts


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("form", LENGTHS)
def test_sequences_are_packed_by_known_lengths(
    ledger: Ledger, assumed: list[str], form: str, sort: bool, batch_first: bool
) -> None:
    model = nn.LSTM(FEATURES, HIDDEN, bidirectional=True, batch_first=batch_first).to(device())
    shape = (BATCH, STEPS, FEATURES) if batch_first else (STEPS, BATCH, FEATURES)
    x = torch.rand(shape, device=device(), requires_grad=True)
    packed = pack_padded_sequence(x, LENGTHS[form](), batch_first=batch_first, enforce_sorted=sort)
    assert packed.data.shape == (19, FEATURES)
    assert packed.batch_sizes.tolist() == [4, 4, 3, 3, 3, 1, 1]
    y, _ = model(packed)
    padded, lengths = pad_packed_sequence(y, batch_first=batch_first, total_length=9)
    assert padded.shape == ((BATCH, 9, 2 * HIDDEN) if batch_first else (9, BATCH, 2 * HIDDEN))
    assert lengths.tolist() == [7, 5, 5, 2]
    padded.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert str(x.grad.device).startswith(device())
    assert not [text for text in assumed if "cuDNN" not in text]


def test_lengths_in_any_order_are_sorted_and_put_back(ledger: Ledger) -> None:
    lengths = torch.tensor([2, 7, 5, 5], device=device()).cpu()
    x = torch.rand(BATCH, STEPS, FEATURES, device=device())
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    assert pad_packed_sequence(packed)[1].tolist() == [2, 7, 5, 5]


def test_lengths_that_are_not_known_are_taken_as_all_that_is_padded(ledger: Ledger, assumed: list[str]) -> None:
    lengths = torch.randint(1, STEPS, (BATCH,), device=device()).cpu()
    x = torch.rand(BATCH, STEPS, FEATURES, device=device(), requires_grad=True)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    assert packed.data.shape == (STEPS * BATCH, FEATURES)
    assert assumed == ["pack_padded_sequence() with lengths that are not known is taken to keep every step"]
    y, _ = nn.GRU(FEATURES, HIDDEN).to(device())(packed)
    padded, _ = pad_packed_sequence(y, batch_first=True)
    assert padded.shape == (BATCH, STEPS, HIDDEN)
    padded.sum().backward()
    assert x.grad is not None


def test_lengths_on_the_gpu_raise_what_a_gpu_raises(gpu: Ledger) -> None:
    x = torch.rand(STEPS, BATCH, FEATURES, device="cuda")
    with pytest.raises(
        RuntimeError, match="'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long"
    ):
        pack_padded_sequence(x, torch.tensor([7, 5, 5, 2], device="cuda"))


def test_lengths_out_of_order_raise_what_pytorch_raises(ledger: Ledger) -> None:
    lengths = torch.tensor([2, 7, 5, 5], device=device()).cpu()
    with pytest.raises(RuntimeError, match="decreasing order"):
        pack_padded_sequence(torch.rand(STEPS, BATCH, FEATURES, device=device()), lengths)


def test_sequences_of_their_own_lengths_are_packed(ledger: Ledger) -> None:
    packed = pack_sequence([torch.rand(n, FEATURES, device=device()) for n in (7, 5, 2)])
    assert packed.data.shape == (14, FEATURES)
    assert packed.batch_sizes.tolist() == [3, 3, 2, 2, 2, 1, 1]


def born(ledger: Ledger, layer: nn.Module, x: Any) -> Counter[tuple[int, str]]:
    """Bytes and dtypes of what a forward and backward of `layer` opens."""
    first = len(ledger.births)
    y, _ = layer(x)
    y = y.data if isinstance(y, PackedSequence) else y
    torch.autograd.grad(y, [*layer.parameters(), x.data if isinstance(x, PackedSequence) else x], torch.ones_like(y))
    return Counter((birth.nbytes, str(birth.dtype)) for birth in ledger.births[first:] if birth.nbytes)


def assert_differs_in_workspaces(ledger: Ledger, layer: nn.Module, x: Any) -> None:
    """Padded sequences take what packed ones do, but larger workspaces: one for the forward and two for the backward."""
    born(ledger, layer, x)
    padded, packed = born(ledger, layer, x), born(ledger, layer, pack_padded_sequence(x, [STEPS] * BATCH))
    ((larger, _),), ((smaller, _),) = padded - packed, packed - padded
    assert (padded - packed, packed - padded) == ({(larger, "torch.uint8"): 3}, {(smaller, "torch.uint8"): 3})
    assert larger > smaller


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"num_layers": 2, "dropout": 0.1}])
@pytest.mark.parametrize("name", LAYERS)
def test_equally_long_packed_sequences_take_what_padded_ones_do(
    gpu: Ledger, name: str, options: dict[str, Any]
) -> None:
    layer = LAYERS[name](FEATURES, HIDDEN, **options).to("cuda")
    assert_differs_in_workspaces(gpu, layer, torch.rand(STEPS, BATCH, FEATURES, device="cuda", requires_grad=True))


def test_a_projecting_lstm_takes_packed_sequences(gpu: Ledger) -> None:
    layer = nn.LSTM(FEATURES, HIDDEN, proj_size=3).to("cuda")
    assert_differs_in_workspaces(gpu, layer, torch.rand(STEPS, BATCH, FEATURES, device="cuda", requires_grad=True))


def test_shorter_sequences_keep_less_for_backward(gpu: Ledger) -> None:
    layer = nn.LSTM(FEATURES, 8 * HIDDEN).to("cuda")
    x = torch.rand(STEPS, BATCH, FEATURES, device="cuda", requires_grad=True)

    def reserve(lengths: list[int]) -> int:
        taken = born(gpu, layer, pack_padded_sequence(x, lengths))
        return min(nbytes for nbytes, dtype in taken if dtype == "torch.uint8") - 256

    assert reserve([7, 5, 5, 2]) * 28 == reserve([7, 7, 7, 7]) * 19


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_copies_the_weights_to_float16_whatever_its_dtype(dtype: torch.dtype) -> None:
    with virtual_device(device_named("a100-80gb")) as ledger:
        lstm = torch.nn.LSTM(64, 128, device="cuda")
        x = torch.zeros(5, 3, 64, device="cuda")
        before = len(ledger.births)
        with torch.autocast("cuda", dtype=dtype):
            out, (h, c) = lstm(x)
        weights = sum(w.numel() for w in lstm.parameters())
        copies = [birth.nbytes for birth in ledger.births[before:] if birth.nbytes == 2 * weights]
        (out.float().sum() + h.float().sum() + c.float().sum()).backward()
    assert {out.dtype, h.dtype, c.dtype} == {torch.float16}
    assert copies == [2 * weights]
    assert {w.grad.dtype for w in lstm.parameters() if w.grad is not None} == {torch.float32}
