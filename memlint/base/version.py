"""The version of memlint and of its output format."""

import re
from functools import cache
from pathlib import Path

__version__ = "0.1.0"

HOME = "https://github.com/OWNER/memlint"
"""URL of the project, with its OWNER."""
PUBLISHED = False
"""True if this version of `torch-memlint` is on PyPI: a release sets it, and all messages follow."""


def install_command(extra: str) -> str:
    """Return the command that installs memlint with one of its extras.

    Before a release it installs from the checkout that memlint runs from, or from the URL of its repository.
    """
    checkout = Path(__file__).parents[2]
    if PUBLISHED:
        return f"pip install 'torch-memlint[{extra}]'"
    if (checkout / "pyproject.toml").is_file():
        return f"pip install '{checkout}[{extra}]'"
    return f"pip install 'torch-memlint[{extra}] @ git+{HOME}', with its OWNER"


@cache
def installed_torch() -> tuple[int, int]:
    """Return major and minor version of the installed PyTorch without importing it; (0, 0) if there is none."""
    from importlib import metadata  # noqa: PLC0415 -- it takes a quarter of the time of `import memlint`

    try:
        numbers = re.match(r"(\d+)\.(\d+)", metadata.version("torch"))
    except metadata.PackageNotFoundError:
        return 0, 0
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
