"""pyg_lib's points and walks: on the host what brute force finds, on the GPU the bytes that its sources say, by hand."""

from __future__ import annotations

import inspect

import pytest
import torch
from memlint_libraries.pyg_lib import cluster as ops

from tests.libraries.events import on_gpu, simulated

N, K = 1000, 16


def points(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return on_gpu(N, 3, dtype=dtype, grad=False)


def test_on_the_host_neighbours_are_those_of_all_distances():
    x, y = torch.rand(30, 3), torch.rand(20, 3)
    ptr_x, ptr_y = torch.tensor([0, 10, 30]), torch.tensor([0, 8, 20])
    distances = (y[:, None] - x[None]).norm(dim=2)
    distances[:8, 10:] = distances[8:, :10] = torch.inf
    pairs = ops.knn(x, y, 3, ptr_x, ptr_y)
    assert pairs.shape == (2, 60)
    assert pairs[1].view(20, 3).sort().values.equal(distances.topk(3, 1, largest=False).indices.sort().values)
    near = ops.radius(x, y, 0.4, ptr_x, ptr_y)
    assert near.equal((distances < 0.4).nonzero().t())
    assert ops.radius(x, y, 9.0, ptr_x, ptr_y, max_num_neighbors=2)[0].bincount().tolist() == [2] * 20
    assert (ops.radius(x, x, 9.0, ignore_same_index=True).diff(dim=0) != 0).all()
    of_x = ops.nearest(x, y, ptr_x, ptr_y)
    assert of_x.equal(distances.t().argmin(1))


def test_on_the_host_points_are_far_and_lie_in_their_voxels():
    x = torch.tensor([[0.0, 0], [0.1, 0], [1, 1], [5, 5], [5, 6], [9, 9]])
    assert ops.fps(x, torch.tensor([0, 3, 6]), 0.5, random_start=False).tolist() == [0, 2, 3, 5]
    assert ops.grid_cluster(x, torch.tensor([2.0, 2.0])).tolist() == [0, 0, 0, 12, 17, 24]


def test_on_the_host_clusters_are_of_neighbours_and_walks_follow_edges():
    ends, col = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([1, 0, 3, 2])
    assert ops.graclus_cluster(ends, col).tolist() == [0, 0, 2, 2, 4]
    star = torch.tensor([0, 3, 4, 5, 6]), torch.tensor([1, 2, 3, 0, 0, 0])
    heavy = torch.tensor([9.0, 1, 1, 9, 1, 1])
    clusters = {tuple(ops.graclus_cluster(*star, heavy).tolist()) for _ in range(40)}
    assert clusters <= {(0, 0, 2, 3), (0, 1, 0, 3), (0, 1, 2, 0)}
    assert (0, 0, 2, 3) in clusters
    assert ops.random_walk(ends, col, torch.arange(5), 3).tolist() == [
        [0, 1, 0, 1], [1, 0, 1, 0], [2, 3, 2, 3], [3, 2, 3, 2], [4, 4, 4, 4]
    ]  # fmt: skip
    chosen = ops.edge_sample(torch.tensor([0, 2]), torch.tensor([0, 3, 5, 9]), count=0, factor=0.5)
    assert [bool(edge < 3) for edge in chosen] == [True, True, False, False]
    assert ops.edge_sample(torch.tensor([0]), torch.tensor([0, 3]), count=10).sort().values.tolist() == [0, 1, 2]


def test_neighbours_are_found_in_places_for_all_of_them():
    with simulated() as seen:
        x = points()
        seen.begin()
        pairs = ops.knn(x, x, K)
        places = 8 * N * K
        assert (pairs.shape, seen.held) == ((2, N * K), 2 * places)
        # rows and columns, those that are chosen, and their stack; where the example begins and ends, twice; a mask
        assert seen.peak == 6 * places + 2 * 2 * 8 + N * K
        ends = torch.tensor([0, N], device="cuda")
        near = ops.radius(x, x, 0.1, ends, ends, max_num_neighbors=K)
        assert 0 < near.shape[1] <= N * K
        assert any("mask" in text for text in seen.assumptions)


def test_points_that_are_chosen_are_counted_for_each_example():
    with simulated() as seen:
        x, ends = points(), torch.tensor([0, 101, N], device="cuda")
        seen.begin()
        chosen = ops.fps(x, ends, 0.25)
        assert chosen.shape == (26 + 225,)
        # a distance of each; points, starts and places of two examples
        assert seen.peak == 4 * N + 8 * (26 + 225) + 2 * 8 + 2 * 8 + 3 * 8
        assert not any("round" in text for text in seen.assumptions)
        batch = torch.randint(0, 4, (N,), device="cuda").sort().values
        unknown = torch.cat([batch.new_zeros(1), batch.bincount(minlength=4).cumsum(0)])
        assert ops.fps(x, unknown, 0.25).shape == (N // 4,)
        assert any("pyg_lib.fps is taken to round" in text for text in seen.assumptions)


def test_clusters_and_walks_have_a_number_a_node_and_a_step():
    with simulated() as seen:
        x, size = points(), torch.full((3,), 0.5, device="cuda")
        seen.begin()
        assert ops.grid_cluster(x, size).shape == (N,)
        assert seen.peak == 2 * 4 * 3 + 8 * N
        ends, col = (torch.zeros(n, dtype=torch.int64, device="cuda") for n in (N + 1, 8 * N))
        seen.begin()
        assert ops.graclus_cluster(ends, col).shape == (N,)
        # a cluster and a proposal of each, its share and its color
        assert seen.peak == 2 * 8 * N + 2 * 4 * N
        seen.begin()
        assert ops.nearest(x, x[:10]).shape == (N,)
        assert seen.peak == 8 * N + 2 * 16
        start = torch.zeros(N // 2, dtype=torch.int64, device="cuda")
        seen.begin()
        assert ops.random_walk(ends, col, start, 10).shape == (N // 2, 11)
        assert seen.peak == 2 * 8 * 11 * (N // 2) + 4 * 10 * (N // 2)


def test_what_its_kernels_refuse_is_refused():
    with simulated():
        x, half = points(), points(torch.bfloat16)
        ends = torch.tensor([0, N], device="cuda")
        with pytest.raises(RuntimeError, match="must be contiguous"):
            ops.knn(x.t().contiguous().t(), x, 3)
        for refused in (lambda: ops.knn(half, half, 3), lambda: ops.fps(half, ends), lambda: ops.nearest(half, half)):
            with pytest.raises(NotImplementedError, match="not implemented for 'BFloat16'"):
                refused()
        assert ops.grid_cluster(half, torch.full((3,), 0.5, device="cuda")).shape == (N,)
        with pytest.raises(RuntimeError, match="<= 100"):
            ops.knn(x, x, 101)
        with pytest.raises(NotImplementedError, match="pyg::edge_sample"):
            ops.edge_sample(ends, ends)
        with pytest.raises(RuntimeError, match="Uniform sampling"):
            ops.random_walk(ends, ends, ends, 3, p=2.0)


def test_a_sampler_can_be_asked_for_its_parameters_and_not_be_used():
    sample = ops.library.modules["pyg_lib.sampler"]["neighbor_sample"]
    assert {"edge_time", "edge_weight"} <= set(inspect.signature(sample).parameters)
    with pytest.raises(Exception, match=r"pyg_lib\.sampler\.neighbor_sample is used, and pyg-lib is not installed"):
        sample(None, None, None, [3])
