"""Hidden memory and workspaces of other versions of PyTorch than the one that runs."""

from collections.abc import Iterator
from contextlib import contextmanager

from memlint.base.patching import patched
from memlint.cuda import versions


@contextmanager
def simulated_torch(version: tuple[int, int]) -> Iterator[None]:
    """Which operators run, and what they save for backward, stays as in the running version."""
    with patched([(versions, "_RUNNING", version)]):
        yield
