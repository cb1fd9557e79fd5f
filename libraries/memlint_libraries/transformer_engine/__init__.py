"""Transformer Engine 2.9, made of these parts; what kernels take is in its pytorch/csrc."""

from memlint_libraries.transformer_engine import (
    cross_entropy,
    grouped,
    optimizers,
    permutation,
    recomputation,
    transformer,
)
from memlint_libraries.transformer_engine.recipes import library

__all__ = ["cross_entropy", "grouped", "library", "optimizers", "permutation", "recomputation", "transformer"]
