"""Tensors handed to other libraries: host tensors as real ones with their known values.

GPU tensors cannot be handed over.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils.dlpack

from memlint.accelerator.device import is_virtual
from memlint.base.errors import TraceError
from memlint.cuda.facade.placement import device_of
from memlint.cuda.facade.reading import read

_real_to: Callable[..., Any] = torch.utils.dlpack.to_dlpack  # type: ignore[attr-defined]
_real_from: Callable[..., Any] = torch.utils.dlpack.from_dlpack
_real_method: Callable[..., Any] = torch.Tensor.__dlpack__
_real_device: Callable[..., Any] = torch.Tensor.__dlpack_device__


def _real(tensor: Any) -> Any:
    """Return a tensor that another library can read. Raises TraceError for a GPU tensor."""
    if not is_virtual(tensor):
        return tensor
    if device_of(tensor).type == "cuda":
        raise TraceError(
            "a GPU tensor goes to another library by DLPack, which cannot be traced",
            "Hand over tensor.cpu(), or leave this part out of the workload.",
        )
    return read(tensor)


def _to(tensor: Any) -> Any:
    return _real_to(_real(tensor))


def _from(tensor: Any, **options: Any) -> Any:
    return tensor.detach() if is_virtual(tensor) else _real_from(tensor, **options)


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [
        (torch, "to_dlpack", _to),
        (torch.utils.dlpack, "to_dlpack", _to),
        (torch, "from_dlpack", _from),
        (torch.utils.dlpack, "from_dlpack", _from),
        (torch.Tensor, "__dlpack__", lambda tensor, **options: _real_method(_real(tensor), **options)),
        (torch.Tensor, "__dlpack_device__", lambda tensor: _real_device(_real(tensor))),
    ]
