"""Messages for errors that user code raised."""

from importlib.metadata import PackageNotFoundError

import pytest

from memlint.workloads.user_errors import missing_package, what_to_do

SENTENCE = "The 'requests' distribution was not found and is required by this application. \nTry: pip install x -U"
"""The error that transformers raises in the place of a name, in `utils/versions.py`."""


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (PackageNotFoundError(SENTENCE), "requests"),
        (PackageNotFoundError("flash-attn"), "flash-attn"),
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "a.b"),
        (PackageNotFoundError("it is nowhere"), ""),
        (ValueError("'requests'"), ""),
    ],
)
def test_a_package_that_is_missing_is_named_alone(error, name):
    assert missing_package(error) == name
    assert what_to_do(error).startswith(f"Install {name.partition('.')[0]} where memlint runs, ") is bool(name)
