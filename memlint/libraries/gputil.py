"""GPUtil where it is not installed: the GPUs of the machine, all free. Source of the names: its page on PyPI."""

from types import SimpleNamespace
from typing import Any

import torch

from memlint.libraries.library import Library

library = Library("GPUtil", distribution="GPUtil", version="1.4")
_MIB = 2**20


@library.provides("GPUtil")
def getAvailable(*_order: Any, limit: int = 1, **_options: Any) -> list[int]:  # noqa: N802 -- as it is called there
    """Return the numbers of at most `limit` GPUs."""
    return list(range(min(torch.cuda.device_count(), limit)))


@library.provides("GPUtil")
def getFirstAvailable(*_order: Any, **_options: Any) -> list[int]:  # noqa: N802 -- as above
    """Return the number of the first GPU."""
    return [0]


@library.provides("GPUtil")
def getGPUs() -> list[Any]:  # noqa: N802 -- as above
    """Return each GPU with its name, and its memory in MiB."""
    free, total = (each // _MIB for each in torch.cuda.mem_get_info())
    memory = {"memoryTotal": total, "memoryFree": free, "memoryUsed": total - free, "memoryUtil": 1 - free / total}
    name = torch.cuda.get_device_name(0)
    return [SimpleNamespace(id=i, name=name, load=0.0, **memory) for i in range(torch.cuda.device_count())]


@library.provides("GPUtil")
def showUtilization(*_arguments: Any, **_options: Any) -> None:  # noqa: N802 -- as above
    """Show nothing."""
