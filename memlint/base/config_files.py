"""Files of JSON with the settings of models and checkpoints that are not on this machine."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from memlint.base.errors import UsageError

_OF_FOLDERS = ("config", "scheduler_config")
_OF_PIPELINE = "model_index"
"""Files of a repository with the sizes of what is in a folder, and with the parts of a pipeline."""


def read_configs(files: Iterable[tuple[str, Path]]) -> tuple[tuple[str, str], ...]:
    """Return the JSON objects in these files, each with the name of what it is about. Raises UsageError.

    A folder stands for a repository: each of its folders is named `NAME/FOLDER`, and the file of a pipeline
    `NAME/model_index`.
    """
    return tuple((each, _json_object(each, file)) for name, path in files for each, file in _files_of(name, path))


def _files_of(name: str, path: Path) -> list[tuple[str, Path]]:
    """The files that state something, each with the name of what it is about."""
    if not path.is_dir():
        return [(name, path)]
    of_folders = [file for stem in _OF_FOLDERS for file in sorted(path.rglob(f"{stem}.json"))]
    found = [(PurePosixPath(name, *file.parent.relative_to(path).parts), file) for file in of_folders]
    found += [(PurePosixPath(name, _OF_PIPELINE), file) for file in path.glob(f"{_OF_PIPELINE}.json")]
    return [(str(each), file) for each, file in found]


def _json_object(name: str, file: Path) -> str:
    """The content of a file that states the settings of what has this name."""
    try:
        content = file.read_text("utf-8")
        is_object = isinstance(json.loads(content), dict)
    except (OSError, ValueError) as error:
        raise UsageError(f"the config of {name}, {file}, is not read: {error}", "Give a file of JSON.") from error
    if not is_object:
        raise UsageError(f"the config of {name}, {file}, is no JSON object", "Give a file as config.json is.")
    return content
