"""A process that sees a virtual GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memlint.accelerator.ledger import Ledger


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    """A virtual A100; its Ledger."""
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger
