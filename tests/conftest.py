"""Property tests draw the same examples each time; --hypothesis-profile=default draws others.

One thread computes: a second one waits for work at full speed, at the expense of tests that run beside it.

What decides on colours, and where a forge's variables tell programs that it runs them, is taken out of the environment:
tests say themselves what they want of it. Ctrl-C counts, though a shell that starts tests in the background has them, and
what they start, ignore it.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from memlint.base.garbage import uncollected
from tests.forks.pythons import copies_used, start_template

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from xdist.remote import Producer
    from xdist.scheduler import WorkStealingScheduling

    from tests.forks.pythons import Template

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

_OF_THE_OUTSIDE = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "NO_COLOR", "CI", "GITLAB_CI")
for name in list(os.environ):
    if name in _OF_THE_OUTSIDE or name.startswith(("GITHUB_", "CI_")):
        del os.environ[name]

os.environ["OMP_NUM_THREADS"] = "1"  # read when PyTorch is imported
os.environ["HF_HUB_OFFLINE"] = "1"  # read when the package is imported; without it the network is asked for a minute

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search for no cycles among the files of tests and what they import: there are none, and it takes seconds."""
    with uncollected():
        return (yield)


def pytest_collection_finish() -> None:
    """Let no search for cycles begin with what was imported: it would take up to a second, and there are hundreds."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkStealingScheduling | None:
    """Let `-n` give each worker files that follow each other, whose tests share what they trace, and share out the rest
    at the end."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session")
def template_of_pythons() -> Template | None:
    """Start it where processes can be copied."""
    return start_template() if sys.platform == "linux" else None


@pytest.fixture(autouse=True)
def same_search_path() -> Iterator[None]:
    """Take back what a test did to the search path for modules."""
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture
def copied_pythons(template_of_pythons: Template | None) -> Iterator[None]:
    """Let Pythons that `subprocess` starts be copies of one that has imported PyTorch and memlint.

    Where a test is about what a new Python imports, or about a process as the system shows it, it needs a new one.
    """
    with copies_used(template_of_pythons):
        yield


@pytest.fixture
def executed_pythons(copied_pythons: None) -> Iterator[None]:
    """Let Pythons that `subprocess` starts be new ones, for a test whose file uses `copied_pythons`."""
    with copies_used(None):
        yield


@pytest.fixture
def checked_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the PyTorch that runs be among the checked ones: a newer one is an assumption of every trace."""
    from memlint.cuda import versions

    first, last = versions.CHECKED
    monkeypatch.setattr(versions, "CHECKED", (first, max(last, versions.torch_version())))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of holders first: once Dynamo has compiled in a process, no variable of a running function there
    gives up its value (seen with torch 2.13 and Python 3.11), and tests of compiled steps compile in this process.
    """
    items.sort(key=lambda item: item.path.name != "test_holders.py")
