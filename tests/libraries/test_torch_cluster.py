"""torch_cluster takes the bytes that its sources say: worked out here by hand."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries import torch_cluster

from tests.libraries.events import on_gpu, simulated

N, K = 1000, 16


def test_on_the_host_functions_have_values():
    x = torch.tensor([[0.0, 0], [0.1, 0], [1, 1], [5, 5], [5, 6], [9, 9]])
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    assert torch_cluster.knn_graph(x, 1, batch).tolist() == [[1, 0, 1, 4, 3, 4], [0, 1, 2, 3, 4, 5]]
    assert torch_cluster.radius_graph(x, 1.2, batch).tolist() == [[1, 0, 4, 3], [0, 1, 3, 4]]
    assert torch_cluster.fps(x, batch, 0.5, random_start=False).tolist() == [0, 2, 3, 5]
    shares = torch.tensor([0.3, 1.0])
    assert torch_cluster.fps(x, batch, shares, random_start=False).tolist() == [0, 3, 5, 4]
    assert torch_cluster.nearest(x, x[[2, 5]], batch, torch.tensor([0, 1])).tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="do not occur in 'batch_y'"):
        torch_cluster.nearest(x, x[:1], batch, batch[:1])
    assert torch_cluster.grid_cluster(x, torch.tensor([2.0, 2.0])).tolist() == [0, 0, 0, 12, 17, 24]
    row, col = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 3, 2])
    assert torch_cluster.graclus_cluster(row, col, num_nodes=5).tolist() == [0, 0, 2, 2, 4]
    nodes, edges = torch_cluster.random_walk(row, col, torch.tensor([0, 2]), 2, p=0.5, return_edge_indices=True)
    assert (nodes.tolist(), edges.tolist()) == ([[0, 1, 0], [2, 3, 2]], [[0, 1], [2, 3]])


def test_neighbours_are_found_in_places_for_all_of_them():
    with simulated() as seen:
        x = on_gpu(N, 3, dtype=torch.float32, grad=False)
        seen.begin()
        pairs = torch_cluster.knn(x, x, K)
        places = 8 * N * K
        assert pairs.shape == (2, N * K)
        assert seen.held == 2 * places
        # rows and columns, those that are chosen, and their stack; where examples begin, and a mask
        assert seen.peak == 6 * places + 2 * 2 * 8 + N * K
        assert torch_cluster.knn_graph(x, K).shape == (2, N * K)
        assert torch_cluster.knn_graph(x, K, loop=True).shape == (2, N * K)
        assert seen.assumptions == [
            "kernels of torch-cluster are not run: they take what the sources of version 1.6.3 say"
        ]


def test_how_many_are_near_is_assumed():
    with simulated() as seen:
        x = on_gpu(N, 3, dtype=torch.float32, grad=False)
        batch = torch.zeros(N, dtype=torch.int64, device="cuda")
        edges = torch_cluster.radius_graph(x, 0.1, batch, max_num_neighbors=K)
        assert edges.shape[0] == 2
        assert 0 < edges.shape[1] <= N * K
        assert any("mask" in text for text in seen.assumptions), seen.assumptions


def test_a_share_of_the_points_is_chosen():
    with simulated() as seen:
        x = on_gpu(N, 3, dtype=torch.float32, grad=False)
        seen.begin()
        assert torch_cluster.fps(x, ratio=0.25).shape == (N // 4,)
        assert seen.held == 0
        # where the example begins and ends, its points, its places among all, where it starts (fps_cuda.cu:81)
        assert seen.peak == 4 * N + 8 * N // 4 + 16 + 8 + 16 + 8


def test_clusters_and_walks_have_a_number_a_node_and_a_step():
    with simulated() as seen:
        x = on_gpu(N, 3, dtype=torch.float32, grad=False)
        size = torch.full((3,), 0.5, device="cuda")
        seen.begin()
        assert torch_cluster.grid_cluster(x, size).shape == (N,)
        ends = 2 * 4 * 3
        # the least and the largest, each with its place, and a voxel of each point
        assert seen.peak == ends + 8 * N
        row, col = (torch.zeros(8 * N, dtype=torch.int64, device="cuda") for _ in range(2))
        start = torch.zeros(N // 2, dtype=torch.int64, device="cuda")
        nodes, edges = torch_cluster.random_walk(row, col, start, 10, num_nodes=N, return_edge_indices=True)
        assert (nodes.shape, edges.shape) == ((N // 2, 11), (N // 2, 10))
        seen.begin()
        walk = torch_cluster.random_walk(row, col, start, 10, coalesced=False, num_nodes=N)
        # walks both ways round, where edges of each node begin, and drawn numbers
        assert seen.peak == 2 * 8 * (N // 2) * 21 + 8 * (N + 1) + 4 * 10 * (N // 2)
        assert seen.held == walk.nbytes
        seen.begin()
        assert torch_cluster.nearest(x, x[:10]).shape == (N,)
        assert torch_cluster.graclus_cluster(row, col, num_nodes=N).shape == (N,)
        batch = torch.zeros(N, dtype=torch.int64, device="cuda")
        assert torch_cluster.nearest(x, x, batch, batch).shape == (N,)
        assert seen.held == batch.nbytes
