"""Reads a Report that anybody may have written: the code of a pull request, an older memlint, a broken disk.

Nothing in the file is trusted. What it may cost to read is bounded before and while it is read; every number is finite
and every string one line of characters that can be seen, at most LONGEST of them. A string may still hold Markdown and
HTML: escaping is up to what writes those. What is refused is a TargetError, which never quotes the file.
"""

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memlint.base.errors import TargetError
from memlint.base.units import format_nbytes
from memlint.report.escaping import one_line
from memlint.report.model import Report
from memlint.report.text_style import cut

MOST_NBYTES = 32 * 2**20
"""Bytes of a file, and of the contents of a zip: timelines of 300,000 events, and 1 GiB of memory at worst."""
MOST_DEPTH = 32
"""Levels of lists and objects within each other; a Report of version 1 has 8."""
MOST_ENTRIES = 25_000
"""Entries of a list or an object: the results GitHub takes of a run. Lists of numbers may be longer."""
MOST_WORKLOADS = 2_000
"""Each is compared with those of another report; timm has 1,300 models."""
LONGEST = 4_000
"""Characters of a string; longer ones are cut. Linux takes 4,096 bytes for a path."""
LARGEST = 2**63 - 1
"""Bytes, FLOPs and positions; JSON knows no limit, and a number of a million digits takes minutes to print."""
_MOST_DIGITS = len(f"-{LARGEST}")
_MOST_ZIPPED = 16
_SIGNATURE = b"PK\x01\x02"
"""The signature with which the entry of a zip's directory begins."""
_LONGEST_PLACE = 200
_TOO_DEEP = f"it has lists and objects in each other more than {MOST_DEPTH} deep"
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError)
_WRITE = "Write one with `memlint check --output-format json -o FILE`."
_LESS = "Analyse fewer targets at once, or without --timeline."
_ZIP = "Give the JSON file, or a zip with nothing else in it, as forges hand out artifacts."


class _RefusedError(Exception):
    """Why something is no Report, and what to do."""

    def __init__(self, reason: str, hint: str = _WRITE) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def read_report(path: Path) -> Report:
    """The Report in the JSON file at `path`, or in a zip that holds only that file, as forges hand out artifacts.

    Nothing is unpacked to disk. Raises TargetError with the reason.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_NBYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = error.strerror if isinstance(error, OSError) else "no file has such a name"
        raise TargetError(f"{path} cannot be read: {reason}", _WRITE) from error
    return parse_report(data, str(path))


def parse_report(data: bytes, name: str) -> Report:
    """The Report in `data`, the content of the file `name`: JSON, or a zip. Raises TargetError with the reason."""
    try:
        _check_size(len(data))
        document = _harmless(_document(_unzipped(data) if data.startswith(b"PK") else data))
        _check_version_and_workloads(document)
        # As JSON again: there the model can be strict with types, and still take a list for a tuple
        return Report.model_validate_json(json.dumps(document), strict=True, extra="ignore")
    except _RefusedError as refused:
        raise TargetError(f"{name} is not a memlint report: {refused.reason}", refused.hint) from refused
    except ValidationError as error:
        raise TargetError(f"{name} is not a memlint report: {_first(error)}", _WRITE) from None


def _check_size(nbytes: int) -> None:
    if nbytes > MOST_NBYTES:
        raise _RefusedError(f"it is larger than {format_nbytes(MOST_NBYTES)}", _LESS)


def _unzipped(data: bytes) -> bytes:
    """The content of the only file in a zip."""
    if data.count(_SIGNATURE) > _MOST_ZIPPED:
        raise _RefusedError("it is a zip that holds many files", _ZIP)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [file for file in archive.infolist() if not file.filename.endswith("/")]
            if len(files) != 1:
                raise _RefusedError(f"it is a zip that holds {len(files)} files", _ZIP)
            if files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise _RefusedError("it is a zip of a kind that forges do not write", _ZIP)
            _check_size(files[0].file_size)
            with archive.open(files[0]) as file:
                content = file.read(MOST_NBYTES + 1)
    except _BROKEN as error:
        raise _RefusedError("it is a zip that is broken or locked", _ZIP) from error
    _check_size(len(content))
    return content


def _document(data: bytes) -> Any:
    """The JSON in `data`, in which no key is there twice and all numbers are in bounds."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _RefusedError("it is UTF-16, as PowerShell writes with `>`")
    try:
        text = data.decode("utf-8-sig")
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_float
        )
    except UnicodeDecodeError as error:
        raise _RefusedError(f"it is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise _RefusedError(f"it is not JSON (line {error.lineno}, column {error.colno}: {error.msg})") from error
    except RecursionError as error:
        raise _RefusedError(_TOO_DEEP) from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise _RefusedError("an object in it has a key twice")
    return dict(pairs)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS or abs(number := int(digits)) > LARGEST:
        raise _RefusedError("it has a number that is too large")
    return number


def _float(digits: str) -> float:
    number = float(digits)
    if not abs(number) <= LARGEST:  # not a number is not less than anything
        raise _RefusedError("it has a number that is too large, or none")
    return number


def _harmless(value: Any, depth: int = 1) -> Any:
    """`value` with its strings fit for one line. Raises _RefusedError for too much of anything."""
    match value:
        case str():
            return cut(one_line(value), LONGEST)
        case list() | dict() if depth > MOST_DEPTH:
            raise _RefusedError(_TOO_DEEP)
        case list() if all(type(item) is int for item in value):
            return value
        case list() | dict() if len(value) > MOST_ENTRIES:
            raise _RefusedError(f"it has a list with more than {MOST_ENTRIES:,} entries", _LESS)
        case list():
            return [_harmless(item, depth + 1) for item in value]
        case dict():
            return {_harmless(key): _harmless(item, depth + 1) for key, item in value.items()}
    return value


def _check_version_and_workloads(document: Any) -> None:
    newest = Report.model_fields["version"].default
    version = document.get("version") if isinstance(document, dict) else newest  # what is no object is refused later
    if version is None or isinstance(version, bool | float):  # which equal numbers
        raise _RefusedError("it says no version of the format")
    match document:
        case {"version": int(version)} if version > newest:
            raise _RefusedError(
                f"a newer memlint wrote it, as version {version} of the format; this one reads up to version {newest}",
                "Update memlint: pip install --upgrade torch-memlint",
            )
        case {"workloads": list(workloads)} if len(workloads) > MOST_WORKLOADS:
            raise _RefusedError(f"it has more than {MOST_WORKLOADS:,} workloads", _LESS)


def _first(error: ValidationError) -> str:
    """Describe the first of the errors."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{cut(place, _LONGEST_PLACE)}: {first['msg']}" if place else first["msg"]
