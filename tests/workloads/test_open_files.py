"""A program that wants more open files than the machine grants gets as many as there are."""

import pytest

from memlint.workloads.open_files import raised_as_far_as_it_goes

resource = pytest.importorskip("resource")


def test_a_limit_of_open_files_above_the_highest_is_the_highest(monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(resource, "setrlimit", resource.setrlimit)
    raised_as_far_as_it_goes()
    if hard == resource.RLIM_INFINITY:
        pytest.skip("there is no limit here")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard))
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
