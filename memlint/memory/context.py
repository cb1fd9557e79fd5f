"""Modules of PyTorch, cuBLAS and cuDNN that a process has loaded on the GPU: the needed ones, or all.

CUDA 11.7 began to load modules lazily where CUDA_MODULE_LOADING asks for it, and does so by itself since 12.2 (CUDA C++
Programming Guide, "Lazy Loading"). PyTorch asks for it since 1.13 unless the variable is set (pytorch/pytorch pull
request 86509); before that every module was loaded. The wheels of torch 2.4 are built with CUDA 12.1, of 2.5 and 2.6
with 12.4, of 2.7 with 12.6, of 2.8 to 2.10 with 12.8, of 2.11 to 2.13 with 13.0. Measured with all modules, as
multiples of memlint's figure for the needed ones:

* With CUDA 11.7 2.3 (666,632,192 bytes beside 287,047,680, pull request 86509).
* 2.8 on an A100 (1,429 MiB in runs of itu-rad/GPUMemNet that may be fitted, whose PyTorch is not known).
* 3.5 at most on an A100 (1.73 GiB beside PyTorch's memory).
* Before 3.5 on a V100 with CUDA 11.3 or 11.6, of torch 1.12 (1,343 MiB, page "Efficient Training on a Single GPU" of
  Transformers 4.21, in whose runs it was 3.2 to 4.4); on an RTX 3090 5 with CUDA 11.0, of torch 1.7 (1,644 MiB with a
  tensor of 156, issue 49877), and 5.6 with 11.1, of torch 1.8 (1,687 MiB, issue 55277).

A measured context takes precedence over all of this. Between programs on one machine it differs by the modules that
they need: by 1.4 % in those runs of GPUMemNet, by 1 % in those of itu-rad/CARMA.
"""

import os
from dataclasses import replace
from typing import Final

from memlint.base.version import installed_torch
from memlint.memory.devices import Device

VARIABLE: Final = "CUDA_MODULE_LOADING"
_ASKED_FOR_SINCE = (1, 13)
_SMALLER_SINCE = (1, 9)
"""First PyTorch whose wheels have CUDA 11.3, or 10.2."""
_BY_ITSELF_SINCE = (2, 5)
"""First PyTorch whose wheels have CUDA 12.2 or later."""
_ALL = 2.3, 2.8, 3.6
"""At least, most likely, at most; as multiples."""
_ALL_BEFORE = 3.2, 3.5, 4.4
_ALL_OF_OLDEST = 3.0, 5.0, 5.7


def loads_everything(device: Device) -> bool:
    """Return True if all modules are on the GPU, judged by its PyTorch and by the current environment."""
    if device.loads_everything is not None:
        return device.loads_everything
    torch = device.torch or installed_torch()
    asked = os.environ.get(VARIABLE, "LAZY")
    return torch < _ASKED_FOR_SINCE or asked == "EAGER" or (asked != "LAZY" and torch < _BY_ITSELF_SINCE)


def with_context(device: Device) -> Device:
    """Return `device` with the context of a process that has these modules loaded; a measured one stays."""
    if not device.is_cuda or device.context_is_measured or not loads_everything(device):
        return device
    torch = device.torch or installed_torch()
    of_torch = _ALL_OF_OLDEST if torch < _SMALLER_SINCE else _ALL_BEFORE if torch < _ASKED_FOR_SINCE else _ALL
    low, likely, high = of_torch
    lazily = device.context_nbytes
    return replace(
        device,
        context_low=int(lazily * low),
        context_nbytes=int(lazily * likely),
        context_high=int(lazily * high),
    )
