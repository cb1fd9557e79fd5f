"""Downloads that a script asks for: what would be weights is left out, and with fake data so is everything else.

No file appears where a download would put one: whoever reads it finds that it is missing, and memlint makes it then.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from email.message import Message
from pathlib import Path, PurePosixPath
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.response import addinfourl

import torch

from memlint.base.after_import import after_import
from memlint.base.ownership import is_standard_library, is_users
from memlint.script.fake_files import written
from memlint.script.file_kinds import kind_by_name
from memlint.script.nvidia_smi import answer_of_nvidia_smi
from memlint.workloads.missing_checkpoints import STANDS_FOR, is_of_weights
from memlint.workloads.notes import fake_data, note, note_fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_FUNCTIONS = (
    ("torchvision.datasets.utils", "download_url"),
    ("torchvision.datasets.utils", "download_and_extract_archive"),
    ("torchvision.datasets.utils", "download_file_from_google_drive"),
    ("gdown", "download"),
    ("gdown", "download_folder"),
    ("wget", "download"),
)
"""Functions that put what they download into a file."""
_PROGRAMS = frozenset(("wget", "curl", "gdown", "gsutil", "aws", "kaggle", "huggingface-cli", "hf"))
"""Programs that download; all that they would change is a file."""
_OF_TERMINAL = {"stty size": "echo 24 80", "tput cols": "echo 80", "tput lines": "echo 24"}
"""Commands that ask for the size of a terminal, which a script has none of here, and commands that answer."""
_SHOWN = ("image", "video", "audio")
"""Kinds of files that a package opens by their address for whoever asks it to."""
_CHECKSUMS = ("md5", "sha1", "sha256")
_LEAST_WEIGHTS = 2**20
"""Bytes of what stands for weights: a program may take a small file for an error."""
_NOT_DOWNLOADED = "is not downloaded"
_WITHOUT_DOWNLOADS: set[str] = set()
"""Files whose code was given something else than it asked to be downloaded, and may compare checksums."""
_HINT = "download it once before, or add --fake-data to do without"


def replace_downloads(replacing: Replacing, *, fake: bool) -> None:
    """Make functions and programs that download name the script's line, or with `fake` do nothing."""
    replacing.put(urllib.request, "urlretrieve", _done(urllib.request.urlretrieve, fake=fake, gives=_retrieved))
    replacing.put(urllib.request, "urlopen", _done(urllib.request.urlopen, fake=fake, gives=_opened))
    replacing.put(torch.hub, "download_url_to_file", _done(torch.hub.download_url_to_file, fake=fake))
    replacing.put(torch.hub, "list", _done(torch.hub.list, fake=fake, gives=lambda *_arguments, **_named: []))
    replacing.put(subprocess.Popen, "__init__", _started(subprocess.Popen.__init__, fake=fake))
    replacing.put(os, "system", _run_by_shell(os.system, fake=fake))

    def replace(module: ModuleType, name: str) -> None:
        replacing.put(module, name, _done(getattr(module, name), fake=fake))

    for name in _CHECKSUMS if fake else ():
        replacing.put(hashlib, name, _checked(getattr(hashlib, name)))
    for module, name in _FUNCTIONS:
        after_import(module, functools.partial(replace, name=name))
    after_import("requests.sessions", lambda module: _replace_requests(module, replacing, fake=fake))


def _done(function: Callable[..., Any], *, fake: bool, gives: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Wrap a function that downloads its first argument; `gives` returns what it would."""

    @functools.wraps(function)
    def download(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            url = _address(next(iter((*args, *kwargs.values())), ""))
            is_weights = is_of_weights(_path(url))
            caller = sys._getframe(1)
            is_known = is_weights or (fake and kind_by_name(_path(url)) in _SHOWN)
            if not (is_users(caller.f_code.co_filename) or (is_known and _is_of_package(caller))):
                raise
            if is_weights and gives is _opened and not fake:
                note(error, f"downloads the weights {url}", "download them once before")
                raise  # which are read from here, and checked
            if not (is_weights or fake):
                note(error, f"downloads {url}", _HINT)
                raise
            _WITHOUT_DOWNLOADS.add(caller.f_code.co_filename)
        note_fake_data(f"{url} {_NOT_DOWNLOADED}")
        return gives(url, *args, **kwargs) if gives is not None else (args[1:] or (kwargs.get("output"),))[0]

    return download


def _is_of_package(frame: FrameType) -> bool:
    """Return True if an installed package downloads by code of its own, and not Python or PyTorch on its behalf."""
    name = str(frame.f_globals.get("__name__"))
    return not (is_standard_library(frame.f_code.co_filename) or name.partition(".")[0] == "torch")


class _Checksum(str):  # noqa: SLOT000 -- of which there are few
    """The checksum of a file that was not downloaded: the script compares it with that of the real one."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and len(other) == len(self)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class _Hash:
    """A hash of what the script reads where something was not downloaded."""

    def __init__(self, hashed: Any) -> None:
        self._hashed = hashed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hashed, name)

    def hexdigest(self) -> str:
        return _Checksum(self._hashed.hexdigest())


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that makes a hash, so that checksums of what was not downloaded are as the script expects."""

    @functools.wraps(function)
    def hashed(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        file = sys._getframe(1).f_code.co_filename
        is_asked = file in _WITHOUT_DOWNLOADS or (is_users(file) and any(_NOT_DOWNLOADED in each for each in fake_data))
        return _Hash(made) if is_asked else made

    return hashed


def _address(request: Any) -> str:
    return str(getattr(request, "full_url", request))


def _path(url: str) -> str:
    return urlsplit(url).path


def _retrieved(_url: str, *args: Any, **kwargs: Any) -> tuple[Any, Message]:
    return (args[1] if len(args) > 1 else kwargs.get("filename")), Message()


def _opened(url: str, *_args: Any, **_kwargs: Any) -> Any:
    content, headers = _content(url), Message()
    headers["Content-Length"] = str(len(content))
    return addinfourl(io.BytesIO(content), headers, url, 200)


def _content(url: str) -> bytes:
    """Return what a file of the name in `url` may hold; where that says nothing a text, or weights for who loads it."""
    kind = kind_by_name(_path(url))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        written(kind or "text", _path(url), path, {})
        content = path.read_bytes() if kind else STANDS_FOR + path.read_bytes()
    return content.ljust(_LEAST_WEIGHTS, b"\0") if content == STANDS_FOR else content


def _replace_requests(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    request = module.Session.request

    def requested(self: Any, method: str, url: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return request(self, method, url, *args, **kwargs)
        except OSError as error:
            frame = sys._getframe(1)
            while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("requests."):
                frame = frame.f_back
            if not is_users(frame.f_code.co_filename) or method.upper() not in ("GET", "HEAD"):
                raise
            if not (is_of_weights(_path(str(url))) or fake):
                note(error, f"downloads {url}", _HINT)
                raise
        note_fake_data(f"{url} {_NOT_DOWNLOADED}")
        response = sys.modules["requests"].models.Response()
        response.status_code, response.url, response.encoding = 200, str(url), "utf-8"
        content = _content(str(url))
        response.headers["Content-Length"] = str(len(content))
        response.raw = sys.modules["urllib3"].HTTPResponse(io.BytesIO(content), status=200, preload_content=False)
        return response

    replacing.put(module.Session, "request", requested)


# --- programs


def _started(init: Callable[..., None], *, fake: bool) -> Callable[..., None]:
    @functools.wraps(init)
    def start(self: Any, args: Any, *others: Any, **kwargs: Any) -> None:
        init(self, _in_place_of(args, fake=fake), *others, **kwargs)

    return start


def _run_by_shell(run: Callable[[str], int], *, fake: bool) -> Callable[[str], int]:
    return lambda command: run(_in_place_of(command, fake=fake))


def _in_place_of(command: Any, *, fake: bool) -> Any:
    """Return the command of a program that does nothing, if this one downloads something that can be left out.

    A question for the size of the terminal gets that of the usual one, nvidia-smi answers for the simulated GPU.
    """
    try:
        words = shlex.split(command) if isinstance(command, str) else [os.fsdecode(word) for word in command]
    except (TypeError, ValueError):
        return command
    if words and PurePosixPath(words[0]).name == "nvidia-smi":
        shown = ["printf", "%s\\n", *answer_of_nvidia_smi(words[1:])]
        return shlex.join(shown) if isinstance(command, str) else shown
    if (answer := _OF_TERMINAL.get(" ".join(words))) is not None:
        return answer if isinstance(command, str) else answer.split()
    if not words or PurePosixPath(words[0]).name not in _PROGRAMS or not (fake or _is_for_weights(words)):
        return command
    note_fake_data(f"the program {PurePosixPath(words[0]).name} is not run: nothing is downloaded")
    return "true" if isinstance(command, str) else ["true"]


def _is_for_weights(words: Sequence[str]) -> bool:
    return any(is_of_weights(_path(word)) for word in words[1:] if PurePosixPath(_path(word)).suffix)
