"""Python files: those below a directory, their content, and the reason why one cannot be read.

Reading never crashes: whatever keeps a file from being understood is an `Unreadable` naming the file,
the line where that is known, and the reason.
"""

import io
import os
import stat
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from memlint.base.errors import TargetError

MAX_SOURCE_NBYTES = 8 * 2**20
"""Largest size in bytes of a parsed file: a syntax tree takes about a hundred times the text, and nobody writes such
files."""
SKIPPED_DIRECTORIES = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"})
"""Names of directories without files written by the project's people, besides hidden ones."""


class Unreadable(TargetError):  # noqa: N818 -- TargetError is its suffix
    """A file that cannot be read or parsed; `line` is 1 if the line is not known."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


def python_files(paths: Iterable[str | Path]) -> Iterator[Path]:
    """Yield the named files, and the `.py` and `.pyi` files below the named directories, sorted, each once.

    Hidden directories and those of environments and builds are not searched unless named.
    """
    seen: set[Path] = set()
    for path in map(Path, paths):
        for file in _below(path) if path.is_dir() else (path,):
            if file not in seen:
                seen.add(file)
                yield file


def folders_of_modules(root: Path) -> dict[str, set[Path]]:
    """Return the folders below `root` that hold a module, or a package with Python files in it, by its name."""
    folders: dict[str, set[Path]] = defaultdict(set)
    for file in python_files([root]):
        folders[file.stem].add(file.parent)
        for package in file.parents:
            if package == root:
                break
            folders[package.name].add(package.parent)
    return folders


def _below(directory: Path) -> Iterator[Path]:
    for root, directories, files in os.walk(directory):
        directories[:] = sorted(
            name
            for name in directories
            if not name.startswith(".")
            and name not in SKIPPED_DIRECTORIES
            and not os.path.isfile(os.path.join(root, name, "pyvenv.cfg"))  # noqa: PTH113, PTH118 -- it may be unreadable
        )
        yield from (Path(root, name) for name in sorted(files) if name.endswith((".py", ".pyi")))


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a Python file; raises Unreadable."""
    name = str(path)
    try:
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(name, 1, "is not a regular file")
        if status.st_size > MAX_SOURCE_NBYTES:
            raise Unreadable(name, 1, f"is larger than {MAX_SOURCE_NBYTES // 2**20} MiB and was not parsed")
        return Path(path).read_bytes()
    except OSError as error:
        raise Unreadable(name, 1, f"cannot be read: {error.strerror or error}") from error


def decode(content: bytes, path: str) -> tuple[str, str]:
    """Decode a Python file as Python would: return its text with the line ends unchanged, and the name of its encoding.

    Raises Unreadable.
    """
    try:
        readable = content.replace(b"\0", b" ")  # null bytes do not depend on the encoding: parsers refuse them
        encoding, _lines = tokenize.detect_encoding(io.BytesIO(readable).readline)
        return content.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise _not_text(content, path, error) from error
    except SyntaxError as error:
        try:
            content.decode()  # the lines that Python searches for a coding comment have to be UTF-8
        except UnicodeDecodeError as wrong:
            raise _not_text(content, path, wrong) from error
        raise Unreadable(path, 1, f"has an encoding Python does not know: {error.msg}") from error


def _not_text(content: bytes, path: str, error: UnicodeDecodeError) -> Unreadable:
    line = content[: error.start].count(b"\n") + 1
    return Unreadable(path, line, f"is not {error.encoding} text, and no coding comment says what it is")
