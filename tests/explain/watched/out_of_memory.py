"""The failure that the watched programs have: an OutOfMemoryError of PyTorch, as a GPU that is full raises it."""

import torch

MESSAGE = (
    "CUDA out of memory. Tried to allocate 226.00 MiB. GPU 0 has a total capacity of 15.70 GiB of which 210.38 MiB is free. "
    "Including non-PyTorch memory, this process has 15.48 GiB memory in use. Of the allocated memory 14.81 GiB is allocated "
    "by PyTorch, and 336.73 MiB is reserved by PyTorch but unallocated."
)


def fail():
    raise torch.OutOfMemoryError(MESSAGE)
