"""spconv 2.3.8: convolutions and pooling of sparse tensors, by implicit products, whose positions values decide."""

from memlint_libraries.spconv import convolution, modules, pairs, pooling
from memlint_libraries.spconv.tensor import SparseConvTensor, library

__all__ = ["SparseConvTensor", "convolution", "library", "modules", "pairs", "pooling"]
