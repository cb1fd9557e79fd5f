"""Modules of PyTorch, cuBLAS and cuDNN that a process has on the GPU: those that were needed, or all.

CUDA 11.7 began to load modules lazily where CUDA_MODULE_LOADING asks for it, and does so by itself since 12.2 (CUDA C++
Programming Guide, "Lazy Loading"). PyTorch asks for it since 1.13 unless the variable is set (pytorch/pytorch pull
request 86509); before that every module was loaded. The wheels of torch 2.4 are built with CUDA 12.1, of 2.5 and 2.6
with 12.4, of 2.7 with 12.6, of 2.8 to 2.10 with 12.8, of 2.11 to 2.13 with 13.0. Measured with all, as multiples
of what memlint takes for those that are needed:

* With CUDA 11.7 2.3 (666,632,192 bytes beside 287,047,680, pull request 86509).
* Before 3.5 on a V100 (1,343 MiB, page "Efficient Training on a Single GPU" of Transformers 4.21); on an RTX 3090 5
  with CUDA 11.0 (1,644 MiB with a tensor of 156, issue 49877) and 5.6 with 11.1 (1,687 MiB, issue 55277).
* 3.5 at most on an A100 (1.73 GiB beside PyTorch's memory).
"""

import os
from dataclasses import replace
from typing import Final

from memlint.cuda.devices import EVERYTHING, Device
from memlint.cuda.versions import torch_version

VARIABLE: Final = "CUDA_MODULE_LOADING"
_ASKED_FOR_SINCE = (1, 13)
_BY_ITSELF_SINCE = (2, 5)
"""The first PyTorch whose wheels have CUDA 12.2 or later."""
_ALL = 2.3
_ALL_BEFORE = 3.5
_ALL_BEFORE_AT_MOST = 5.7


def loads_everything(device: Device) -> bool:
    """Whether all modules are on the GPU, by its PyTorch and by the environment as it is now."""
    torch = device.torch or torch_version()
    asked = os.environ.get(VARIABLE, "LAZY")
    return torch < _ASKED_FOR_SINCE or asked == "EAGER" or (asked != "LAZY" and torch < _BY_ITSELF_SINCE)


def with_context(device: Device) -> Device:
    """`device` with the context of a process that has these modules loaded."""
    if not device.is_cuda or not loads_everything(device):
        return device
    before = (device.torch or torch_version()) < _ASKED_FOR_SINCE
    low, likely, high = (_ALL, _ALL_BEFORE, _ALL_BEFORE_AT_MOST) if before else (1, _ALL, EVERYTHING)
    lazily = device.context_nbytes
    return replace(
        device,
        context_low=int(lazily * low),
        context_nbytes=int(lazily * likely),
        context_high=int(lazily * high),
    )
