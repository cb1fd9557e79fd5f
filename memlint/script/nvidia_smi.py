"""The answers of nvidia-smi for the simulated GPU, which scripts ask for its name and its memory."""

import os
import sys
from collections.abc import Callable, Sequence

import torch

_MIB = 2**20
_FIELDS: dict[str, Callable[[], str]] = {
    "index": lambda: "0",
    "count": lambda: str(torch.cuda.device_count()),
    "name": lambda: torch.cuda.get_device_name(0),
    "gpu_name": lambda: torch.cuda.get_device_name(0),
    "memory.total": lambda: _mib(torch.cuda.mem_get_info()[1]),
    "memory.free": lambda: _mib(torch.cuda.mem_get_info()[0]),
    "memory.used": lambda: _mib(torch.cuda.mem_get_info()[1] - torch.cuda.mem_get_info()[0]),
    "utilization.gpu": lambda: "0 %",
    "utilization.memory": lambda: "0 %",
}
_OF_PROCESS: dict[str, Callable[[], str]] = {
    "pid": lambda: str(os.getpid()),
    "process_name": lambda: sys.executable,
    "used_memory": _FIELDS["memory.used"],
    "used_gpu_memory": _FIELDS["memory.used"],
}
_QUERIES = {"query-gpu": _FIELDS, "query-compute-apps": _OF_PROCESS}
"""Answers by the names of `--query-gpu` and of `--query-compute-apps`, for the script alone; every other one is
"[N/A]", as nvidia-smi says of what a GPU does not tell.
"""


def answer_of_nvidia_smi(arguments: Sequence[str]) -> list[str]:
    """Return the lines that nvidia-smi prints: those of a query, else one with the GPU's name."""
    options = dict(each.removeprefix("--").split("=", 1) for each in arguments if each.startswith("--") and "=" in each)
    query = next((each for each in _QUERIES if each in options), None)
    if query is None:
        return [f"GPU 0: {torch.cuda.get_device_name(0)}"]
    names = [each.strip() for each in options[query].split(",")]
    form = options.get("format", "csv").split(",")
    values = [_QUERIES[query].get(name, lambda: "[N/A]")() for name in names]
    if "nounits" in form:
        values = [value.removesuffix(" MiB").removesuffix(" %") for value in values]
    return [*([] if "noheader" in form else [", ".join(names)]), ", ".join(values)]


def _mib(nbytes: int) -> str:
    return f"{nbytes // _MIB} MiB"
