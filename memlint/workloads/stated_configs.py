"""Settings that the command line states for models and checkpoints that are not on this machine: `--config-of`."""

import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any

_stated: dict[str, dict[str, Any]] = {}


def state_configs(configs: Iterable[tuple[str, str]]) -> None:
    """Take each pair of a name and a JSON object for the settings of what has this name, in place of earlier ones."""
    _stated.clear()
    _stated.update((name, json.loads(text)) for name, text in configs)


def stated_config(name: str, folder: str = "") -> dict[str, Any] | None:
    """Return the settings of a model on the Hub, or of a checkpoint by its path or address; None without any.

    A checkpoint may be stated by the last part of its path, a part of a pipeline by its `folder` in the repository.
    """
    of_part = _stated.get(f"{name}/{folder}") if folder else None
    config = of_part or _stated.get(name) or _stated.get(PurePosixPath(name).name)
    return None if config is None else dict(config)
