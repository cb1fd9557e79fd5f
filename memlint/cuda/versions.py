"""The version of PyTorch whose CUDA kernels are simulated."""

import torch

from memlint.accelerator import state

_major, _minor = torch.__version__.split(".")[:2]
_RUNNING = int(_major), int(_minor)


def torch_version() -> tuple[int, int]:
    """Major and minor version of the PyTorch on the device that is simulated, else of the one that runs.

    What kernels and libraries take for themselves depends on it, what autocast casts, and how `rms_norm` and `einsum`
    are carried out. Which other operators run, and what they save for backward, is always as in the one that runs.
    """
    device = getattr(state.current, "device", None)
    return getattr(device, "torch", None) or _RUNNING
