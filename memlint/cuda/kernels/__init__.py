"""Kernels that CUDA has and the virtual device would not choose, with the tensors they keep and allocate."""
