"""Each test compiles as memlint's own child does: `torch.compile` compiles for the simulated device, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from memlint.base.patching import patched
from memlint.compile import requests

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _compiled_where_simulated() -> Iterator[None]:
    with patched([(torch, "compile", requests.compile_where_simulated)]):
        yield
