"""The version of PyTorch whose CUDA kernels are simulated."""

import torch

from memlint.accelerator import state

_major, _minor = torch.__version__.split(".")[:2]
_RUNNING = int(_major), int(_minor)


CHECKED = (2, 10), (2, 13)
"""The first and the last version of which every table of memory that kernels take was read or measured."""


def doubts_of_version() -> list[str]:
    """What to assume where PyTorch is newer than all that were checked."""
    if not CHECKED[1] < _RUNNING:
        return []
    first, last, running = (".".join(map(str, version)) for version in (*CHECKED, _RUNNING))
    return [f"torch {running} is newer than those checked, {first} to {last}: its kernels may take other memory"]


def torch_version() -> tuple[int, int]:
    """Major and minor version of the PyTorch on the device that is simulated, else of the one that runs.

    What kernels and libraries take for themselves depends on it, what autocast casts, and how `rms_norm` and `einsum`
    are carried out. Which other operators run, and what they save for backward, is always as in the one that runs.
    """
    device = getattr(state.current, "device", None)
    return getattr(device, "torch", None) or _RUNNING
