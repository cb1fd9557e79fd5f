"""The compiled step: TorchDynamo, AOTAutograd and Inductor run as they are, and what they generate on the device.

While they compile, the facade that shows the program its device is put away (`facade`). Fakes are of the virtual device
for C++ and of the program's device for Python (`fakes`, `graphs`). The generated wrapper then runs on virtual tensors:
its allocations are memlint's, the kernels that it calls by name are memlint's kernels, and those that Inductor would
generate do nothing, as they allocate nothing (`kernels`). Neither a GPU nor Triton nor a C++ compiler takes part.
"""
