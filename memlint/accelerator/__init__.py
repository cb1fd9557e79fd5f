"""The virtual accelerator: a PyTorch device whose tensors have sizes, strides and storages, and no memory.

It is built on PyTorch's extension point for new hardware (PrivateUse1), so no dispatch mode and no tensor subclass is
active while user code runs: autograd, optimizers and composite kernels take the paths they take on real hardware.
"""
