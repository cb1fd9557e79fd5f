"""CUDA's behaviour on the virtual accelerator: facade, kernels, hidden memory, allocator and device catalogue."""
