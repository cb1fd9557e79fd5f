"""pyg_lib 0.9.0: its functions as ops of `torch.ops.pyg`, by which torch_geometric calls most of them.

Arguments stand there as the schemas of csrc/ops/*.cpp and csrc/sampler/random_walk.cpp have them.
"""

from typing import Any

import torch

from memlint_libraries.pyg_lib import cluster, products, scatter, spline
from memlint_libraries.pyg_lib.checks import library

Tensor = torch.Tensor
_functions = library.modules["pyg_lib.ops"]
_REDUCING = (
    *("scatter_sum", "scatter_mul", "scatter_mean", "scatter_min", "scatter_max"),
    *(f"segment_{reduce}_{kind}" for reduce in ("sum", "mean", "min", "max") for kind in ("coo", "csr")),
)


def _knn(
    x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None, k: int = 1, cosine: bool = False,
    num_workers: int = 1,
) -> Tensor:  # fmt: skip
    return cluster.knn(x, y, k, ptr_x, ptr_y, cosine)


def _radius(
    x: Tensor, y: Tensor, ptr_x: Tensor | None = None, ptr_y: Tensor | None = None, r: float = 1.0,
    max_num_neighbors: int = 32, num_workers: int = 1, ignore_same_index: bool = False,
) -> Tensor:  # fmt: skip
    return cluster.radius(x, y, r, ptr_x, ptr_y, max_num_neighbors, 1, ignore_same_index)


def _sampled_op(left: Tensor, right: Tensor, left_index: Tensor | None, right_index: Tensor | None, fn: str) -> Any:
    return _functions[f"sampled_{fn}"](left, right, left_index, right_index)


_OPS = {
    **{name: _functions[name] for name in _REDUCING},
    "gather_coo": scatter.gather_coo,
    "gather_csr": scatter.gather_csr,
    "softmax_csr": scatter.softmax_csr,
    "spline_basis": spline.spline_basis,
    "spline_weighting": spline.spline_weighting,
    "knn": _knn,
    "radius": _radius,
    "nearest": cluster.nearest,
    "fps": cluster.fps,
    "grid_cluster": cluster.grid_cluster,
    "graclus_cluster": cluster.graclus_cluster,
    "edge_sample": cluster.edge_sample,
    "random_walk": cluster.random_walk,
    "sampled_op": _sampled_op,
    "segment_matmul": products.segment_matmul,
    "index_sort": products.index_sort,
}
library.ops.update({f"pyg::{name}": function for name, function in _OPS.items()})
