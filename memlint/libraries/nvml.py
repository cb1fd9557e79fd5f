"""pynvml where it is installed and no driver is: the simulated GPU answers, idle. Source of the names: NVML's API."""

from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from memlint.base.after_import import after_import


def install() -> None:
    """Let pynvml, from its import on, ask nobody."""
    after_import("pynvml", _answer)


def _memory(*_handle: Any, **_options: Any) -> Any:
    free, total = torch.cuda.mem_get_info()
    return SimpleNamespace(free=free, total=total, used=total - free)


_ANSWERS = {
    "nvmlDeviceGetCount": lambda: torch.cuda.device_count(),  # noqa: PLW0108 -- it is replaced later
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetName": lambda *_: torch.cuda.get_device_name(0),
    "nvmlDeviceGetUtilizationRates": lambda *_: SimpleNamespace(gpu=0, memory=0),
}


def _answer(module: ModuleType) -> None:
    for name in [each for each in vars(module) if each.startswith("nvml") and callable(vars(module)[each])]:
        setattr(module, name, _ANSWERS.get(name, lambda *_, **__: 0))
