"""Bytes that cuDNN was asked for to run recurrent layers, recorded on an NVIDIA H200: torch 2.11, cuDNN 9.19."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memlint.cuda.kernels.recurrent_space import GRU, LSTM, RNN_TANH, RecurrentLayers
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

SIZES = {
    "mode": LSTM,
    "itemsize": 4,
    "input_size": 256,
    "hidden": 512,
    "projected": 0,
    "num_layers": 2,
    "directions": 1,
    "rows": 128 * 32,
    "batch": 32,
    "packed": False,
    "dropout": False,
}
WORDS = {"input_size": 200, "hidden": 200, "rows": 35 * 20, "batch": 20, "dropout": True}
BOTH = {"directions": 2}


def layers(**different: Any) -> RecurrentLayers:
    return RecurrentLayers(**{**SIZES, **different})


@pytest.mark.parametrize(
    ("different", "reserve", "workspace"),
    [
        ({}, 92_274_944, 78_905_856),
        ({"itemsize": 2}, 46_137_600, 47_841_792),
        ({"mode": GRU}, 109_052_160, 66_191_872),
        ({"mode": GRU, "itemsize": 2}, 54_526_208, 41_484_800),
        ({"mode": RNN_TANH}, 25_166_080, 56_230_400),
        ({"mode": RNN_TANH, "itemsize": 2}, 12_583_168, 36_504_064),
        ({"projected": 128}, 113_246_464, 71_893_504),
        ({"projected": 128, "itemsize": 2}, 56_623_360, 44_335_616),
        ({**BOTH, "dropout": True}, 185_598_208, 196_084_224),
        ({**BOTH, "dropout": True, "itemsize": 2}, 93_323_520, 114_819_584),
        ({"packed": True, "rows": sum(range(85, 101)), "batch": 16}, 33_341_696, 43_974_912),
        ({"input_size": 650, "hidden": 650, "dropout": True}, 117_478_656, 120_028_928),
        (WORDS, 6_177_760, 23_577_632),
    ],
)
def test_what_was_recorded_is_asked_for(different: dict[str, Any], reserve: int, workspace: int) -> None:
    assert layers(**different).reserve() == reserve
    assert layers(**different).workspace(train=True) == workspace


def test_evaluation_takes_less() -> None:
    assert layers(**WORDS | {"rows": 35 * 10, "batch": 10}).workspace(train=False) == 21_177_568


@pytest.mark.parametrize(
    ("itemsize", "reserve", "workspace"), [(4, 218_104_064, 172_753_408), (2, 109_052_160, 103_154_176)]
)
def test_a_gru_in_two_directions_takes_a_hundredth_less(itemsize: int, reserve: int, workspace: int) -> None:
    gru = layers(mode=GRU, itemsize=itemsize, **BOTH)
    assert gru.reserve() == reserve
    assert workspace <= gru.workspace(train=True) <= 1.01 * workspace


@pytest.mark.parametrize(("mode", "tensors"), [(LSTM, 23), (GRU, 27)])
def test_four_layers_keep_what_they_kept_on_a_p100(mode: int, tensors: int) -> None:
    of_outputs = 32_000_000
    four = layers(mode=mode, input_size=123, hidden=320, num_layers=4, rows=of_outputs // 320 // 4)
    assert four.reserve() == tensors * of_outputs + 256


def test_bounds_are_open_where_nothing_was_recorded() -> None:
    def bounds(is_hopper: bool = True, **different: Any) -> list[float]:
        of = layers(**different)
        return [n / of.workspace(train=True) for n in of.bounds(train=True, is_hopper=is_hopper)]

    assert bounds() == [1, 1]
    assert bounds(hidden=200, dropout=True) == [1, 1]
    for different in ({"is_hopper": False}, {"mode": RNN_TANH}, BOTH, {"num_layers": 1}, {"num_layers": 4}):
        least, most = bounds(**different)
        assert 0 < least < 1 < most
    for different in ({"hidden": 192}, {"mode": RNN_TANH, "hidden": 384}, {"num_layers": 1, "itemsize": 2}):
        assert bounds(**different)[0] == 0
    assert bounds(hidden=192, packed=True) == bounds(hidden=192, itemsize=8) == [1, 1]


def taken(layer: Any, x: Any, dtype: torch.dtype) -> list[int]:
    """Bytes of what a forward and a backward open on the GPU, in order, from the initial states on."""
    with virtual_device(device_named("h200")) as ledger:
        layer, x = layer.to("cuda", dtype), x.to("cuda", dtype)
        out, _ = layer(x)
        first = len(ledger.births)
        out, _ = layer(x)
        out.backward(torch.ones_like(out))
        return [birth.nbytes for birth in ledger.births[first:] if birth.nbytes]


def test_an_lstm_takes_what_was_recorded_in_this_order() -> None:
    state, x, out, weights, workspace = 131_072, 4_194_304, 8_388_608, 14_712_832, 78_905_856
    forward = [state, state, x, out, state, state, workspace, 92_274_944]
    gradients = [out, state, state, x, x, state, state, workspace]
    lstm = nn.LSTM(256, 512, 2, batch_first=True)
    assert taken(lstm, torch.empty(32, 128, 256), torch.float32) == [*forward, *gradients, x, weights, workspace]


def test_bfloat16_copies_its_weights_at_every_call() -> None:
    state, x, out, weights, workspace = 65_536, 2_097_152, 4_194_304, 5_517_312, 41_484_800
    forward = [state, x, out, state, weights, workspace, 54_526_208]
    gradients = [out, state, x, x, state, workspace]
    gru = nn.GRU(256, 512, 2, batch_first=True)
    assert taken(gru, torch.empty(32, 128, 256), torch.bfloat16) == [*forward, *gradients, x, weights, workspace]


def test_gradients_that_follow_the_batch_are_brought_in_order_of_steps() -> None:
    with virtual_device(device_named("h200")) as ledger:
        layer, x = nn.GRU(8, 500, batch_first=True).to("cuda"), torch.empty(4, 6, 8, device="cuda")
        out, _ = layer(x)
        grad = torch.ones(out.shape, device="cuda")
        first = len(ledger.births)
        out.backward(grad)
        assert [birth.nbytes for birth in ledger.births[first:]].count(grad.nbytes) == 1


def test_layers_without_biases_copy_their_gradients() -> None:
    def of_backward(bias: bool) -> int:
        births = taken(nn.LSTM(256, 512, 2, bias=bias), torch.empty(128, 32, 256), torch.float32)
        return births.count(4 * 4 * 512 * 256) + births.count(4 * 4 * 512 * 512)

    assert of_backward(False) - of_backward(True) == 4


def test_random_numbers_of_dropout_are_made_once_and_kept() -> None:
    with virtual_device(device_named("h200")) as ledger:
        layer, x = nn.LSTM(256, 512, 2, dropout=0.1).to("cuda"), torch.empty(128, 32, 256, device="cuda")
        layer.eval()(x)
        assert 6_488_064 not in [birth.nbytes for birth in ledger.births]
        layer.train()
        layer(x)
        layer(x)
        (number,) = [n for n, birth in enumerate(ledger.births) if birth.nbytes == 6_488_064]
        assert ~number not in ledger.events
