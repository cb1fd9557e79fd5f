"""Runs tasks on a Ray worker. Ray sends it by value, so that a worker without this version of memlint can say so.

Therefore it imports nothing of memlint before `carry_out` has compared the versions.
"""

import json
import platform
import sys
from importlib import import_module, metadata

OTHERS = "versions"
"""The key of what a worker says whose versions are others."""


def versions() -> dict[str, str]:
    """Return the versions that must agree here and on a worker; a build of PyTorch, as in `2.13.0+cpu`, need not."""
    try:
        memlint = str(import_module("memlint").__version__)
    except ImportError:
        memlint = "not installed"
    try:
        torch = metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return {"memlint": memlint, "torch": torch, "Python": f"{sys.version_info.major}.{sys.version_info.minor}"}


def carry_out(archive: bytes, task: str, expected: dict[str, str]) -> str:
    """JSON as of `ray.messages.carried_out`, or what is installed here where that is not what is `expected`."""
    if (installed := versions()) != expected:
        return json.dumps({OTHERS: installed, "node": platform.node()})
    from memlint.worker.ray.messages import carried_out  # noqa: PLC0415 -- not before it is known which one that is

    return carried_out(archive, task)
