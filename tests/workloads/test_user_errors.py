"""Messages for errors that user code raised."""

import os
from importlib.metadata import PackageNotFoundError

import pytest

from memlint.workloads import user_errors
from memlint.workloads.user_errors import missing_package, what_to_do

SENTENCE = "The 'requests' distribution was not found and is required by this application. \nTry: pip install x -U"
"""The error that transformers raises in the place of a name, in `utils/versions.py`."""

NOT_MET = "Requirement 'jsonargparse[signatures]>=4.27.7' not met. HINT: Try running `pip install -U 'jsonargparse'`"
"""The error of LightningCLI: that of a RequirementCache, in `lightning_utilities/core/imports.py`."""


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (PackageNotFoundError(SENTENCE), "requests"),
        (PackageNotFoundError("flash-attn"), "flash-attn"),
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "a.b"),
        (PackageNotFoundError("it is nowhere"), ""),
        (ModuleNotFoundError(NOT_MET), "jsonargparse"),
        (ValueError("'requests'"), ""),
    ],
)
def test_a_package_that_is_missing_is_named_alone(error, name):
    assert missing_package(error) == name
    assert what_to_do(error).startswith(f"Install {name.partition('.')[0]} where memlint runs, ") is bool(name)


def test_a_variable_that_is_not_set_is_named_with_what_to_type(monkeypatch):
    monkeypatch.setattr(user_errors, "_typed", ["memlint check FILE", ""])
    user_errors.answer_to("memlint run", "train.py --lr 3")
    monkeypatch.delenv("ENTITY_OF_TEST", raising=False)
    with pytest.raises(KeyError) as caught:
        os.environ["ENTITY_OF_TEST"]
    assert what_to_do(caught.value).endswith(": ENTITY_OF_TEST=VALUE memlint run train.py --lr 3")
    message = "KeyError raised while resolving interpolation: \"Environment variable 'WANDB_NAME' not found\""
    assert what_to_do(RuntimeError(message)).endswith(": WANDB_NAME=VALUE memlint run train.py --lr 3")
    with pytest.raises(KeyError) as caught:
        {}["ENTITY_OF_TEST"]
    assert what_to_do(caught.value) == ""
    assert user_errors.command_with("--ranks 2") == "memlint run --ranks 2 train.py --lr 3"
