"""Files that are there under another spelling than a command or a program has."""

import functools
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_CLOSE = 0.75
"""Least likeness of two names without their endings, as difflib measures it: of `a_2_f4` and `a-2-f4` it is 0.67."""
_MOST_FOLDERS = 2000
CONFIGS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")
"""Ends of the names of files of settings."""
_MOST_NAMED = 3


def similar_file(path: Path) -> Path | None:
    """Return the file whose name is most like that of a file that is not there; None if none is like it.

    It lies in the same folder, or under the same name in one beside it: `configs/a.yml` for `config/a.yml`.
    """
    with suppress(OSError):
        if path.parent.is_dir():
            others = [each for each in path.parent.iterdir() if each.is_file() and _is_alike(each, path)]
            return _closest(path.name, others)
        folders = [each for each in path.parent.parent.iterdir() if (each / path.name).is_file()]
        beside = _closest(path.parent.name, folders)
        return None if beside is None else beside / path.name
    return None


@functools.lru_cache(maxsize=64)
def only_file_of_name(name: str, root: str, scandir: Callable[[str], Any] = os.scandir) -> str:
    """Return the file of this name below `root`, if there is one and no other; empty if not.

    Hidden folders are left out. `scandir` is that of `os`, before anything else stands for it.
    """
    found, folders = list[str](), [root]
    for number, folder in enumerate(folders):
        if len(found) > 1 or number > _MOST_FOLDERS:
            return ""
        with suppress(OSError), scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                    folders.append(entry.path)
                elif entry.name == name:
                    found.append(entry.path)
    return found[0] if len(found) == 1 else ""


def _is_alike(one: Path, other: Path) -> bool:
    """Return True for the same ending, or another spelling of it: `.yml`, `.yaml`."""
    fewer, more = sorted(({*one.suffix.lower()}, {*other.suffix.lower()}), key=len)
    return bool(fewer) and fewer <= more


def _closest(name: str, paths: Iterable[Path]) -> Path | None:
    by_name = {each.stem.lower(): each for each in sorted(paths, reverse=True) if each.name != name}
    close = get_close_matches(Path(name).stem.lower(), by_name, n=1, cutoff=_CLOSE)
    return by_name[close[0]] if close else None


def configs_beside(path: Path) -> list[Path]:
    """Return the first configs of the same kind in the folder of one that is not there; JSON may be data."""
    if path.suffix not in CONFIGS or path.suffix == ".json":
        return []
    with suppress(OSError):
        return sorted(path.parent.glob(f"*{path.suffix}"))[:_MOST_NAMED]
    return []
