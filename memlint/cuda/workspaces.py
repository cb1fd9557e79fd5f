"""Memory that CUDA libraries take for themselves, invisible to any tensor: workspaces of cuBLAS and cuBLASLt.

Sizes and lifetimes from aten/src/ATen/cuda/CublasHandlePool.cpp and CUDABlas.cpp of torch 2.6 to 2.13, confirmed in
recorded allocation histories of torch 2.1 to 2.11: one workspace per thread and stream that multiply matrices,
allocated at the first product and kept.
"""

import os
import re
from collections.abc import Hashable
from typing import Final

from memlint.accelerator import state
from memlint.accelerator.device import scratch
from memlint.accelerator.ledger import Entry
from memlint.accelerator.private import graph_task
from memlint.cuda.versions import torch_version
from memlint.memory.devices import Device

HOPPER_WORKSPACE: Final = 32 << 20
"""Bytes of a cuBLAS workspace on capability 9.0, and on 10 and 12 as well from torch 2.12 on: 4096 x 8 x 1024."""
WORKSPACE: Final = 4096 * 1024 * 2 + 16 * 1024 * 8
"""Bytes of a cuBLAS workspace on any other GPU: PyTorch's default, as if CUBLAS_WORKSPACE_CONFIG were :4096:2:16:8."""
LT_WORKSPACE: Final = 1024 * 1024
"""Bytes of a cuBLASLt workspace, unless CUBLASLT_WORKSPACE_SIZE gives another size in KiB."""


def default_workspace(device: Device) -> int:
    """Bytes of one cuBLAS workspace on `device` by default."""
    generations = (9, 10, 12) if torch_version() >= (2, 12) else ()
    large = device.capability == (9, 0) or device.capability[0] in generations
    return HOPPER_WORKSPACE if large else WORKSPACE


def configured_workspace(configuration: str) -> int | None:
    """Bytes that a value of CUBLAS_WORKSPACE_CONFIG requests; None if PyTorch would warn and take the default.

    The value is a sequence of `:SIZE:COUNT` with sizes in KiB, which are added up. `:0:0` means no workspace.
    """
    pairs = re.findall(r":([0-9]+):([0-9]+)", configuration)
    return sum(int(size) * 1024 * int(count) for size, count in pairs) if pairs else None


def cublas_workspace(device: Device) -> int:
    """Bytes of one cuBLAS workspace on `device` with the current environment."""
    configured = configured_workspace(os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    return default_workspace(device) if configured is None else configured


def cublaslt_workspace() -> int:
    """Bytes of one cuBLASLt workspace with the current environment."""
    kib = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return int(kib) * 1024 if kib.isdecimal() else LT_WORKSPACE


class Workspaces:
    """Workspaces that libraries hold on one GPU: one each for the main thread and for autograd's thread, to the end."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._nbytes: dict[str, int] = {}
        self._open: dict[tuple[str, bool, int], Entry] = {}
        self._freed: dict[int, str] = {}
        self._searches: set[Hashable] = set()

    def product(self) -> None:
        """Note that a thread multiplies matrices through cuBLAS, and open its workspace."""
        if "cublas" not in self._nbytes:  # PyTorch reads the environment once, at the first product that needs it
            self._nbytes["cublas"] = cublas_workspace(self._device)
        self._keep("cublas")

    def product_with_bias(self) -> None:
        """Note that a thread multiplies matrices and adds a bias through cuBLASLt.

        Up to torch 2.8 each call takes a workspace of its own; up to 2.12 a thread keeps one; then it is cuBLAS's.
        """
        version = torch_version()
        if "cublaslt" not in self._nbytes:
            self._nbytes["cublaslt"] = cublaslt_workspace()
        per_call = scratch(self._nbytes["cublaslt"] if version < (2, 9) else 0)
        self.product()
        if (2, 9) <= version < (2, 13):
            self._keep("cublaslt")
        del per_call

    def is_first_search(self, problem: Hashable) -> bool:
        """Return True at the first call for `problem`: then cuDNN searches for its fastest algorithm."""
        is_first = problem not in self._searches
        self._searches.add(problem)
        return is_first

    def hold(self, library: str, nbytes: int) -> None:
        """Hold `nbytes` for a library, once for all threads."""
        if (library, False, 0) not in self._open:
            self._open[library, False, 0] = scratch(nbytes)

    def clear(self) -> None:
        """Free those of cuBLAS and cuBLASLt, as Lightning asks for; the next product takes new ones."""
        for key in [key for key in self._open if key[0] in self._nbytes]:
            self._freed[self._open.pop(key).number] = key[0]

    def _keep(self, library: str) -> None:
        in_backward = graph_task() != -1  # autograd has a thread, and so handles, of its own
        nbytes = self._nbytes[library]
        key = library, in_backward, state.current.ledger.stream
        if nbytes and key not in self._open:
            self._open[key] = scratch(nbytes)

    @property
    def numbers(self) -> frozenset[int]:
        """Ids of the Buffers that are workspaces."""
        return frozenset(entry.number for entry in self._open.values()) | self._freed.keys()

    def owner(self, number: int) -> str | None:
        """Return the library that owns Buffer `number`, if it is a workspace."""
        held = next((library for (library, *_), e in self._open.items() if e.number == number), None)
        return held or self._freed.get(number)
