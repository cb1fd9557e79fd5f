"""Import of the user's file, under the name and with the search path that it expects."""

import builtins
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from memlint.base.errors import TargetError
from memlint.base.patching import patched
from memlint.source.imports import imports_namesake, module_name
from memlint.targets.target import SEPARATOR, Target
from memlint.workloads import downloads, torchvision_schemas
from memlint.workloads.availability import with_gpu
from memlint.workloads.main_names import give_main_names, set_main_dtype
from memlint.workloads.older_versions.applying import with_amendments
from memlint.workloads.older_versions.names import place_of
from memlint.workloads.placeholders.second_import import with_placeholders
from memlint.workloads.user_errors import reported


def prepare_imports() -> None:
    """Keep libraries that are imported from now on from downloading, and torchvision from failing.

    Weights are loaded without threads, whose order is random: one program gives one answer.
    """
    torchvision_schemas.install()
    downloads.install()
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DEACTIVATE_ASYNC_LOAD")
    os.environ |= dict.fromkeys(names, "1")


def load_file(path: Path, root: Path | None = None) -> ModuleType:
    """Import the Python file `path`, once per process.

    A file in a package is imported as its module; any other under its own stem. Its folder and the project's `root`
    join the search path. Raises WorkloadError for exceptions of the file.
    """
    prepare_imports()
    name, folder = module_name(path)
    is_shadow = imports_namesake(path)
    for place in (root,) if is_shadow else (root, folder):
        if place is not None and str(place) not in sys.path:
            sys.path.insert(0, str(place))
    # Last, so that `types.py` in a package does not hide the standard library's. A script in any of the parent folders
    # finds the files beside it.
    above = [each for each in path.parents if root is not None and each.is_relative_to(root)]
    beside = [str(each) for each in (path.parent, *above) if str(each) not in sys.path]
    _keep_folder_of_its_name(path, root)
    known = sys.modules.get(name)
    file = getattr(known, "__file__", None)
    if known is not None and file is not None and Path(file).resolve() == path:
        return known
    script = f"If it is a script, type memlint run {path}: data and weights that are not there are made up."
    with reported(f"{path} cannot be imported", otherwise=script):
        is_own = known is None and not is_shadow
        loads: Callable[[], ModuleType] = partial(_execute, path, name if is_own else f"memlint_target_{path.stem}")
        if known is None and "." in name:
            loads = partial(importlib.import_module, name)
        with patched([(builtins, "input", lambda _prompt="", /: "")]):  # nobody sits at the terminal to answer it
            return with_placeholders(
                lambda: with_amendments(lambda: with_gpu(partial(_with_folders, loads, beside))), path
            )


def _with_folders(load: Callable[[], ModuleType], folders: Sequence[str]) -> ModuleType:
    """Return what `load` imports, with more folders behind the search path only where it fails without one of them.

    A `try` around an import may count on its failing. What is imported later finds all that is in the folders.
    """
    try:
        return load()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if not any(Path(folder, each).exists() for folder in folders for each in (name, f"{name}.py")):
            raise
    finally:
        sys.path += [each for each in folders if each not in sys.path]
    return load()


def _keep_folder_of_its_name(path: Path, root: Path | None) -> None:
    """Let a folder above the file that has its name, or that of a file in it, be the package of that name.

    That is where it has no `__init__.py`. Python prefers the file, whose own folder is on the search path, too.
    """
    above = (each for each in path.parents if root is not None and each != root and each.is_relative_to(root))
    folder = next((each for each in above if each.name == path.stem or _is_package_of(each, path)), None)
    if folder is not None and folder.name not in sys.modules and not (folder / "__init__.py").is_file():
        spec = ModuleSpec(folder.name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        sys.modules[folder.name] = importlib.util.module_from_spec(spec)


def _is_package_of(folder: Path, path: Path) -> bool:
    """Return True if the file at `path` imports from a folder in which a file has the folder's name."""
    imports = re.compile(rf"^\s*(?:from|import)\s+{re.escape(folder.name)}\.\w", re.MULTILINE)
    return (folder / f"{folder.name}.py").is_file() and imports.search(path.read_text("utf-8", "replace")) is not None


def load_module(target: Target, root: Path | None = None) -> ModuleType:
    """Import the module before `::` in a target."""
    if target.path is not None:
        module = load_file(target.path, root)
        set_main_dtype(target.path)
        return module
    prepare_imports()
    with reported(f"{target.module} cannot be imported", "Is it installed in this environment?"):
        return importlib.import_module(target.module)


def load_object(target: Target, root: Path | None = None) -> object:
    """Return the class, function or object that a target names. Raises TargetError if it does not exist."""
    value: object = load_module(target, root)
    for part in target.qualname.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            problem = f"{target.path or target.module} has no {target.qualname}"
            raise TargetError(problem, _instead(value, part)) from error
    return value


def _instead(holder: object, name: str) -> str:
    """Suggest the name that was meant by a missing `name` of a module or class; else names that the file defines."""
    close = get_close_matches(name, [each for each in dir(holder) if not each.startswith("_")], n=1)
    if close:
        return f"Did you mean {close[0]}?"
    if isinstance(holder, ModuleType) and (place := place_of(holder.__name__, name)) is not None:
        return f"It is {SEPARATOR.join(place.name.rsplit('.', 1))}."
    of_module = vars(holder).items() if isinstance(holder, ModuleType) else ()
    names = [each for each, value in of_module if getattr(value, "__module__", None) == getattr(holder, "__name__", "")]
    return f"It has {', '.join(sorted(names)[:12])}." if names else ""


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with patched([(sys, "argv", [str(path)])]):
            spec.loader.exec_module(module)
        give_main_names(module, path)
    except BaseException:
        del sys.modules[name]
        raise
    return module
