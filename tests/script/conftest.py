"""Scripts run in copies of a Python that has imported PyTorch."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _of_copies(copied_pythons: None) -> None:
    pass
