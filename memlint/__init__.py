"""Static analyser and GPU-memory estimator for PyTorch model code. Importing it does not import torch."""

from memlint.base.version import __version__
from memlint.workloads.declare import Declaration, workload

__all__ = ["Declaration", "__version__", "workload"]
