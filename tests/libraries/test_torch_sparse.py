"""torch_sparse: on the host the values of its documentation, on the GPU the bytes that its sources say, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from memlint_libraries.torch_sparse import SparseTensor, arithmetic, diagonal, entries, selection, storage

from memlint.libraries.library import UnknownFunctionError
from tests.libraries.events import on_gpu, simulated

NODES, EDGES, WIDTH = 1000, 20_000, 64
I = 8 * EDGES  # noqa: E741 -- an index of each edge
P = 8 * (NODES + 1)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Places in any order, each once, values, and the size."""
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    places = draw(st.lists(st.integers(0, rows * columns - 1), min_size=1, max_size=12, unique=True))
    index = torch.stack([torch.tensor(places) // columns, torch.tensor(places) % columns])
    values = torch.tensor(draw(st.lists(st.integers(1, 9), min_size=len(places), max_size=len(places)))).double()
    return index, values, rows, columns


def dense_of(index: torch.Tensor, values: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The same with zeros between."""
    return torch.zeros(rows, columns, dtype=values.dtype).index_put_((index[0], index[1]), values)


@given(matrices())
def test_on_the_host_a_matrix_is_what_its_entries_say(parts):
    index, values, rows, columns = parts
    dense = dense_of(*parts)
    matrix = SparseTensor.from_edge_index(index, values, (rows, columns))
    other = torch.arange(columns * 3.0, dtype=torch.double).view(columns, 3)
    assert matrix.to_dense().equal(dense)
    assert matrix.t().to_dense().equal(dense.t())
    assert matrix.t().t().to_dense().equal(dense)
    assert torch.allclose(matrix @ other, dense @ other)
    assert torch.allclose(matrix.t() @ torch.ones(rows, 1).double(), dense.t() @ torch.ones(rows, 1).double())
    assert matrix.sum(dim=1).equal(dense.sum(1))
    assert matrix.sum(dim=0).equal(dense.sum(0))
    number = dense.count_nonzero(1).clamp(min=1).view(-1, 1)
    assert torch.allclose(matrix.matmul(other, "mean"), dense @ other / number)
    messages = torch.where(dense.unsqueeze(-1) != 0, dense.unsqueeze(-1) * other, -torch.inf).amax(1)
    assert matrix.matmul(other, "max").equal(messages.masked_fill(messages == -torch.inf, 0))
    assert arithmetic.mul(matrix, torch.full((rows, 1), 2.0)).to_dense().equal(2 * dense)
    assert arithmetic.mul(matrix, torch.full((1, columns), 3.0)).to_dense().equal(3 * dense)
    assert matrix.fill_cache_().storage.csc2csr()[matrix.storage.csr2csc()].equal(torch.arange(len(values)))


@given(matrices(), st.integers(-2, 2))
def test_on_the_host_a_diagonal_is_taken_out_and_put_in(parts, k):
    index, values, rows, columns = parts
    dense = dense_of(*parts)
    if len(dense.diagonal(k)) == 0:
        return
    matrix = SparseTensor.from_edge_index(index, values, (rows, columns))
    without = dense.clone()
    without.diagonal(k).zero_()
    assert diagonal.remove_diag(matrix, k).to_dense().equal(without)
    without.diagonal(k).fill_(7)
    filled = diagonal.fill_diag(matrix, 7.0, k)
    assert filled.to_dense().equal(without)
    assert filled.storage.rowptr().diff().equal(without.count_nonzero(1))


def test_on_the_host_entries_of_one_place_are_put_together():
    index = torch.tensor([[1, 0, 1, 1, 0], [0, 1, 0, 1, 1]])
    value = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    together, sums = entries.coalesce(index, value, 2, 2)
    assert together.tolist() == [[0, 1, 1], [1, 0, 1]]
    assert sums is not None
    assert sums.tolist() == [7.0, 4.0, 4.0]
    turned, most = entries.transpose(together, sums, 2, 2)
    assert (turned.tolist(), most.tolist()) == ([[0, 1, 1], [1, 0, 1]], [4.0, 7.0, 4.0])
    symmetric = SparseTensor(torch.tensor([0, 0]), None, torch.tensor([1, 2]), torch.tensor([1.0, 2.0]), (3, 3))
    assert symmetric.to_symmetric().to_dense().tolist() == [[0, 1, 2], [1, 0, 0], [2, 0, 0]]
    product = entries.spmm(together, sums, 2, 2, torch.eye(2))
    assert product.tolist() == [[0, 7], [4, 4]]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_gradients_on_the_host_are_those_of_the_dense_product(reduce):
    row, col = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 2, 0])
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.double, requires_grad=True)
    other = torch.randn(3, 2, dtype=torch.double, requires_grad=True)

    def product(values, other):
        return SparseTensor(row, None, col, values, (3, 3)).matmul(other, reduce)

    assert torch.autograd.gradcheck(product, (values, other))


def test_edges_are_sorted_once_and_what_comes_of_it_is_kept():
    with simulated() as seen:
        edges = torch.zeros((2, EDGES), dtype=torch.int64, device="cuda")
        seen.begin()
        adjacency = SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES))
        assert seen.held == 2 * I  # the sorted rows and columns; the edges stay the program's
        adjacency.storage.rowptr()
        assert seen.held == 2 * I + P
        adjacency.storage.rowptr()
        assert seen.held == 2 * I + P
        adjacency.storage.csr2csc()
        assert seen.held == 3 * I + P
        assert any("sort the edges" in text for text in seen.assumptions)


def test_a_product_keeps_the_matrix_and_the_order_of_columns():
    with simulated() as seen:
        edges = torch.zeros((2, EDGES), dtype=torch.int64, device="cuda")
        adjacency = SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES))
        x = on_gpu(NODES, WIDTH, dtype=torch.float32)
        output = 4 * NODES * WIDTH
        seen.begin()
        out = adjacency.matmul(x)
        # where rows and columns begin, the order of columns, and the output
        assert seen.held == output + 2 * P + I
        seen.begin()
        out.backward(torch.empty_like(out))
        # the gradient that was given is dropped, that of the features stays; rows in the order of columns beside both
        assert seen.peak == 2 * output + I
        assert x.grad is not None


def test_the_largest_keeps_positions():
    with simulated() as seen:
        edges = torch.zeros((2, EDGES), dtype=torch.int64, device="cuda")
        adjacency = SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES))
        adjacency.storage.rowptr()
        x = on_gpu(NODES, WIDTH, dtype=torch.float32)
        seen.begin()
        out = adjacency.matmul(x, reduce="max")
        assert seen.held == 4 * NODES * WIDTH + 8 * NODES * WIDTH
        del out
        assert seen.held == 0


def test_a_diagonal_is_put_beside_all_edges():
    with simulated() as seen:
        edges = torch.empty((2, EDGES), dtype=torch.int64, device="cuda")
        adjacency = SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES))
        looped = diagonal.fill_diag(adjacency, 1.0)
        assert looped.nnz() == EDGES + NODES
        degree = looped.sum(dim=1)
        scaled = arithmetic.mul(looped.fill_value(1.0), degree.view(-1, 1))
        assert scaled.storage.value().shape == (EDGES + NODES,)
        assert any("no node to itself" in text for text in seen.assumptions)


def test_what_is_not_known_is_named():
    matrix = SparseTensor(torch.tensor([0]), None, torch.tensor([0]))
    with pytest.raises(UnknownFunctionError, match=r"torch_sparse\.SparseTensor\.partition"):
        matrix.partition(2)
    assert (matrix @ matrix).to_dense().tolist() == [[1]]


@given(matrices(), matrices(), st.data())
def test_sums_and_parts_on_the_host_are_those_of_dense_matrices(parts, others, data):
    index, values, rows, columns = parts
    dense, other = dense_of(*parts), dense_of(*others)
    matrix = SparseTensor.from_edge_index(index, values, (rows, columns))
    second = SparseTensor.from_edge_index(others[0], others[1], others[2:])
    height, width = max(rows, others[2]), max(columns, others[3])
    padded = [torch.nn.functional.pad(d, (0, width - d.shape[1], 0, height - d.shape[0])) for d in (dense, other)]
    assert torch.equal((matrix + second).to_dense(), padded[0] + padded[1])
    by_row = torch.arange(rows, dtype=torch.double).view(-1, 1)
    assert torch.equal((matrix + by_row).to_dense(), torch.where(dense != 0, dense + by_row, 0.0))
    assert torch.equal(selection.cat([matrix, second], (0, 1)).to_dense(), torch.block_diag(dense, other))
    for dim, size in enumerate((rows, columns)):
        beside = torch.cat([padded[0], padded[1]], dim)
        both = [SparseTensor.from_dense(each) for each in padded]
        assert torch.equal(selection.cat(both, dim).to_dense(), beside)
        chosen = torch.tensor(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4)))
        assert torch.equal(matrix.index_select(dim, chosen).to_dense(), dense.index_select(dim, chosen))
        mask = torch.zeros(size, dtype=torch.bool)
        mask[chosen] = True
        assert torch.equal(matrix.masked_select(dim, mask).to_dense(), dense.index_select(dim, mask.nonzero()[:, 0]))
        start = data.draw(st.integers(0, size - 1))
        assert torch.equal(matrix.narrow(dim, start, size - start).to_dense(), dense.narrow(dim, start, size - start))
        made = matrix.narrow(dim, start, size - start)
        assert torch.equal(made.storage.colcount(), (dense.narrow(dim, start, size - start) != 0).sum(0))
    assert torch.equal(matrix[0].to_dense(), dense[:1])
    assert torch.equal(matrix[..., :1].to_dense(), dense[:, :1])
    assert torch.equal(matrix[np.array([0]), np.ones(columns, dtype=bool)].to_dense(), dense[:1])
    assert torch.equal(matrix[[0]].get_diag(), dense[0, :1])
    assert torch.equal(SparseTensor.eye(rows, columns).to_dense(), torch.eye(rows, columns))
    assert torch.equal(matrix.masked_select_nnz(matrix.storage.value() > 4).to_dense(), dense * (dense > 4))


def test_on_the_gpu_a_part_of_the_rows_has_its_share_of_the_entries():
    with simulated() as seen:
        index, values = on_gpu(2, EDGES, dtype=torch.int64, grad=False), on_gpu(EDGES, grad=False)
        matrix = SparseTensor(index[0], None, index[1], values, (NODES, NODES), is_sorted=True)
        matrix.storage.rowcount()
        chosen = torch.arange(NODES // 4, device="cuda")
        seen.begin()
        part = matrix.index_select(0, chosen)
        # rows and columns of a quarter, and their values in bfloat16; where rows begin, and how many each has
        assert seen.held == (2 * 8 + 2) * EDGES // 4 + 8 * (NODES // 4 + 1) + 8 * NODES // 4
        assert part.sparse_sizes() == (NODES // 4, NODES)
        assert part.nnz() == EDGES // 4
        assert matrix.permute(torch.arange(NODES)).nnz() == EDGES  # an order that lies on the host
        assert matrix[:, : NODES // 2].nnz() == EDGES // 2
        assert matrix[NODES // 2 :].nnz() == EDGES // 2
        assert (part + part).nnz() == EDGES // 2
        mask = torch.zeros(NODES, dtype=torch.bool, device="cuda")
        mask[: NODES // 4] = True
        assert [matrix.masked_select(dim, mask).nnz() for dim in (0, 1)] == [EDGES // 4] * 2
        assert any("evenly" in text for text in seen.assumptions)


@given(matrices(), matrices())
def test_on_the_host_products_of_entries_and_other_sizes_are_those_of_dense_matrices(parts, others):
    index, values, rows, columns = parts
    dense, other = dense_of(*parts), dense_of(*others)
    matrix = SparseTensor.from_edge_index(index, values, (rows, columns))
    second = SparseTensor.from_edge_index(others[0], others[1], others[2:])
    height, width = max(rows, others[2]), max(columns, others[3])
    padded = [torch.nn.functional.pad(d, (0, width - d.shape[1], 0, height - d.shape[0])) for d in (dense, other)]
    assert torch.equal((matrix * second).to_dense(), padded[0] * padded[1])
    assert torch.equal(matrix.fill_cache_().sparse_resize((height, width)).to_dense(), padded[0])
    assert matrix.sparse_resize((height, width)).storage.rowptr().diff().equal(padded[0].count_nonzero(1))
    assert torch.equal(matrix.sparse_reshape(-1, 1).to_dense(), dense.reshape(-1, 1))
    assert matrix.storage.cached_keys() == ["rowcount", "colptr", "colcount", "csr2csc", "csc2csr"]
    assert matrix.clear_cache_().storage.num_cached_keys() == 0
    assert torch.equal(matrix.max(dim=1), torch.where(dense != 0, dense, 0).amax(1))
    square = padded[0][: min(height, width), : min(height, width)]
    order = torch.randperm(len(square))
    assert torch.equal(SparseTensor.from_dense(square).permute(order).to_dense(), square[order][:, order])
    assert torch.equal(SparseTensor.from_scipy(matrix.to_scipy("csc")).to_dense(), dense)
    assert matrix == matrix.clone()


def test_a_copy_keeps_its_own_values_and_what_it_works_out():
    matrix = SparseTensor(torch.tensor([0, 1]), None, torch.tensor([1, 0]), torch.tensor([1.0, 2.0]), (2, 2))
    copy = matrix.copy()
    copy.set_value_(torch.tensor([5.0, 6.0]), "coo").fill_cache_()
    assert matrix.storage.value().tolist() == [1, 2]
    assert matrix.storage.num_cached_keys() == 0


def test_on_the_gpu_places_in_common_are_at_most_those_of_the_smaller_matrix():
    with simulated() as seen:
        matrices = []
        for number in (EDGES, EDGES // 2):
            row, col = torch.empty((2, number), dtype=torch.int64, device="cuda")
            value = on_gpu(number, dtype=torch.float32, grad=False)
            matrices.append(SparseTensor(row, None, col, value, (NODES, NODES), is_sorted=True))
        seen.begin()
        both = matrices[0] * matrices[1]
        assert both.nnz() == EDGES // 2
        assert seen.held == (8 + 8 + 4) * EDGES // 2
        assert any("in common" in text for text in seen.assumptions)


def test_walks_are_drawn_the_other_way_round_first():
    with simulated() as seen:
        edges = torch.zeros((2, EDGES), dtype=torch.int64, device="cuda")
        matrix = SparseTensor.from_edge_index(edges, sparse_sizes=(NODES, NODES))
        matrix.storage.rowptr()
        start = torch.arange(100, device="cuda")
        seen.begin()
        walks = matrix.random_walk(start, 20)
        assert walks.shape == (100, 21)
        assert seen.held == 8 * 100 * 21
        assert seen.peak == 2 * 8 * 100 * 21 + 4 * 100 * 20  # both ways, and a float32 a step
        with pytest.raises(RuntimeError, match="No CUDA version"):
            matrix.saint_subgraph(start)


def test_on_the_host_neighbours_that_are_drawn_are_neighbours():
    dense = (torch.rand(20, 20, generator=torch.Generator().manual_seed(0)) < 0.3).double()
    matrix = SparseTensor.from_dense(dense)
    nodes = torch.tensor([3, 7, 11])
    for replace in (False, True):
        part, met = matrix.sample_adj(nodes, 2, replace)
        assert part.nnz() == 6
        assert met[:3].equal(nodes)
        row, col, _ = part.coo()
        assert dense[met[row], met[col]].all()
    part, chosen = matrix.saint_subgraph(nodes)
    assert torch.equal(part.to_dense(), dense[nodes][:, nodes])
    assert matrix.storage.row()[chosen].tolist() == nodes[part.storage.row()].tolist()
    walks = matrix.random_walk(nodes, 5)
    assert dense[walks[:, :-1], walks[:, 1:]].all()
    draw = storage.library.ops["torch_sparse::neighbor_sample"]
    colptr, row, _ = matrix.csc()
    met, rows, columns, _ = draw(colptr, row, nodes, [2, 2], False, True)
    assert dense[met[rows], met[columns]].all()
    ego = storage.library.ops["torch_sparse::ego_k_hop_sample_adj"]
    begins, columns, met, _, ends, roots = ego(matrix.storage.rowptr(), matrix.storage.col(), nodes, 1, 50, False)
    assert met[roots].equal(nodes)
    first = met[: ends[1]]
    assert first.tolist() == sorted({3, *dense[3].nonzero().flatten().tolist()})
    assert begins[ends[1]] == dense[first][:, first].sum()
