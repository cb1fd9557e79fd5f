"""pyg_lib 0.9.0, made of these parts, which torch_geometric calls as ops."""

from memlint_libraries.pyg_lib import ops
from memlint_libraries.pyg_lib.checks import library

__all__ = ["library", "ops"]
