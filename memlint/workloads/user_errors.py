"""Errors of the user's code as text: type, message and line."""

import argparse
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from memlint.base.errors import GUARD, MemlintError, WorkloadError
from memlint.base.frames import causes, chain, text_of
from memlint.base.ownership import is_installed, is_memlint, is_standard_library, is_users
from memlint.libraries import plugins
from memlint.libraries.unknown_attributes import unknown_attribute
from memlint.source.similar_files import configs_beside, similar_file
from memlint.workloads.environment_variables import unset_value, unset_variable, unset_variables
from memlint.workloads.missing_modules import absent, installed_without, moved, remedy
from memlint.workloads.older_versions.learning import changed_package, num_gpus_wanted, own_function_refusing
from memlint.workloads.pinned_versions import of_another_python, of_another_version, version_hint
from memlint.workloads.placeholders.absent_packages import is_missing, missing

_PACKAGE = re.compile(r"[\w-]+(\.[\w-]+)*")
_TORCH = str(Path(torch.__file__).parent)
_RELAYED = re.compile(r"^RuntimeError: (\w+: .+)\n\s*\nAt:$", re.MULTILINE)
"""An exception of Python's that TorchScript raises anew, between the code and the stack that it went through."""
_OPERATOR = re.compile(r"(?:operator |Could not run '|No such operator )(\w+)::\w+|'_OpNamespace' '(\w+)' object")
_NOT_FOUND = re.compile(
    r"(?<![\w.-])(?!(?:the|this|a|required|python)\b)([\w.-]+)(?: python)? (?:package|library|module) "
    r"(?:was|is|could) not (?:be )?(?:found|installed|available)",
    re.IGNORECASE,
)
"""A sentence of an ImportError on a package by its name: `vmas python package was not found`."""
_PIP = re.compile(
    r"pip3? install (?:-U |--upgrade )?[\"']?([A-Za-z][\w.-]*)|"
    r"requires? [\"'`]([A-Za-z][\w.-]*)[\"'`].* to be installed"
)
"""Phrases in which an ImportError names the missing package."""
_typed = ["memlint check FILE", ""]
"""The command that memlint is running, and what stands behind its options."""
_TARGET = re.compile(r"Error locating target '([\w.]+)'.*\s+full_key: ([\w.]+)", re.DOTALL)
"""The error of hydra for a class of a config that it cannot import."""
"""Message of OmegaConf on `${oc.env:NAME}`."""


_NO_CONNECTION = "allows no connection to another machine"
_WITHOUT_GPU = (
    *("from the 'CUDA' backend", "Torch not compiled with CUDA enabled", "without ATen_cuda library"),
    *("Tried to instantiate dummy base class", "Found no NVIDIA driver", "No CUDA GPUs are available"),
    *("no CUDA-capable device is detected", "CUDA driver version is insufficient", "not linked with support for cuda"),
    *("PrivateUse1HooksInterface", "a device is simulated"),
)
"""PyTorch's messages on a missing GPU, from builds without CUDA and with it."""


def answer_to(command: str, behind: str = "") -> None:
    """Let hints name this command and the options to add, before what stands `behind` them."""
    _typed[:] = [command, behind]


def command_with(options: str) -> str:
    """Return the running command with these options."""
    return " ".join(filter(None, (_typed[0], options, _typed[1])))


@contextmanager
def reported(action: str, hint: str = "", *, otherwise: str = "") -> Iterator[None]:
    """Run user code; any exception, `SystemExit` included, becomes a WorkloadError that begins with `action`.

    Its hint is `hint`, or what the exception itself shows, or `otherwise`.
    """
    try:
        yield
    except MemlintError:
        raise
    except (Exception, SystemExit) as error:
        unknown = unknown_attribute(error)
        if unknown is not None:
            raise unknown from error
        raise WorkloadError(f"{action}: {describe(error)}", hint or what_to_do(error) or otherwise) from error


def of_environment(error: BaseException) -> str:
    """Return what to do about an error of the environment, which no other inputs or arguments avoid; else empty.

    That is a missing package, a part of one that another version has, a compiled operator, or a file that is read.
    """
    name = missing_package(error)
    if package := installed_without(name):
        return of_another_version(error) or version_hint(package, user_line(error))
    if name:
        extras = re.search(rf"{re.escape(name)}\[[\w,-]+\]", text_of(error))
        importer = user_line(error).rpartition(":")[0]
        return remedy(name, importer, missing(), distribution=extras[0] if extras else "")
    if isinstance(error, NameError):
        return absent(error)
    if isinstance(error, ImportError) and error.name:
        return of_another_version(error) or version_hint(error.name.partition(".")[0], user_line(error))
    operator = _OPERATOR.search(text_of(error))
    if operator is not None and (library := operator[1] or operator[2]) not in ("aten", "prims"):
        if library == "torchvision":
            return _of_torchvision()
        place = f"where memlint runs, {sys.prefix}, for torch {torch.__version__}"
        return f"Install {library} with its compiled operators {place}."
    if isinstance(error, FileNotFoundError) and (of_it := _of_file(_place_of(error))):
        return of_it
    place = user_line(error) or "It"
    is_of_hub = any(type(each).__name__ == "LocalEntryNotFoundError" for each in chain(error))
    if (is_of_hub and not is_installed(place)) or _NO_CONNECTION in text_of(error):
        return f"{place} downloads something: let it do so once without memlint, which then finds what it has saved."
    if name := unset_variable(error):
        return unset_variables(name, user_line(error), command_with(""))
    return ""


def _of_own_call(error: BaseException) -> str:
    """Return the two lines of the project that disagree where it calls a function of its own with other arguments."""
    if (function := own_function_refusing(error)) is None:
        return ""
    code = function.__code__
    return f"Let {user_line(error)} and {code.co_filename}:{code.co_firstlineno} agree: both are the project's own."


def _place_of(error: FileNotFoundError) -> str:
    """Return the file that is not there: libraries raise the error with its path alone, too."""
    place = error.filename or (error.args[0] if len(error.args) == 1 else "")
    return os.fsdecode(place) if error.filename or isinstance(place, os.PathLike) else ""


def _of_file(place: str) -> str:
    """Return what to do about a file that is not there, beside one that is and has another spelling.

    A file without a name is one of an option without a value; empty if there is no such option.
    """
    if not place:
        empty = [each for each in sys.argv[1:] if each.startswith("-") and each.endswith("=")]
        of_shell = "a value: a variable of the shell that is not set leaves none."
        return f"Give {', '.join(empty)} {of_shell}" if empty else ""
    if (other := similar_file(Path(place))) is not None:
        return f"{place} is not there, and {other} is: type that."
    if beside := configs_beside(Path(place)):
        return f"Put {place} there, or name one that is there: {', '.join(map(str, beside))}."
    return f"Put {place} there, or give the model an argument with which it reads no file."


def _of_torchvision() -> str:
    """Return what to install where torchvision's compiled operators do not fit the installed PyTorch."""
    build = torch.__version__.partition("+")[2]
    index = f" --index-url https://download.pytorch.org/whl/{build}" if build else ""
    return (
        f"torchvision's compiled operators do not load beside torch {torch.__version__}, in {sys.prefix}: type "
        f"pip install --force-reinstall --no-deps torchvision{index}."
    )


def what_to_do(error: BaseException) -> str:
    """Return a hint if the error itself shows what is missing, first of all in its notes; else empty."""
    return " ".join(dict.fromkeys(getattr(error, "__notes__", ()))) or _shown_by(error)


def _shown_by(error: BaseException) -> str:
    *_, first = causes(error)  # hydra raises an error of its own from the one that says what is missing
    match, missing = _TARGET.search(text_of(error)), getattr(first, "name", "")
    if match is not None and match[1].startswith(f"{missing}.") and (now := moved(match[1])):
        return f"It is {now} now: type {match[2]}._target_={now} behind the command."
    of_packages = of_another_python(first) or _of_own_call(first) or of_environment(first) or of_environment(error)
    if of_it := of_packages or plugins.hint_for(error) or of_another_version(error):
        return of_it
    if of_it := _by_text(error) or _of_ranks(error):
        return of_it
    is_of_none = isinstance(error, AttributeError | TypeError) and "NoneType" in text_of(error)
    if is_of_none or isinstance(error, UnboundLocalError):
        return absent(error) or unset_value(error, command_with(""))
    if wants_a_gpu(error):
        return (
            "If that is when the file is imported: make it where the model is made, as with register_buffer, so that "
            "it belongs to the step, or estimate the script that trains, which may: memlint run SCRIPT."
        )
    if (package := changed_package(error)) not in ("", "torch"):
        return version_hint(package, user_line(error))
    if _refused_arguments(error) is not None:
        return f"{GUARD} Or run it with its arguments: memlint run FILE.py ..."
    return GUARD if isinstance(error, SystemExit) else ""


def _by_text(error: BaseException) -> str:
    """Return what to do about errors that a step meets on any device, and about one of the simulated GPU."""
    text = text_of(error)
    if "more than 1 value per channel" in text:
        return f"BatchNorm cannot train on one value of each channel: type {command_with('--batch 2')}"
    if "modified by an inplace operation" in text:
        version = torch.__version__.partition("+")[0]
        return f"PyTorch {version} refuses it on any device: compute what comes behind that operation without inplace."
    if isinstance(error, OverflowError) and text.startswith("Python integer"):
        return "NumPy refuses it since version 2, before which it counted round: type pip install 'numpy<2'."
    if "compute capability" in text.lower():
        return "It rejects the simulated GPU: choose another one, such as --gpu h100-80gb."
    return ""


def _of_ranks(error: BaseException) -> str:
    """Return what to type for a program that is made for several processes, or wants several GPUs."""
    text = text_of(error)
    if isinstance(error, ValueError) and "Default process group" in text:
        return (
            f"It is made for several processes: type {command_with('--ranks 2')}, or for the script that starts them "
            "memlint run --ranks 2 with its name."
        )
    if wanted := num_gpus_wanted(error):
        return f"One GPU is simulated, that of one rank: for several type {command_with(f'--ranks {wanted}')}"
    return ""


def missing_package(error: BaseException) -> str:
    """Return the name of the missing module or package; empty if the error is another one, or does not name it.

    Libraries raise PackageNotFoundError with a sentence in place of the name, ModuleNotFoundError with one and no name,
    and ImportError with what to type: `pip install -U bitsandbytes`. A requirement is in quotes:
    `Requirement 'jsonargparse[signatures]>=4.27.7' not met`.
    """
    if not isinstance(error, ModuleNotFoundError):
        text = text_of(error) if isinstance(error, ImportError) else ""
        asked = _PIP.search(text) or _NOT_FOUND.search(text)
        name = next(filter(None, asked.groups()), "") if asked is not None else ""
        return name if name and is_missing(name.replace("-", "_")) else ""
    if error.name and _PACKAGE.fullmatch(str(error.name)):
        return str(error.name)
    quoted = re.search(r"['\"`]([\w.-]+(?:\[[\w,.-]*\])?)\s*(?:[<>=!~][^'\"`]*)?['\"`]", str(error.name or error))
    return quoted[1].partition("[")[0] if quoted else ""


def meant_options(error: BaseException) -> str:
    """Return a hint at the options that were meant by those that argparse does not know; else empty."""
    refusal = _refusal(error)
    if refusal is None:
        return ""
    known = list(refusal["self"]._option_string_actions)
    unknown = [word.rstrip(":") for word in str(refusal["message"]).split() if re.match(r"--?\w", word)]
    close = {word: get_close_matches(word.partition("=")[0], known, n=1) for word in unknown}
    meant = [f"{names[0]} for {word}" for word, names in close.items() if names and names[0] != word]
    return f"The script has {' and '.join(meant)}." if meant else ""


def _refused_arguments(error: BaseException) -> str | None:
    """Return argparse's message before it ends the process; None for other exits."""
    refusal = _refusal(error)
    return None if refusal is None else str(refusal["message"])


def _refusal(error: BaseException) -> Mapping[str, Any] | None:
    """Return the variables of argparse's last function before it ends the process; None for other exits."""
    frames = (frame for frame, _line in traceback.walk_tb(error.__traceback__))
    return next((each.f_locals for each in frames if each.f_code is argparse.ArgumentParser.error.__code__), None)


def is_of_parser(error: SystemExit) -> bool:
    """Return True if a parser of command lines ended the program: argparse, or an installed package such as click."""
    frames = [frame.f_code.co_filename for frame, _line in traceback.walk_tb(error.__traceback__)]
    return bool(error.code) and bool(frames) and not is_users(frames[-1]) and not is_memlint(frames[-1])


def wants_a_gpu(error: BaseException) -> bool:
    """Return True if the code asked PyTorch for a GPU while none is simulated."""
    return any(each in text_of(link) for link in chain(error) for each in _WITHOUT_GPU)


def describe(error: BaseException) -> str:
    """Return `ValueError: heads must divide width (model.py:12)`: the line is the innermost one of the user's code."""
    refused = _refused_arguments(error)
    if refused is not None:
        return f"its command line was rejected: {refused} ({user_line(error)})"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    if wants_a_gpu(error):
        return f"a tensor is created on a GPU while none is simulated ({user_line(error)})"
    relayed = _RELAYED.search(text_of(error))
    text = " ".join((relayed[1] if relayed else text_of(error)).split())
    name = "" if relayed else type(error).__name__
    message = ": ".join(filter(None, (name, text)))
    line = user_line(error)
    return f"{message} ({line})" if line else message


def user_line(error: BaseException) -> str:
    """Return `path:line` of the innermost frame outside PyTorch, memlint, the standard library and installed packages.

    If only frames of installed packages are left, the innermost of those; empty without any.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_internal(frame.filename)]
    frames = [frame for frame in frames if is_users(frame.filename)] or frames
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _is_internal(path: str) -> bool:
    return path.startswith(("<", _TORCH)) or is_memlint(path) or is_standard_library(path)
