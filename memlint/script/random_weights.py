"""Random weights, while a script runs, for models whose pretrained ones are not on this machine."""

import contextlib
from collections.abc import Iterable, Iterator

from memlint.script.replacing import Replacing
from memlint.workloads.pretrained import replace_downloads, replace_pretrained
from memlint.workloads.stated_configs import state_configs


@contextlib.contextmanager
def random_weights(configs: Iterable[tuple[str, str]] = ()) -> Iterator[None]:
    """Make models whose weights are missing here load random ones; `configs` are those that the command line states."""
    state_configs(configs)
    with Replacing() as replacing:
        replace_pretrained(replacing.put)
        replace_downloads(replacing.put)
        yield
