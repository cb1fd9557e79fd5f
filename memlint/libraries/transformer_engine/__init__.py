"""Transformer Engine 2.9, made of these parts; what kernels take is in its pytorch/csrc."""

from memlint.libraries.transformer_engine import grouped, optimizers, permutation, recomputation, transformer
from memlint.libraries.transformer_engine.recipes import library

__all__ = ["grouped", "library", "optimizers", "permutation", "recomputation", "transformer"]
