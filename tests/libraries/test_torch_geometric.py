"""torch_geometric finds pyg_lib where the file that imports both does, and calls its ops."""

from __future__ import annotations

import pytest

from tests.script.isolated import needs
from tests.script.running import run_text

SCRIPT = """\
import pyg_lib
import torch
import torch.nn.functional as F
import torch_geometric.typing as known
from torch_geometric.nn import GATConv, HeteroLinear, SAGEConv, SplineConv, fps, graclus, knn_graph, nearest, radius_graph, voxel_grid

taken = ("PYG_LIB", "GMM", "SEGMM", "SPLINE", "GRID_CLUSTER", "GRACLUS", "FPS", "KNN", "RADIUS", "NEAREST", "SOFTMAX", "EDGE_TIME_NEIGHBOR_SAMPLE")
assert all(getattr(known, f"WITH_{name}") for name in taken)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = SAGEConv(64, 128), GATConv(128, 16, heads=4), SAGEConv(64, 10, aggr="max")
        self.spline, self.kinds = SplineConv(64, 64, dim=3, kernel_size=5), HeteroLinear(64, 64, 5)

    def forward(self, x, edges, places, kinds):
        x = self.kinds(self.spline(x, edges, places), kinds)
        return self.last(F.relu(self.second(F.relu(self.first(x, edges)), edges)), edges)

net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
x, edges = torch.randn(1000, 64, device="cuda"), torch.randint(0, 1000, (2, 8000), device="cuda")
places, kinds = torch.rand(8000, 3, device="cuda"), torch.randint(0, 5, (1000,), device="cuda")
for _ in range(2):
    loss = F.cross_entropy(net(x, edges, places, kinds), torch.randint(0, 10, (1000,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
points = torch.rand(1000, 3, device="cuda")
assert knn_graph(points, 8, loop=True).shape == (2, 8000)
assert fps(points, ratio=0.25).shape == (250,)
assert nearest(points, points[:10]).shape == (1000,)
assert graclus(edges, num_nodes=1000).shape == (1000,)
assert voxel_grid(points, 0.1).shape == (1000,)
assert radius_graph(points, 0.1).shape[0] == 2
"""


@pytest.mark.slow
@needs("torch_geometric")
def test_networks_of_graphs_train_with_pyg_lib(tmp_path):
    checked = run_text(tmp_path, SCRIPT, whole=True)
    (workload,) = checked.report.workloads
    assert workload.error is None, workload.error
    assert any("pyg-lib" in each.text for each in workload.assumptions)
