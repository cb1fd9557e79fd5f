"""The version of memlint, and of what it writes."""

import re
from functools import cache
from importlib import metadata
from pathlib import Path

__version__ = "0.1.0"

HOME = "https://github.com/OWNER/memlint"
"""The project's own address, with its OWNER."""
PUBLISHED = False
"""Whether `torch-memlint` of this version is on PyPI: a release switches it, and with it all messages."""


def install_command(extra: str) -> str:
    """What to type to have memlint with one of its extras.

    Before a release that is a checkout, from which memlint runs, or the address of its repository.
    """
    checkout = Path(__file__).parents[2]
    if PUBLISHED:
        return f"pip install 'torch-memlint[{extra}]'"
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    return f"pip install 'torch-memlint[{extra}] @ git+{HOME}', with its OWNER"


@cache
def installed_torch() -> tuple[int, int]:
    """Give major and minor version of the installed PyTorch without importing it; (0, 0) where there is none."""
    try:
        numbers = re.match(r"(\d+)\.(\d+)", metadata.version("torch"))
    except metadata.PackageNotFoundError:
        return 0, 0
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
