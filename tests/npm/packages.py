"""Programs that tests take from npm."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def installed(folder: Path) -> Path:
    """Install what package-lock.json names below `folder`, and give its node_modules; skip the test without npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not there")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder)
    done = subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"npm cannot install: {done.stderr.strip().splitlines()[-1]}")
    return folder / "node_modules"
