"""CUDA's behaviour on the virtual accelerator: facade, kernels, hidden memory, allocator and the devices' catalogue."""
