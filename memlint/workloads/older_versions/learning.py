"""Learn from an error of an installed package of another version which change lets the program go on."""

from __future__ import annotations

import argparse
import ast
import builtins
import functools
import importlib.util
import inspect
import linecache
import os
import pickle
import re
import sys
import traceback
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Literal

from memlint.base.frames import causes, chain, text_of
from memlint.base.guarded_imports import statements_at
from memlint.base.ownership import is_installed, is_memlint, is_users
from memlint.distributed.rank import Rank
from memlint.source.text import dotted_name
from memlint.source.typed_commands import is_placeholder
from memlint.targets.script import Amendment
from memlint.workloads.environment_variables import is_made_up, unset_variable
from memlint.workloads.notes import LACKS_FOLDER
from memlint.workloads.older_versions.assertions import of_assertion
from memlint.workloads.older_versions.former_timm import present_name
from memlint.workloads.older_versions.former_transformers import FORMER_SETTINGS
from memlint.workloads.older_versions.lightning_arguments import RESTORED, SANITY_CHECK
from memlint.workloads.older_versions.names import is_installed_package, place_of
from memlint.workloads.older_versions.renames import (
    ARGUMENTS,
    ATTRIBUTES,
    DEFAULTS,
    NAMES,
    NOT_NONE,
    POSITIONAL,
    TOUCHES_MEMORY,
)
from memlint.workloads.placeholders.absent_packages import shortened
from memlint.workloads.placeholders.second_import import failing_package

_UNEXPECTED = re.compile(r"([\w.<>]+)\(\) got an unexpected keyword argument '(\w+)'")
_REFUSED = re.compile(r"^([\w.<>]+)\(\) (?:takes|got an unexpected|got multiple) ")
_BY_NAME = re.compile(
    r"^([\w.<>]+)\(\) takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) "
    r"(?:positional arguments? \(and \d+ keyword-only arguments?\) )?(?:was|were) given"
)
_UNDEFINED = re.compile(r"^name '(\w+)' is not defined")
_NO_NAME = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_NO_ATTRIBUTE = re.compile(r"module '?([\w.]+)'? has no attribute '?(\w+)'?|`(np)\.(\w+)` was removed")
_RENAMED = re.compile(r"^'(\w+)' has been renamed with ")
_NO_FIELD = re.compile(r"'\w+' object has no attribute '(\w+)'")
_NO_INDEX = re.compile(r"\.(on_\w+)\(\) missing 1 required positional argument: 'dataloader_idx'")
_NO_REAL_SPECTRA = re.compile(r"^stft requires the return_complex parameter|^istft requires a complex-valued input")
_NO_OTHER_VALUES = re.compile(r"^Invalid value '.*' for dtype 'str'", re.DOTALL)
_ABSTRACT = re.compile(r"^Can't instantiate abstract class (\w+) with")
_NO_LOADER = re.compile(r"^load(?:_all)?\(\) missing 1 required positional argument: 'Loader'")
_CHECKED = re.compile(r"^\d+ validation errors? for \w+")
_MUTABLE = re.compile(r"^mutable default <class .*> for field \w+ is not allowed")
_NO_SEED = re.compile("^The only supported seed types are")
_RAGGED = re.compile(r"inhomogeneous shape after \d+ dimensions")
_NO_HOOK = re.compile(r"Support for `(\w+_epoch_end)` has been removed in v2")
_NO_ACCELERATOR = re.compile(r"invalid accelerator name: `accelerator='(\w+)'")
_NO_SCREEN = re.compile("^Cannot load backend '.*' which requires the '.*' interactive framework")
_NO_STRATEGY = re.compile(r"invalid strategy name: `strategy=(None)`")
_NO_TASK = re.compile(r"missing 1 required positional argument: 'task'$")
_NO_OPTIONAL = re.compile("^'?optional arguments'?$")
_NO_DEVICES = re.compile(r"`Trainer\(devices=['\"]([\d, ]+)['\"]\)` value is not a valid input using cuda")
_FEW_GPUS = re.compile(
    r"\b(?:only|but|than|enough|at least (?!1\b)\d+)\b.*\b(?:GPUs?|CUDA devices?|device_count)\b",
    re.IGNORECASE | re.DOTALL,
)
_SEVERAL = re.compile(r"\b(?!1\b)([1-9]\d{0,2})\b")
_WITH_GPUS = re.compile(
    r"([A-Za-z_][\w.]*)\s*(?:<=|==|>)\s*torch\.cuda\.device_count\(\)"
    r"|torch\.cuda\.device_count\(\)\s*(?:>=|==|<)\s*([A-Za-z_][\w.]*)"
)
_LINES_OF_CHECK = 3
_TOO_FEW_GPUS = re.compile(r"You requested gpu: \[([\d, ]+)\](?:\\n|\s)+But your machine only has")
_REFUSED_BY_ITSELF = re.compile(r"^Unexpected keyword arguments?: `(\w+)`")
_MEANT_GROUP = re.compile(r"Could not override '([\w/@-]+)'\.\s+Did you mean to override ([\w/@-]+)\?")
_ONE_CHOICE = re.compile(r"Could not find '.*'\s+Available options in '([\w/]+)':\s+(\w+)\s+Config search path")
_NO_MODEL = re.compile(r"^Unknown model \((\w+)\)")
_ONE_OPTIMIZER = re.compile("^Training with multiple optimizers is only supported with manual optimization")
_NOT_USED = re.compile(r"not used by the HfArgumentParser: (\[.*\])", re.DOTALL)
_UNRECOGNIZED = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)
_NO_SETTER = re.compile(r"property 'hparams' of '\w+' object has no setter")
_NO_METHOD = re.compile(r"type object '\w+' has no attribute '\w+'")
_NO_WORDS = re.compile("^$")
_NO_CONFIG_PATH = re.compile("Using config_path to specify the config name is not supported")
_NO_NONE = re.compile("^None is not supported, only ")
_MORE_THAN_WEIGHTS = re.compile("Weights only load failed")
_NO_ARGUMENTS = re.compile(r"^Value after \* must be an iterable, not (?:int|bool)")
_CONFLICT = re.compile("conflicting option string")
_MOST_FOLDERS = 4
"""Folders above a file in which a project may have its packages."""
_LOCAL_RANK = ("--local-rank", "--local_rank")
_IMPORTING = "<frozen importlib"
_Learn = Callable[[Any, re.Match[str]], "Amendment | None"]


def amendment_of(error: BaseException) -> Amendment | None:
    """Return the change with which the program may come further; None if no error in the chain is of a version.

    A program may raise an error of its own while it handles one that is.
    """
    known = next(filter(None, map(_amendment_of, chain(error))), None)
    return known or _of_broken(error) or _of_sanity_check(error)


def _amendment_of(error: BaseException) -> Amendment | None:
    if variable := unset_variable(error):
        if variable in Rank.current().variables() or variable in Rank.current().cluster_variables():
            return Amendment("launcher", "os", variable)
        if is_made_up(variable):
            return Amendment("variable", "os", variable)
    if (num_gpus := num_gpus_wanted(error)) and Rank.current().world_size == 1:
        return Amendment("ranks", "os", str(num_gpus))
    for kind, learn_from in _BY_KIND:
        if isinstance(error, kind):
            return learn_from(error)
    text = text_of(error)
    for kind, pattern, learn in _BY_MESSAGE:
        if isinstance(error, kind) and (match := pattern.search(text)) is not None:
            return learn(error, match)
    return None


def num_gpus_wanted(error: BaseException) -> int:
    """Return the number of GPUs that a program wants, two if it names none; zero if the error is another one."""
    text = text_of(error)
    if not isinstance(error, ValueError | RuntimeError | AssertionError):
        return 0
    if (compared := _compared_with_gpus(error)) > 1:
        return compared
    if _FEW_GPUS.search(text) is None:
        return 0
    wanted = _SEVERAL.search(text)
    return 2 if wanted is None else int(wanted[1])


def _compared_with_gpus(error: BaseException) -> int:
    """Return the number that the user's code that raises an error compares with that of the GPUs; zero without one."""
    *_, (frame, line) = ((None, 0), *traceback.walk_tb(error.__traceback__))
    if frame is None or not is_users(file := frame.f_code.co_filename):
        return 0
    around = "".join(linecache.getlines(file)[max(line - _LINES_OF_CHECK, 0) : line + _LINES_OF_CHECK])
    match = _WITH_GPUS.search(around)
    name, *rest = ((match[1] or match[2]) if match is not None else "").split(".")
    with suppress(Exception):  # of an object of the script's, or a name that it does not have
        number = functools.reduce(getattr, rest, {**frame.f_globals, **frame.f_locals}[name])
        return number if type(number) is int else 0
    return 0


def changed_package(error: BaseException) -> str:
    """Return the installed package that does not have the argument or attribute that the error is about; else empty."""
    text, owner = text_of(error), ""
    if isinstance(error, TypeError) and (match := _UNEXPECTED.search(text)):
        owner = str(getattr(_refusing_function(error, match[1]), "__module__", ""))
    elif isinstance(error, AttributeError) and (match := _NO_ATTRIBUTE.search(text)) and match[1]:
        owner = match[1]
    elif isinstance(error, AttributeError) and error.name and not is_installed_package(type(error).__module__):
        kind = error.obj if isinstance(error.obj, type) else type(error.obj)
        owner = _asking_base(error, kind) or kind.__module__
    elif _CHECKED.search(text) is not None:  # arguments that pydantic checks for the package have changed
        modules = (str(frame.f_globals.get("__name__")) for frame in _frames_behind_users(error))
        owner = next((each for each in modules if not each.startswith("pydantic")), "")
    return owner.partition(".")[0] if is_installed_package(owner) else ""


def _frames_behind_users(error: BaseException) -> list[FrameType]:
    """Return the frames of an exception that the user's last line has called."""
    frames = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    users = [place for place, frame in enumerate(frames) if is_users(frame.f_code.co_filename)]
    return frames[users[-1] + 1 :] if users else []


def own_function_refusing(error: BaseException) -> FunctionType | None:
    """Return the user's function whose call on a line of the user's has other arguments than it takes."""
    match = _REFUSED.search(text_of(error)) if isinstance(error, TypeError) else None
    function = _refusing_function(error, match[1]) if match is not None and error.__traceback__ is not None else None
    if function is None:
        return None
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    is_own = all(is_users(each.co_filename) for each in (function.__code__, frame.f_code))
    return function if is_own else None


def _asking_base(error: AttributeError, kind: type) -> str:
    """Return the package that asks for what a class of the user's lacks, if that derives from one of its own."""
    modules = reversed(_modules_of(error))
    asking = next((each.partition(".")[0] for each in modules if not each.startswith("torch.")), "")
    derives = any(each.__module__.partition(".")[0] == asking for each in kind.__mro__[1:])
    return asking if derives and is_installed_package(asking) else ""


def _of_broken(error: BaseException) -> Amendment | None:
    """An installed package cannot be imported beside the others: it is done without, as one that is not there."""
    failing = failing_package(error)
    return None if failing is None else Amendment("broken", failing[0], shortened(error))


def _of_method(error: Any, _match: re.Match[str]) -> Amendment | None:
    name, module = f"{error.obj.__name__}.{error.name}", error.obj.__module__
    return Amendment("name", module, name) if name in RESTORED and is_installed_package(module) else None


def _of_trainer(kind: Literal["accelerator", "strategy", "devices"]) -> _Learn:
    """Return what learns a change of an argument of Lightning's Trainer, perhaps one that hydra has made."""

    def learn(error: BaseException, match: re.Match[str]) -> Amendment | None:
        *_, error = causes(error)
        trainer = next((each for each in _modules_of(error) if each.endswith(".trainer.trainer")), None)
        return None if trainer is None else Amendment(kind, trainer, match[1])

    return learn


def _of_loader_index(error: BaseException, match: re.Match[str]) -> Amendment | None:
    module = next((each for each in _modules_of(error) if each.endswith(".trainer.call")), None)
    return None if module is None else Amendment("loader_index", module, match[1])


def _of_sanity_check(error: BaseException) -> Amendment | None:
    frames = (frame for frame, _line in traceback.walk_tb(error.__traceback__))
    modules = (str(frame.f_globals.get("__name__")) for frame in frames if frame.f_code.co_name == SANITY_CHECK)
    return next((Amendment("sanity", each) for each in modules if each.endswith(".trainer.trainer")), None)


def _module_raising(error: BaseException) -> str:
    return _modules_of(error)[-1]


def _modules_of(error: BaseException) -> list[str]:
    """Return the modules that an exception went through, the raising one last."""
    return [str(frame.f_globals.get("__name__")) for frame, _line in traceback.walk_tb(error.__traceback__)]


def _of_module(error: ModuleNotFoundError) -> Amendment | None:
    name = str(error.name or "")
    if "." not in name and name in NAMES:
        return Amendment("module", name)
    is_of_python = name.partition(".")[0] in sys.stdlib_module_names
    if "." not in name or is_of_python or not is_installed_package(name) or not _is_asked_by_another(error, name):
        return None
    folder = _folder_of_hidden(error, name, "")
    return Amendment("hidden", name.partition(".")[0], folder) if folder else Amendment("module", name)


def _of_refused_words(error: SystemExit) -> Amendment | None:
    refused = _refusing(error)
    return None if refused is None else _of_words(refused[1].split(), refused[0])


def _of_missing_file(error: FileNotFoundError) -> Amendment | None:
    """A folder is missing, or the path has a placeholder of the command line, for which there is another name."""
    if folder := getattr(error, LACKS_FOLDER, ""):
        return Amendment("folder", "os", folder)
    place = error.filename if isinstance(error.filename, str) else ""
    for word in dict.fromkeys(each.rpartition("=")[2] for each in sys.argv[1:]):
        if not is_placeholder(word) or os.sep in word or word not in place:
            continue
        before, _, after = place.partition(word)
        folder, begins = os.path.split(before)
        with suppress(OSError):
            names = sorted(each for each in os.listdir(folder or ".") if each.startswith(begins))  # noqa: PTH208 -- texts
            rest = after.partition(os.sep)[0]
            chosen = (each.removeprefix(begins).removesuffix(rest) for each in names if each.endswith(rest))
            if name := next((each for each in chosen if os.path.isfile(f"{before}{each}{after}")), ""):  # noqa: PTH113
                return Amendment("word", word, name)
    return None


def _of_choice(group: str, name: str) -> Amendment | None:
    """A group of hydra's has this one config, and the command line another one."""
    words = (each for each in sys.argv[1:] if each.partition("=")[0] == group)
    return next((Amendment("word", each, f"{group}={name}") for each in words), None)


def _of_meant_group(group: str, meant: str) -> Amendment | None:
    """A group of hydra's is overridden as it was before version 1.1: with its package, if it has one."""
    words = (each for each in sys.argv[1:] if each.partition("=")[0] == group)
    return next((Amendment("word", each, f"{meant}{each.removeprefix(group)}") for each in words), None)


def _of_name(error: BaseException, module: str, name: str) -> Amendment | None:
    """An import may be of a name that is never used: it is done without. What is used has to be somewhere."""
    if isinstance(error, ImportError) and (folder := _folder_of_nested(module)):
        return Amendment("hidden", module.partition(".")[0], folder)
    is_there = module in sys.modules and is_installed_package(module) and _is_asked_by_another(error, module)
    if not is_there or "partially initialized" in text_of(error):
        return None
    if isinstance(error, ImportError):
        package = module.partition(".")[0]
        folder = _folder_of_hidden(error, module, name)
        names = " ".join(_missing_together(error, module, name))
        return Amendment("hidden", package, folder) if folder else Amendment("name", module, names)
    is_known = "loggers" in module.split(".") or place_of(module, name, text_of(error)) is not None
    return Amendment("name", module, name) if is_known else None


def _folder_of_nested(module: str) -> str:
    """Return the folder of the user's that has the package of its own name, as where that is built; else empty."""
    package = module.partition(".")[0]
    for place in getattr(sys.modules.get(package), "__path__", ()):
        is_plain = not getattr(sys.modules[package], "__file__", None) and is_users(place)
        if is_plain and Path(place, package, "__init__.py").is_file():
            return str(place)
    return ""


def _folder_of_hidden(error: ImportError, module: str, name: str) -> str:
    """Return the folder of the project with a package that an installed one of its name hides; empty if there is none.

    It has the name that is asked for, and is around the importing file or where the program looks last.
    """
    frame, _line = list(traceback.walk_tb(error.__traceback__))[-1]
    parts = module.split(".")
    searched = (Path(each).absolute() for each in sys.path if each)
    own = (each for each in searched if is_users(str(each / "module.py")))
    for folder in (*Path(frame.f_code.co_filename).parents[:_MOST_FOLDERS], *own):
        for place in (folder.joinpath(*parts, "__init__.py"), folder.joinpath(*parts).with_suffix(".py")):
            with suppress(OSError):
                if re.search(rf"\b{name}\b", place.read_text(encoding="utf-8", errors="replace")):
                    return str(folder)
    return ""


def _of_star(error: NameError, name: str) -> Amendment | None:
    """A name of `typing` came with all names of a module that no longer has it: `from package.module import *`."""
    if not hasattr(typing, name):
        return None
    frame, _line = list(traceback.walk_tb(error.__traceback__))[-1]
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    stars = [each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.names[0].name == "*"]
    module = next((each for each in stars if each and each in sys.modules and is_installed_package(each)), None)
    return None if module is None else Amendment("name", module, name)


def _missing_together(error: ImportError, module: str, name: str) -> Iterator[str]:
    """Yield the name that an import wants, and the others of its statement that the module lacks, too."""
    yield name
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    for node in statements_at(frame.f_code.co_filename, line):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            names = (each.name for each in node.names)
            yield from (each for each in names if each != name and _lacks(sys.modules[module], each))


def _lacks(module: Any, name: str) -> bool:
    is_package = hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{name}") is not None
    return not hasattr(module, name) and not is_package


def _of_attribute(error: AttributeError, name: str) -> Amendment | None:
    """Objects of an installed class, or of a class of the user's that derives from it, had the attribute before."""
    frame, _line = list(traceback.walk_tb(error.__traceback__))[-1]
    for kind in type(error.obj if error.name else frame.f_locals.get("self")).__mro__:
        is_setting = kind.__name__ == "PreTrainedConfig" and name in FORMER_SETTINGS
        if (is_setting or f"{kind.__name__}.{name}" in ATTRIBUTES) and is_installed_package(kind.__module__):
            return Amendment("attribute", kind.__module__, f"{kind.__name__}.{name}")
    return None


def _of_model(name: str) -> Amendment | None:
    """Models of timm had other names before version 1."""
    return Amendment("model", "timm", name) if "timm" in sys.modules and present_name(name) else None


def _of_hparams(error: AttributeError, _match: re.Match[str]) -> Amendment | None:
    frame, _line = list(traceback.walk_tb(error.__traceback__))[-1]
    kinds = type(frame.f_locals.get("self")).__mro__
    owner = next((each.__module__ for each in kinds if each.__name__ == "HyperparametersMixin"), "")
    return Amendment("hparams", owner) if is_installed_package(owner) else None


def _of_default(error: AttributeError, _match: re.Match[str]) -> Amendment | None:
    """A result of another class than before does not have what the program asks of it."""
    frame, _line = list(traceback.walk_tb(error.__traceback__))[-1]
    result = type(frame.f_locals.get("self"))
    if frame.f_code.co_name != "__getattr__" or result.__name__ not in DEFAULTS:
        return None
    module, path, _before = DEFAULTS[result.__name__]
    return Amendment("default", module, path) if result.__module__ == module else None


def _of_keyword(error: BaseException, qualname: str, keyword: str) -> Amendment | None:
    if "<locals>" in qualname:
        return None
    if qualname == "SFTTrainer.__init__" and "trl.trainer.sft_trainer" in sys.modules:
        return Amendment("settings", "trl.trainer.sft_trainer")
    function = _refusing_function(error, qualname)
    if function is None or is_users(inspect.unwrap(function).__code__.co_filename):
        for frame, _line in traceback.walk_tb(error.__traceback__):  # which may hand on what it took itself before
            name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__"))
            if keyword in ARGUMENTS.get(name, ()) and is_installed_package(module):
                return Amendment("keyword", module, f"{name}.{keyword}")
        passed = "." in qualname and _is_passed_by_a_package(error, keyword)
        return Amendment("keyword", "", f"{qualname}.{keyword}") if passed else None
    module = str(function.__module__)
    return Amendment("keyword", module, f"{qualname}.{keyword}") if is_installed_package(module) else None


def _of_unexpected(error: BaseException, keyword: str) -> Amendment | None:
    """A function of an installed package looks by itself at what it was given, and refuses an argument of before."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    module = str(frame.f_globals.get("__name__"))
    is_installed_one = is_installed_package(module)
    return Amendment("keyword", module, f"{frame.f_code.co_qualname}.{keyword}") if is_installed_one else None


def _of_abstract(error: BaseException, name: str) -> Amendment | None:
    """A class of the user's lacks a method that the installed one from which it derives has no body for."""
    named = _named_at(*list(traceback.walk_tb(error.__traceback__))[-1])
    kind = next((each for each in named if isinstance(each, type) and each.__name__ == name), object)
    bases = (each for each in kind.__mro__[1:] if getattr(each, "__abstractmethods__", ()))
    places = ((each.__module__, each.__qualname__) for each in bases if is_installed_package(each.__module__))
    return next((Amendment("abstract", *place) for place in places), None)


def _of_positional(error: BaseException, _match: re.Match[str]) -> Amendment | None:
    """The second argument of pandas' `apply`, before version 3, said whether to convert the result."""
    for frame, _line in traceback.walk_tb(error.__traceback__):
        owner = f"{type(frame.f_locals.get('self')).__name__}.{frame.f_code.co_name}"
        if owner in POSITIONAL and is_installed_package(str(frame.f_globals.get("__name__"))):
            return Amendment("positional", str(frame.f_globals["__name__"]), owner)
    return None


def _of_names(error: BaseException, qualname: str, num_more: int) -> Amendment | None:
    """An installed function takes by their names alone what it took by their places, as librosa's do since 0.10."""
    function = _refusing_function(error, qualname)
    if function is None or not is_installed_package(str(function.__module__)):
        return None
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    has_names = kinds.count(inspect.Parameter.KEYWORD_ONLY) >= num_more
    return Amendment("by_name", function.__module__, qualname) if has_names else None


def _is_passed_by_a_package(error: BaseException, keyword: str) -> bool:
    """Return True if an installed package that the user's code has called passes the argument back to the user's.

    What it only hands on, as an older version did not, must ask for nothing.
    """
    has_called = False
    for frame, _line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        if is_users(file):
            has_called = True
        elif has_called and not is_memlint(file):
            handed_on = frame.f_locals.get("kwargs", {})
            constants = frame.f_code.co_consts  # which hold the names of keywords, each or in tuples
            is_written = any(keyword == each or (type(each) is tuple and keyword in each) for each in constants)
            if is_written or handed_on.get(keyword, True) in (False, None):
                return True
    return False


def _refusing_function(error: BaseException, qualname: str) -> FunctionType | None:
    """Return the function of this name that the last line has called, perhaps as the constructor of a class."""
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    owner, _, name = qualname.rpartition(".")
    for named in (*_named_at(frame, line), frame.f_locals.get("self"), frame.f_locals.get("cls")):
        value = named.func if isinstance(named, functools.partial) else named
        function = getattr(value, "__func__", value)
        if isinstance(function, FunctionType) and function.__qualname__ == qualname:
            return function
        for kind in (value if isinstance(value, type) else type(value)).__mro__:
            method = vars(kind).get(name) if kind.__qualname__ == owner else None
            if isinstance(function := getattr(method, "__func__", method), FunctionType):
                return function
    return None


def _named_at(frame: FrameType, line: int) -> Iterator[Any]:
    """Yield the values of the names, dotted or not, in the statement at a running line."""
    try:
        nodes = ast.walk(ast.parse("".join(linecache.getlines(frame.f_code.co_filename))))
    except SyntaxError:
        return
    for node in nodes:
        is_here = isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or line)
        if is_here and isinstance(node, ast.Call) and (name := dotted_name(node.func)):
            first, *rest = name.split(".")
            with suppress(AttributeError, KeyError):
                value = {**vars(builtins), **frame.f_globals, **frame.f_locals}[first]
                yield functools.reduce(getattr, rest, value)


def _of_words(words: list[str], parser: argparse.ArgumentParser | None) -> Amendment | None:
    """Return the change of a command line with options that an older version of the parser's package had."""
    for word in words:
        option = word.partition("=")[0]
        name = option.removeprefix("--").replace("-", "_")
        if option in _LOCAL_RANK and parser is not None:
            other = next((each for each in _LOCAL_RANK if each != option and each in parser._option_string_actions), "")
            return Amendment("option", option, other)
        if option.startswith("--") and (kind := _kind_with(name)):
            return Amendment("option", option, kind)
    return None


def _of_unused(error: BaseException, words: list[str]) -> Amendment | None:
    """Options of a command line, or the keys of a config file, that the settings of a training no longer have."""
    keys = [each for each in words if not each.startswith("-") and _kind_with(each)]
    return Amendment("keys", _module_raising(error), " ".join(keys)) if keys else _of_words(words, None)


def _kind_with(name: str) -> str:
    """Return the class of an imported package that has, or had, an argument of this name; else empty.

    One that may decide on bytes, such as `--precision`, has to be known: no other is left out.
    """
    packages = {"TrainingArguments": ("transformers",), "Trainer": ("pytorch_lightning", "lightning.pytorch")}
    for kind, modules in packages.items():
        decides_on_bytes = not TOUCHES_MEMORY.isdisjoint(name.split("_"))
        for module in filter(None, map(sys.modules.get, modules)):
            known = _arguments(getattr(module, kind, None)) if not decides_on_bytes else ()
            if name in ARGUMENTS[kind] or name in known:
                return kind
    return ""


def _arguments(kind: Any) -> frozenset[str]:
    return frozenset(inspect.signature(kind.__init__).parameters) if kind is not None else frozenset()


def _refusing(error: SystemExit) -> tuple[argparse.ArgumentParser, str] | None:
    """Return the parser that has refused options, and those."""
    for frame, _line in traceback.walk_tb(error.__traceback__):
        if frame.f_code is argparse.ArgumentParser.error.__code__:
            match = _UNRECOGNIZED.search(str(frame.f_locals["message"]))
            return None if match is None else (frame.f_locals["self"], match[1])
    return None


def _is_asked_by_another(error: BaseException, package: str) -> bool:
    """Return True if a line of the user's, or of another installed package, asks for what `package` does not have."""
    frames: list[FrameType] = [frame for frame, _line in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        file = frame.f_code.co_filename
        is_way = frame.f_code.co_name == "__getattr__" or file.startswith(_IMPORTING) or "importlib" in file
        if not is_way and not is_memlint(file):
            asking = str(frame.f_globals.get("__name__")).partition(".")[0]
            return is_users(file) or (is_installed(file) and asking != package.partition(".")[0])
    return False


_BY_KIND: tuple[tuple[type[BaseException], Callable[[Any], Amendment | None]], ...] = (
    (ModuleNotFoundError, _of_module),
    (SystemExit, _of_refused_words),
    (AssertionError, of_assertion),
    (FileNotFoundError, _of_missing_file),
)
"""Kinds of errors whose message alone says too little."""
_BY_MESSAGE: tuple[tuple[type[Exception], re.Pattern[str], _Learn], ...] = (
    (ImportError, _NO_SCREEN, lambda _error, _match: Amendment("screen", "matplotlib")),
    (ImportError, _NO_NAME, lambda error, match: _of_name(error, match[2], match[1])),
    (NameError, _UNDEFINED, lambda error, match: _of_star(error, match[1])),
    (AttributeError, _NO_METHOD, _of_method),
    (AttributeError, _NO_SETTER, _of_hparams),
    (AttributeError, _NO_FIELD, lambda error, match: _of_attribute(error, match[1])),
    (
        AttributeError,
        _NO_ATTRIBUTE,
        lambda error, match: _of_name(error, match[1] or "numpy", match[2] or match[4]),
    ),
    (AttributeError, _RENAMED, lambda error, match: _of_name(error, _module_raising(error), match[1])),
    (AttributeError, _NO_WORDS, _of_default),
    (TypeError, _NO_ARGUMENTS, _of_positional),
    (TypeError, _BY_NAME, lambda error, match: _of_names(error, match[1], int(match[3]) - int(match[2]))),
    (TypeError, _NO_INDEX, _of_loader_index),
    (TypeError, _UNEXPECTED, lambda error, match: _of_keyword(error, match[1], match[2])),
    (NotImplementedError, _NO_HOOK, lambda error, match: Amendment("hook", _module_raising(error), match[1])),
    (ValueError, _NO_ACCELERATOR, _of_trainer("accelerator")),
    (ValueError, _NO_STRATEGY, _of_trainer("strategy")),
    (Exception, _TOO_FEW_GPUS, _of_trainer("devices")),
    (Exception, _NO_DEVICES, _of_trainer("devices")),
    (
        TypeError,
        _NO_TASK,
        lambda _error, _match: Amendment("task", "torchmetrics") if "torchmetrics" in sys.modules else None,
    ),
    (RuntimeError, _NO_MODEL, lambda _error, match: _of_model(match[1])),
    (RuntimeError, _ONE_OPTIMIZER, lambda error, _match: Amendment("optimizers", _module_raising(error))),
    (OSError, _ONE_CHOICE, lambda _error, match: _of_choice(match[1], match[2])),
    (ValueError, _REFUSED_BY_ITSELF, lambda error, match: _of_unexpected(error, match[1])),
    (Exception, _MEANT_GROUP, lambda _error, match: _of_meant_group(match[1], match[2])),
    (ValueError, _NO_CONFIG_PATH, lambda _error, _match: Amendment("config", "hydra")),
    (RuntimeError, _NO_REAL_SPECTRA, lambda _error, _match: Amendment("spectra", "torch")),
    (TypeError, _NO_OTHER_VALUES, lambda _error, _match: Amendment("strings", "pandas")),
    (TypeError, _ABSTRACT, lambda error, match: _of_abstract(error, match[1])),
    (TypeError, _NO_LOADER, lambda _error, _match: Amendment("yaml", "yaml")),
    (ValueError, _MUTABLE, lambda _error, _match: Amendment("mutable", "dataclasses")),
    (TypeError, _NO_SEED, lambda _error, _match: Amendment("seed", "random")),
    (ValueError, _RAGGED, lambda _error, _match: Amendment("ragged", "numpy")),
    (ValueError, _NO_NONE, lambda _error, _match: Amendment("none", *NOT_NONE)),
    (ValueError, _NOT_USED, lambda error, match: _of_unused(error, ast.literal_eval(match[1]))),
    (pickle.UnpicklingError, _MORE_THAN_WEIGHTS, lambda _error, _match: Amendment("load", "torch")),
    (KeyError, _NO_OPTIONAL, lambda _error, _match: Amendment("groups", "argparse")),
    (
        argparse.ArgumentError,
        _CONFLICT,
        lambda error, _match: Amendment("conflict", "argparse", str(error.argument_name)),
    ),
)
"""Errors by their class and message, and what is learned from them."""
