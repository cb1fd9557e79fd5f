"""Kernels that CUDA has and the virtual device would not choose, with the tensors that they save and allocate."""
