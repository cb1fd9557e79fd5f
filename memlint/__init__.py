"""Static analyser and GPU-memory estimator for PyTorch model code. Importing it does not import torch."""

from memlint.workloads.declare import Declaration, workload

__version__ = "0.1.0"
__all__ = ["Declaration", "__version__", "workload"]
