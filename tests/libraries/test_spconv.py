"""Sparse convolutions take the bytes that spconv's sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries import spconv

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


def test_kernels_of_many_places_gather_rows_for_each_place():
    places = 125
    with simulated() as seen:
        layer = KNOWN["SubMConv3d"](IN, OUT, 5, padding=2, bias=False).cuda()
        assert layer.algo is KNOWN["ConvAlgo"].Native
        x = _sparse()
        (on_gpu(8, 8) @ on_gpu(8, 8)).sum().backward()  # cuBLAS has its workspaces from now on
        seen.begin()
        out = layer(x)
        # what comes in and goes out at each place, and how often, are kept for backward
        assert seen.held == 4 * 2 * places * N + 4 * places + 4 * N * OUT
        assert seen.peak == max(seen.held, 4 * 2 * places * N + 4 * places + 4 * 2 * 2 * N)
        seen.begin()
        gradient = torch.ones_like(out.features)
        out.features.backward(gradient)
        kept = 4 * 2 * places * N + 4 * places
        assert seen.held == 4 * N * (OUT + IN) + 4 * OUT * places * IN - kept
        with torch.autocast("cuda"):
            assert layer(x).features.dtype is torch.float16


def test_a_stride_sorts_what_is_unique_and_an_inverse_takes_the_same_pairs():
    native = KNOWN["ConvAlgo"].Native
    with simulated() as seen, torch.no_grad():
        down = KNOWN["SparseConv3d"](IN, OUT, 3, stride=2, padding=1, bias=False, indice_key="a", algo=native).cuda()
        up = KNOWN["SparseInverseConv3d"](OUT, IN, 3, indice_key="a", bias=False, algo=native).cuda()
        x = _sparse()
        seen.begin()
        small = down(x)
        pairs, counts = 4 * 2 * K * N, 4 * K
        assert small.spatial_shape == [20, 40, 40]
        assert seen.held == pairs + counts + 4 * N * (OUT + 4)
        # two lists of all pairs, and one more to sort by digits; later positions, and a table of twice these
        lists = 4 * (K * N + 1)
        assert seen.peak == pairs + counts + 2 * lists + max(lists, 4 * N * (4 + 4))
        seen.begin()
        back = up(small)
        assert back.indices is x.indices
        assert (back.spatial_shape, back.features.shape) == (SIZES, (N, IN))
        assert seen.held == 4 * N * IN
    with simulated() as seen:
        x = _sparse()
        seen.begin()
        out = KNOWN["SparseMaxPool3d"](3, 2, algo=native)(x)
        assert seen.held == 4 * N * (IN + 4) + pairs + counts
        out.features.sum().backward()


def test_masks_of_two_halves_are_sorted_apart():
    split = KNOWN["ConvAlgo"].MaskSplitImplicitGemm
    with simulated() as seen:
        layer = KNOWN["SubMConv3d"](IN, OUT, 3, padding=1, bias=False, algo=split).cuda()
        x = _sparse()
        seen.begin()
        out = layer(x)
        pairs, masks, order, of_tiles = 4 * 2 * K * N, 2 * 4 * N, 2 * 4 * N, 2 * 4 * (N // 32)
        assert seen.held == pairs + masks + order + of_tiles + 4 * N * OUT
        assert seen.peak == max(pairs + 4 * K + 4 * 2 * 2 * N + masks + order + 2 * 4 * N, seen.held)
        out.features.sum().backward()
        many = KNOWN["SubMConv3d"](IN, OUT, 5, algo=split).cuda()
        with pytest.raises(AssertionError, match="Not Implemented"):
            many(x)


def test_layers_of_one_key_are_of_one_algorithm():
    algorithms = spconv.library.modules["spconv.core"]["ConvAlgo"]
    assert KNOWN["ConvAlgo"] is algorithms
    with simulated():
        first = KNOWN["SubMConv3d"](IN, IN, 3, indice_key="a").cuda()
        other = KNOWN["SubMConv3d"](IN, IN, 3, indice_key="a", algo=algorithms.Native).cuda()
        x = first(_sparse())
        with pytest.raises(AssertionError, match="same algo"):
            other(x)


def test_a_layer_that_is_not_trained_has_no_gradient_and_keeps_its_dtype():
    with simulated() as seen:
        layer = KNOWN["SubMConv3d"](IN, OUT, 3, padding=1, bias=False).cuda().eval()
        x = _sparse()
        with torch.autocast("cuda"):
            seen.begin()
            out = layer(x)
        assert (out.features.dtype, out.features.requires_grad) == (torch.float32, False)
        assert seen.held == 4 * N * OUT


def test_positions_of_a_dense_tensor_are_at_most_all():
    with simulated() as seen:
        dense = on_gpu(2, 5, 6, 3, dtype=torch.float32)
        x = spconv.SparseConvTensor.from_dense(dense)
        assert (x.spatial_shape, x.batch_size) == ([5, 6], 2)
        assert (x.features.shape, x.indices.shape, x.indices.dtype) == ((180, 3), (180, 3), torch.int32)
        assert any("select half of its elements, and at most all" in text for text in seen.assumptions)
        x.features.sum().backward()
        assert dense.grad.shape == dense.shape
    with simulated() as seen:
        image = torch.zeros(1, 5, 6, 1)
        image[0, 2, 3], image[0, 4, 4] = 1, 2
        x = spconv.SparseConvTensor.from_dense(image.cuda())
        assert (x.features.shape, x.indices.shape) == ((2, 1), (2, 3))
        assert not seen.assumptions
        # black images stand for data: of zeros alone no layer could be trained
        assert len(spconv.SparseConvTensor.from_dense(torch.zeros(1, 5, 6, 1).cuda()).indices) == 30
        assert any("zeros alone" in text for text in seen.assumptions)


def test_a_dense_tensor_comes_back_with_its_values_on_the_host():
    dense = torch.zeros(2, 4, 5, 3)
    dense[0, 1, 2], dense[1, 3, 4, 1] = 1, 7
    x = spconv.SparseConvTensor.from_dense(dense)
    assert x.indices.tolist() == [[0, 1, 2], [1, 3, 4]]
    assert x.dense(channels_first=False).equal(dense)
    assert x.dense().equal(dense.permute(0, 3, 1, 2))
    assert repr(x) == "SparseConvTensor[shape=torch.Size([2, 3])]"


def test_features_are_replaced_and_never_set():
    dense = torch.arange(12.0).view(1, 2, 3, 2) + 1
    x = spconv.SparseConvTensor.from_dense(dense)
    x.indice_dict["a"] = known = object()
    for made, values in (
        (x.minus(), -x.features), (x + x, 2 * x.features), (x.features + x, 2 * x.features),
        (x.shadow_copy(), x.features), (x.replace_feature(x.features[:, :1]), x.features[:, :1]),
    ):  # fmt: skip
        assert made.features.equal(values)
        assert made.indices is x.indices
        assert made.find_indice_pair("a") is known
        assert made.find_indice_pair(None) is None
    assert (x.spatial_size, x.is_quantized, x.grid.numel()) == (6, False, 0)
    before = x.features.clone()
    for setting in (
        lambda: setattr(x, "features", before), lambda: x.select_by_index(torch.tensor([1])), lambda: x.__iadd__(x),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="can't set feature directly"):
            setting()
    assert x.features.equal(2 * before)  # as the library: added in place before they are set
    with pytest.raises(ValueError, match="must be quantized"):
        x.q_scale()
    with pytest.raises(AssertionError):
        x + 1
    with pytest.raises(AssertionError, match="only support int32"):
        spconv.SparseConvTensor(before, x.indices.long(), [2, 3], 1)


def test_a_mean_keeps_how_many_a_position_meets():
    pairs = spconv.pairs.Shape([2] * 3, [2] * 3, [0] * 3, [1] * 3, [0] * 3)
    assert pairs.after(SIZES, transposed=False) == [20, 40, 40]
    with simulated() as seen:
        x = _sparse()
        layer = KNOWN["SparseAvgPool3d"](2)
        seen.begin()
        out = layer(x)
        assert (out.spatial_shape, out.features.shape) == ([20, 40, 40], (N, IN))
        # the output and its positions, and for backward the pairs one way and an int32 of each; `out` holds no pairs
        assert seen.held == 4 * N * (IN + 4 + 8 + 1)
        seen.begin()
        out.features.backward(torch.ones_like(out.features))
        assert seen.held == 4 * N * (IN - 8 - 1)  # the gradient, and what was saved goes
        with torch.no_grad():
            seen.begin()
            _kept = layer.eval()(x)
            assert seen.held == 4 * N * (IN + 4)
        with pytest.raises(AssertionError, match="kv <= 32"):
            KNOWN["SparseAvgPool3d"](4)
        twice = KNOWN["SparseMaxPool3d"](3, 1, 1, indice_key="a")
        once = twice(x)
        with pytest.raises(AssertionError, match="key a already exists"):
            twice(once)


def test_a_pool_over_all_gathers_the_rows_of_each_example():
    with simulated() as seen:
        x = spconv.SparseConvTensor(
            on_gpu(10, 4, dtype=torch.float32), torch.empty(10, 3, dtype=torch.int32, device="cuda"), [8, 8], 3
        )
        seen.begin()
        out = KNOWN["SparseGlobalMaxPool"]()(x)
        assert out.shape == (3, 4)
        assert any("spread evenly over the examples" in text for text in seen.assumptions)
        out.sum().backward()
        assert KNOWN["SparseGlobalAvgPool"]()(x).shape == (3,)  # the library takes one channel
    with simulated() as seen:
        indices = torch.zeros(10, 3, dtype=torch.int32)
        indices[7:, 0] = 1
        x = spconv.SparseConvTensor(on_gpu(10, 4, dtype=torch.float32), indices.cuda(), [8, 8], 2)
        assert KNOWN["SparseGlobalMaxPool"]()(x).shape == (2, 4)
        assert not any("evenly" in text for text in seen.assumptions)


def test_tables_put_features_together():
    first = spconv.SparseConvTensor.from_dense(torch.arange(12.0).view(1, 2, 3, 2) + 1)
    second = first.minus()
    assert KNOWN["JoinTable"]()([first, second]).features.equal(torch.cat([first.features, -first.features], 1))
    assert KNOWN["AddTable"]()([first, second]).features.count_nonzero() == 0
    both = KNOWN["ConcatTable"]().add(KNOWN["Identity"]()).add(KNOWN["ToDense"]())(first)
    assert both[0] is first
    assert both[1].equal(first.dense())
    assert KNOWN["ConcatTable"]().add(KNOWN["Identity"]()).input_spatial_size([3]) == [3]
    other = spconv.SparseConvTensor.from_dense(torch.ones(1, 2, 2, 2))
    with pytest.raises(AssertionError, match="other sizes"):
        KNOWN["AddTable"]()([first, other])
    with simulated() as seen:
        x, y = _sparse(), _sparse()
        seen.begin()
        _both = KNOWN["AddTable"]()([x, y])
        assert seen.held == 4 * N * IN
        assert seen.peak == 2 * 4 * N * IN  # zero and the first, and both


def test_sums_of_other_positions_have_those_of_both():
    add = spconv.library.modules["spconv.pytorch.functional"]["sparse_add"]
    left, right = torch.zeros(1, 2, 3, 2), torch.zeros(1, 2, 3, 2)
    left[0, 0, 1], right[0, 0, 1], right[0, 1, 2] = 1, 2, 5
    total = add(spconv.SparseConvTensor.from_dense(left), spconv.SparseConvTensor.from_dense(right))
    assert total.dense(channels_first=False).equal(left + right)
    by_table = spconv.library.modules["spconv.pytorch.tables"]["AddTableMisaligned"]()
    with simulated() as seen:
        x, y = _sparse(), _sparse()
        seen.begin()
        out = by_table([x, y])
        assert (out.features.shape, out.indices.shape) == ((2 * N, IN), (2 * N, 4))
        # sums and positions; int64 rows of both for backward
        assert seen.held == 4 * 2 * N * (IN + 4) + 2 * 8 * N
        assert any("meet no position twice" in text for text in seen.assumptions)
        out.features.sum().backward()


def test_modules_in_a_row_are_found_by_place_and_name():
    row = KNOWN["SparseSequential"](KNOWN["SubMConv2d"](2, 3, 3), torch.nn.ReLU(), last=KNOWN["ToDense"]())
    row.add(KNOWN["Identity"]())
    assert list(row._modules) == ["0", "1", "last", "3"]
    assert (len(row), type(row[-2]).__name__) == (4, "ToDense")
    assert not isinstance(row, torch.nn.Sequential)  # nor is it there
    KNOWN["assign_name_for_sparse_modules"](row)
    assert (row[0]._sparse_unique_name, row[2]._sparse_unique_name) == ("0", "last")
    with pytest.raises(IndexError):
        row[4]
    named = KNOWN["SparseSequential"](torch.nn.modules.container.OrderedDict(a=torch.nn.ReLU()))
    assert list(named._modules) == ["a"]


def test_a_pool_over_all_has_its_values_on_the_host():
    indices = torch.tensor([[0, 1], [1, 2], [0, 3]], dtype=torch.int32)
    x = spconv.SparseConvTensor(torch.tensor([[1.0, 5], [9, 2], [3, 4]]), indices, [4], 2)
    assert KNOWN["SparseGlobalMaxPool"]()(x).tolist() == [[3, 5], [9, 2]]
