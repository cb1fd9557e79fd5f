"""The files of a project that user code can import or read, as one archive for another machine."""

import io
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memlint.base.errors import TargetError
from memlint.base.exclusion import exclusion
from memlint.base.units import format_nbytes

PACKED_NBYTES = 64 * 2**20
"""The most that is sent. A file counts in blocks of 4 KiB, so that the number of files is bounded as well."""
_BLOCK = 4096
_SUFFIXES = frozenset({".cfg", ".ini", ".json", ".py", ".pyi", ".toml", ".txt", ".yaml", ".yml"})
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
_MARKS = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""Files and directories that mark environments and caches."""
_NAMED = 3
"""Files named in the error."""


def pack(root: Path, exclude: Sequence[str] = (), targets: Iterable[Path] = ()) -> bytes:
    """An archive of the Python and text files below `root`, the same bytes whenever it is the same files.

    Hidden files and directories, environments, caches, linked directories and what a pattern of `exclude` matches stay
    out, but `targets`, absolute paths, are always there. Raises TargetError if they are not below `root`, if something
    cannot be read, or for more than `PACKED_NBYTES`.
    """
    files = {file.relative_to(root).as_posix(): file for file in _files(root, exclude)}
    for target in targets:
        if not target.is_relative_to(root):
            raise TargetError(
                f"{target} is not in the project {root}, whose files are sent to the workers",
                "Move it there, or leave --executor ray out.",
            )
        files[target.relative_to(root).as_posix()] = target
    _refuse_large(root, files)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name, file in sorted(files.items()):
            try:
                opened.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
            except (OSError, UnicodeError) as error:
                raise TargetError(f"{file} cannot be sent to the workers: {error}", _exclude(name)) from error
    return archive.getvalue()


def unpack(archive: bytes, root: Path) -> None:
    """Write the files of `archive` below the directory `root`, which need not be there."""
    root.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        opened.extractall(root)


def _files(root: Path, exclude: Sequence[str]) -> Iterator[Path]:
    is_excluded = exclusion(exclude, root)
    for place, directories, names in os.walk(root):
        here = Path(place)
        directories[:] = [
            name
            for name in directories
            if name not in _SKIPPED
            and not name.startswith(".")
            and not is_excluded(here / name)
            and not any((here / name / mark).exists() for mark in _MARKS)
        ]
        for file in (here / name for name in names):
            is_wanted = file.suffix.lower() in _SUFFIXES and not file.name.startswith(".")
            if is_wanted and not is_excluded(file) and file.is_file():
                yield file


def _refuse_large(root: Path, files: dict[str, Path]) -> None:
    sizes = {name: file.stat().st_size for name, file in files.items()}
    total = sum(-(-size // _BLOCK) * _BLOCK for size in sizes.values())
    if total <= PACKED_NBYTES:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_NAMED]
    raise TargetError(
        f"the {len(files)} Python and text files of {root} take {format_nbytes(total)}, and at most "
        f"{format_nbytes(PACKED_NBYTES)} are sent to the workers; the largest are "
        + ", ".join(f"{name} ({format_nbytes(sizes[name])})" for name in largest),
        _exclude(largest[0]),
    )


def _exclude(name: str) -> str:
    """The hint for a file that nobody needs: its directory, which often holds more of them, or the file itself."""
    return f'Leave out what the model does not read: exclude = ["{name.partition("/")[0]}"] under [tool.memlint].'
