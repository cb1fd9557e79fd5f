"""spconv's tensor of positions and their features (spconv/pytorch/core.py)."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.values import forget, nonzero_bound
from memlint.libraries.library import Library, assume_once

Tensor = torch.Tensor
library = Library("spconv", distribution="spconv", version="2.3.8")
library.modules["spconv.constants"] = {
    "SPCONV_USE_DIRECT_TABLE": True, "SPCONV_ALLOW_TF32": False, "ALL_WEIGHT_IS_KRSC": True, "FILTER_HWIO": False,
}  # fmt: skip
LARGEST = 2**31 - 1
"""Volumes from which keys of positions are int64."""


@library.provides("spconv", "spconv.core", "spconv.pytorch", "spconv.pytorch.ops", "spconv.pytorch.conv")
class ConvAlgo(Enum):
    """How a layer computes (core.py:25)."""

    Native = 0
    MaskImplicitGemm = 1
    MaskSplitImplicitGemm = 2


@library.provides("spconv.pytorch", "spconv.pytorch.core")
class SparseConvTensor:
    """Features of positions, which are int32 of [positions, 1 + dimensions]; the first says which example."""

    def __init__(
        self, features: Tensor, indices: Tensor, spatial_shape: Any, batch_size: int, grid: Tensor | None = None,
        voxel_num: Tensor | None = None, indice_dict: dict[str, Any] | None = None, benchmark: bool = False,
        permanent_thrust_allocator: bool = False, enable_timer: bool = False, force_algo: ConvAlgo | None = None,
    ) -> None:  # fmt: skip
        if features.ndim != 2 or indices.ndim != 2 or len(spatial_shape) != indices.shape[1] - 1:
            raise AssertionError("features and positions are matrices, with a size for each dimension")
        if indices.dtype is not torch.int32:
            raise AssertionError("only support int32")
        if benchmark or permanent_thrust_allocator or enable_timer:
            library.unknown("spconv.pytorch.SparseConvTensor(benchmark, permanent_thrust_allocator, enable_timer)")()
        self._features, self.indices = features, indices
        self.spatial_shape, self.batch_size = [int(size) for size in spatial_shape], batch_size
        self.indice_dict = {} if indice_dict is None else indice_dict
        self.grid: Tensor | None = torch.Tensor() if grid is None else grid
        self.voxel_num, self.force_algo = voxel_num, force_algo
        self.benchmark, self.benchmark_record = False, dict[str, Any]()
        self.thrust_allocator, self.int8_scale = None, None

    def __repr__(self) -> str:
        return f"SparseConvTensor[shape={self._features.shape}]"

    @classmethod
    def from_dense(cls, x: Tensor) -> SparseConvTensor:
        """The positions of a tensor whose channels come last that are not all zero: how many, values say."""
        _leave_open(x)
        found = x.to_sparse(x.ndim - 1)
        positions = found.indices().permute(1, 0).contiguous().int()
        return cls(found.values(), positions, found.shape[1:-1], found.shape[0])

    @property
    def features(self) -> Tensor:
        """[positions, channels]."""
        return self._features

    @features.setter
    def features(self, _: Tensor) -> None:
        raise ValueError("you can't set feature directly, use 'x = x.replace_feature(your_new_feature)'")

    @property
    def is_quantized(self) -> bool:
        """True if features have eight bits."""
        return self.features.dtype is torch.qint8

    def q_scale(self) -> float:
        """The scale of features of eight bits. Raises ValueError for others."""
        if not self.is_quantized:
            raise ValueError("sparse tensor must be quantized")
        return self.features.q_scale()

    def dequantize(self) -> SparseConvTensor:
        """Features as numbers again."""
        return self.replace_feature(self.features.dequantize())

    @property
    def spatial_size(self) -> int:
        """The number of all positions that there could be."""
        return math.prod(self.spatial_shape)

    def replace_feature(self, feature: Tensor) -> SparseConvTensor:
        """Other features of the same positions."""
        return self.replaced(feature, self.indices, self.spatial_shape, self.indice_dict)

    def replaced(self, features: Tensor, indices: Tensor, sizes: list[int], met: dict[str, Any]) -> SparseConvTensor:
        """Other features of other positions, with what layers have looked up."""
        made = SparseConvTensor(
            features, indices, sizes, self.batch_size, self.grid, self.voxel_num, met, force_algo=self.force_algo
        )
        made.benchmark_record, made.int8_scale = self.benchmark_record, self.int8_scale
        return made

    def shadow_copy(self) -> SparseConvTensor:
        """Another of the same."""
        return self.replace_feature(self.features)

    def select_by_index(self, valid_indices: Tensor) -> SparseConvTensor:
        """Raises ValueError, once positions are picked: it sets features, which cannot be set (core.py:215)."""
        chosen = self.shadow_copy()
        chosen.indices = self.indices[valid_indices]
        chosen.features = self.features[valid_indices]
        chosen.indice_dict.clear()
        return chosen

    def minus(self) -> SparseConvTensor:
        """The negative."""
        return self.replace_feature(-self.features)

    def find_indice_pair(self, key: str | None) -> Any:
        """Return what an earlier layer has looked up; None if nothing."""
        return self.indice_dict.get(key) if key is not None else None

    def dense(self, channels_first: bool = True) -> Tensor:
        """A tensor of all positions (core.py:264)."""
        shape = [self.batch_size, *self.spatial_shape, self.features.shape[1]]
        made = torch.zeros(shape, dtype=self.features.dtype, device=self.features.device)
        places = self.indices.to(self.features.device).long()
        made[tuple(places.unbind(1))] = self.features
        return made.movedim(-1, 1).contiguous() if channels_first else made

    def __add__(self, other: SparseConvTensor | Tensor) -> SparseConvTensor:
        """Features added."""
        return self.replace_feature(self.features + _features_of(other))

    __radd__ = __add__

    def __iadd__(self, other: SparseConvTensor | Tensor) -> SparseConvTensor:
        """Raises ValueError, once features are added in place (core.py:291)."""
        self.features += _features_of(other)
        return self


def _leave_open(x: Tensor) -> None:
    """Forget zeros: no layer takes a tensor without a position, and placeholder images are black, all zeros."""
    if is_virtual(x) and nonzero_bound(x) == 0:
        assume_once("a dense tensor of zeros alone is taken to be made up: positions are found as in one of any values")
        forget(x)
        entry_of(x).nonzeros = None


def _features_of(other: SparseConvTensor | Tensor) -> Tensor:
    if not isinstance(other, SparseConvTensor | Tensor):
        raise AssertionError("what is added is a sparse tensor or features")
    return other.features if isinstance(other, SparseConvTensor) else other
