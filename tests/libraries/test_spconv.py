"""Sparse convolutions take the bytes that spconv's sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch

from memlint.libraries import spconv
from memlint.libraries.library import UnknownFunctionError
from tests.libraries.events import on_gpu, simulated

N, IN, OUT, K = 4096, 16, 32, 27
SIZES = [40, 80, 80]
KNOWN = spconv.library.modules["spconv.pytorch"]


def _sparse(channels: int = IN) -> spconv.SparseConvTensor:
    indices = torch.zeros(N, 4, dtype=torch.int32, device="cuda")
    return spconv.SparseConvTensor(on_gpu(N, channels, dtype=torch.float32), indices, SIZES, 2)


def test_a_convolution_of_the_same_positions_keeps_what_meets_what_both_ways():
    with simulated() as seen:
        layer = KNOWN["SubMConv3d"](IN, OUT, 3, padding=1, bias=False).cuda()
        x = _sparse()
        seen.begin()
        out = layer(x)
        pairs, masks, order = 4 * 2 * K * N, 4 * N, 4 * N
        counts, of_tiles = 4 * K, 4 * (N // 32)  # one for each place; a mask of each tile of 32 positions
        assert out.features.shape == (N, OUT)
        assert out.indices is x.indices
        made = 4 * N * OUT
        assert seen.held == pairs + masks + order + made + of_tiles
        assert seen.peak == max(pairs + counts + 4 * 2 * 2 * N + masks + order + masks + order, seen.held)
        seen.begin()
        gradient = torch.ones_like(out.features)
        out.features.backward(gradient)
        # what meets what goes, what the graph holds beside it stays; gradients of all three
        assert seen.held == -pairs + made + 4 * N * IN + 4 * OUT * K * IN
        assert layer.weight.grad.shape == (OUT, 3, 3, 3, IN)
        assert seen.assumptions == ["kernels of spconv are not run: they take what the sources of version 2.3.8 say"]


def test_layers_of_one_key_look_up_once_and_an_inverse_leads_back():
    with simulated() as seen, torch.no_grad():
        first = KNOWN["SubMConv3d"](IN, IN, 3, padding=1, indice_key="a").cuda().eval()
        down = KNOWN["SparseConv3d"](IN, OUT, 3, stride=2, padding=1, bias=False, indice_key="b").cuda()
        up = KNOWN["SparseInverseConv3d"](OUT, IN, 3, indice_key="b", bias=False).cuda()
        x = first(_sparse())
        seen.begin()
        again = first(x)
        assert seen.held == 4 * N * IN
        seen.begin()
        small = down(again)
        assert (small.spatial_shape, small.features.shape, small.indices.shape) == ([20, 40, 40], (N, OUT), (N, 4))
        # outputs and their positions, pairs both ways, masks and their orders both ways
        assert seen.held == 4 * N * (OUT + 4 + 2 * K + 4)
        # meanwhile keys and values of a table of 2 x 2 x 2 positions for each, two lists of all pairs, two counts
        table, lists, counts = 4 * 2 * int(1.1 * 8 * N), 2 * 4 * (K * N + 1), 4 * (K + 1)
        assert seen.peak == 4 * N * (4 + 2 * K + 4) + table + lists + counts + 2 * 4 * N
        seen.begin()
        back = up(small)
        assert (back.spatial_shape, back.features.shape) == (SIZES, (N, IN))
        assert back.indices is x.indices
        assert seen.held == 4 * N * IN
        assert any("as many positions as it meets" in text for text in seen.assumptions)


def test_a_network_trains_in_half_precision():
    with simulated():
        layers = KNOWN["SparseSequential"](
            KNOWN["SparseConv3d"](IN, OUT, 3, stride=2), torch.nn.BatchNorm1d(OUT), KNOWN["SparseReLU"](),
            KNOWN["SparseMaxPool3d"](2, 2), KNOWN["SubMConv3d"](OUT, 8, 1), KNOWN["ToDense"](),
        ).cuda()  # fmt: skip
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = layers(_sparse())
        assert (out.shape, out.dtype) == ((2, 8, 9, 19, 19), torch.bfloat16)
        out.float().sum().backward()
        assert all(parameter.grad is not None for parameter in layers.parameters())


def test_kernels_of_many_places_have_another_algorithm():
    with simulated(), pytest.raises(UnknownFunctionError, match=r"SubMConv3d\(algo=ConvAlgo.Native\)"):
        KNOWN["SubMConv3d"](IN, OUT, 5)


def test_an_algorithm_is_named():
    algorithms = spconv.library.modules["spconv.core"]["ConvAlgo"]
    assert KNOWN["ConvAlgo"] is algorithms
    with simulated():
        weights = [KNOWN["SubMConv3d"](IN, OUT, 3, algo=algo).weight for algo in (None, algorithms.MaskImplicitGemm)]
        assert weights[0].shape == weights[1].shape
        with pytest.raises(UnknownFunctionError, match=r"algo=ConvAlgo.MaskSplitImplicitGemm"):
            KNOWN["SubMConv3d"](IN, OUT, 3, algo=algorithms.MaskSplitImplicitGemm)
