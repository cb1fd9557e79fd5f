"""`.memlint_cache`: small JSON files below one project.

An entry belongs to a subject, such as a file, and is valid for one key, which `key_of` computes from everything that
its content depends on. An entry with another key is computed again. Files are replaced atomically, so any number of
runs may share a cache. A cache that cannot be read or written is ignored.
"""

import hashlib
import json
import mmap
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, TypeVar

from memlint.base.ownership import OURS
from memlint.base.version import __version__

NAME = ".memlint_cache"
_TAG = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by memlint; see https://bford.info/cachedir/\n"
_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)

_Value = TypeVar("_Value")


def read(root: Path, kind: str, subject: str, key: str, decode: Callable[[Any], _Value]) -> _Value | None:
    """Return the entry of this `kind` about `subject`, its fields decoded by `decode`.

    None if there is no such entry, if its key is not `key`, or if it is damaged.
    """
    with suppress(*_DAMAGED):
        entry = json.loads(_file(root, kind, subject).read_bytes())
        if entry["key"] == key:
            return decode(entry)
    return None


def write(root: Path, kind: str, subject: str, key: str, fields: Mapping[str, Any]) -> None:
    """Store `fields`, which must be JSON; does nothing if there is no room or no permission."""
    file = _file(root, kind, subject)
    with suppress(OSError):
        _prepare(root / NAME, file.parent)
        _put(file, lambda opened: opened.write(json.dumps({"key": key, **fields}).encode()))


def _put(file: Path, write_into: Callable[[IO[bytes]], object]) -> None:
    """Replace a file at once. Raises OSError."""
    handle, written = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            write_into(opened)
        Path(written).replace(file)
    except BaseException:
        Path(written).unlink(missing_ok=True)
        raise


def read_bytes(root: Path, kind: str, subject: str) -> bytes | mmap.mmap | None:
    """Give the bytes kept beside the entry of this `kind` about `subject`, mapped; None if there are none."""
    with suppress(OSError, ValueError), _file(root, kind, subject).with_suffix(".bin").open("rb") as opened:
        if not os.fstat(opened.fileno()).st_size:
            return b""
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    return None


def write_bytes(root: Path, kind: str, subject: str, content: bytes) -> None:
    """Keep bytes beside an entry, which is written after them."""
    file = _file(root, kind, subject)
    with suppress(OSError):
        _prepare(root / NAME, file.parent)
        _put(file.with_suffix(".bin"), lambda opened: opened.write(content))


def key_of(*parts: str | bytes) -> str:
    """Digest `parts` together with everything that every entry depends on: this Python, and memlint with its rules."""
    return _digest(_engine(), *parts)


def clean(root: Path) -> Path | None:
    """Remove the cache of the project at `root`; return the directory that was removed, None if there was none."""
    directory = root / NAME
    if directory.is_symlink() or not (directory / "CACHEDIR.TAG").is_file():
        return None
    shutil.rmtree(directory)
    return directory


@cache
def _engine() -> str:
    """Digest the versions of memlint and Python, and every module of memlint and of the built-in rules.

    The modules are read, which takes a few milliseconds: unlike times and sizes of files, their content is still right
    if the cache is copied to another machine.
    """
    digest = hashlib.sha256(f"{__version__}\0{sys.version}".encode())
    for place in OURS:
        for folder, folders, names in os.walk(place):
            folders.sort()
            for name in sorted(name for name in names if name.endswith(".py")):
                digest.update(f"\0{name}\0".encode())
                with open(f"{folder}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 -- hundreds of them
                    digest.update(file.read())
    return digest.hexdigest()


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8) + content)
    return digest.hexdigest()


def _file(root: Path, kind: str, subject: str) -> Path:
    return root / NAME / kind / f"{_digest(subject)[:32]}.json"


def _prepare(directory: Path, entries: Path) -> None:
    entries.mkdir(parents=True, exist_ok=True)
    if not (directory / "CACHEDIR.TAG").is_file():
        for file, text in ((".gitignore", "*\n"), ("CACHEDIR.TAG", _TAG)):
            (directory / file).write_text(text, encoding="utf-8")
