"""Advice for missing modules: build those whose sources are in the project, install all others."""

import ast
import linecache
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from memlint.base.ownership import is_users
from memlint.libraries.op_template import OP_TEMPLATE
from memlint.source.files import SKIPPED_DIRECTORIES, folders_of_modules
from memlint.workloads.known_packages import distribution_of
from memlint.workloads.pinned_versions import requirement_for

_OF_CYTHON = (".pyx", ".c")
_COMPILED = (".pyx", ".cpp", ".cc", ".c", ".cu")
_EXTENSION = re.compile(r"(?:[Ee]xtension|setup)\(\s*(?:name\s*=\s*)?['\"]([\w.]+)['\"]")
"""Name of the extension that a setup.py builds, or of all that it does."""
_MOST_FOLDERS = 1000
_OF_PROJECTS = frozenset(
    [
        "common",
        "config",
        "configs",
        "core",
        "data",
        "helper",
        "helpers",
        "layers",
        "lib",
        "misc",
        "model",
        "models",
        "modules",
        "networks",
        "options",
        "src",
        "tools",
        "util",
        "utils",
    ]
)
"""Names that projects give their own modules; what is published under them is something else."""


def remedy(module: str, importer: str, others: Iterable[str] = (), *, distribution: str = "") -> str:
    """Return advice on how to provide the dotted `module`, which the file `importer` imports, and `others` with it.

    `distribution` is what to install for the module, if that is known.
    """
    elsewhere = "or run memlint in the project's environment."
    built = _whole_name(module, importer) if is_users(importer) else module
    source = next(_sources(built.rpartition(".")[2], Path(importer)), None) if is_users(importer) else None
    if source is not None:
        module = built
        fill_in = OP_TEMPLATE.format(name=f"{module}.FUNCTION")
        without = f"Where it needs CUDA, say instead what its functions take, before it is imported: {fill_in}."
        command = _build_command(source, module)
        how = f"its source is {source}{f'; type: {command}' if command else ''}"
        return f"Build {module} where memlint runs, {sys.prefix}: {how}; {elsewhere} {without}"
    if place := _folder_of(module):
        if command := _fetching(Path(place)):
            return f"There is no {module} in {place}, a submodule that was not fetched: type {command}."
        return f"There is no {module} in {place}: complete the project, or import it by its new name."
    if folder := _project_folder_of(module, importer):
        return f"Put the folder that the project has it in on the search path: PYTHONPATH={shlex.quote(folder)}."
    if module in _OF_PROJECTS and not requirement_for(module, Path(importer)):
        return f"The project lacks its module {module}: complete it, or name the folder that has it: PYTHONPATH=FOLDER."
    packages = list(dict.fromkeys(each.partition(".")[0] for each in (module, *others)))
    names = " and ".join(filter(None, (", ".join(packages[:-1]), packages[-1])))
    known = {module: distribution} if distribution else {}
    wanted = (
        known.get(each) or requirement_for(each, Path(importer)) or distribution_of(each) for each in (module, *others)
    )
    distributions = " ".join(dict.fromkeys(map(shlex.quote, wanted)))
    return f"Install {names} where memlint runs, {sys.prefix}: pip install {distributions}; {elsewhere}"


def installed_without(module: str) -> str:
    """Return the installed package that lacks a part: `timm` for `timm.models.layers.helpers`; else empty."""
    package, _, inner = module.partition(".")
    file = getattr(sys.modules.get(package), "__file__", None)  # which placeholders lack
    return package if inner and file is not None and not is_users(file) else ""


def _folder_of(module: str) -> str:
    """Return the folder of the user's package that a dotted module would be in; empty without such a package."""
    package, _, inner = module.partition(".")
    places: Iterable[str] = getattr(sys.modules.get(package), "__path__", ()) if inner else ()
    return next((place for place in map(str, places) if is_users(place)), "")


def _fetching(folder: Path) -> str:
    """Return the command that fetches the submodule of git which an empty folder is; empty for any other folder."""
    for root in folder.parents:
        with suppress(OSError):
            if any(folder.iterdir()):
                break
            paths = re.findall(r"^\s*path\s*=\s*(\S+)", (root / ".gitmodules").read_text("utf-8"), re.MULTILINE)
            if folder.relative_to(root).as_posix() in paths:
                return f"git -C {shlex.quote(str(root))} submodule update --init --recursive"
    return ""


def moved(target: str) -> str:
    """Return the dotted name that a class or function of the user's package has now; empty if no file defines it."""
    module, _, name = target.rpartition(".")
    package = module.partition(".")[0]
    defined = re.compile(rf"^(?:class|def) {re.escape(name)}\b", re.MULTILINE)
    for folder, folders, files in islice(os.walk(_folder_of(module)), _MOST_FOLDERS):
        folders.sort()
        for path in (Path(folder, file) for file in sorted(files) if file.endswith(".py")):
            if defined.search("".join(linecache.getlines(str(path)))):
                return ".".join((package, *path.relative_to(_folder_of(module)).with_suffix("").parts, name))
    return ""


def _project_folder_of(module: str, importer: str) -> str:
    """Return the first of several folders of the importing file's project that hold a module, or its outer package.

    Empty without any, and for one alone, which was looked into.
    """
    if not is_users(importer):
        return ""
    package, _, inner = module.partition(".")
    holding = folders_of_modules(_project_of(Path(importer))).get(package, ())
    folders = [folder for folder in holding if not inner or (folder / package).is_dir()]
    return min(map(str, folders)) if len(folders) > 1 else ""


def is_of_cython(module: str, importer: str) -> bool:
    """Return True if the missing `module`, or one in it that a user's file imports, is built from Cython or from C."""
    name = _whole_name(module, importer).rpartition(".")[2]
    return any(path.stem == name and path.suffix in _OF_CYTHON for path in _sources(name, Path(importer)))


def _whole_name(module: str, importer: str) -> str:
    """Return what the file imports where an outer package of that is missing: `ops.ops.core`, without `ops.ops`."""
    tree = ast.parse("".join(linecache.getlines(importer)))
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module):
        parts = (node.module or "").split(".")
        for number in range(1, len(parts)):
            if f".{module}".endswith(f".{'.'.join(parts[:number])}"):
                return ".".join((module, *parts[number:]))
    return module


def _build_command(source: Path, module: str) -> str:
    """Return the command that builds a compiled module in place; empty without a setup.py."""
    setup = source.with_name("setup.py")
    if not setup.is_file():
        return ""
    package, *inner = module.split(".")[:-1] or [""]
    roots = [folder for folder in setup.parents if str(folder) in sys.path] or [setup.parent]
    place = next((root for root in roots if (root / package).is_dir()), roots[0]).joinpath(package, *inner)
    make = "" if place.is_dir() else f"mkdir -p {shlex.quote(str(place))} && "
    return f"{make}(cd {shlex.quote(str(setup.parent))} && {sys.executable} setup.py build_ext --inplace)"


def absent(error: BaseException) -> str:
    """Return advice on an optional module of the user's file if the error is a use of what it gives, else "".

    `try: import fast` and `except ImportError: fast = None`, or no `fast` at all, and then `fast.attention(...)`.
    """
    users = [(f, line) for f, line in traceback.walk_tb(error.__traceback__) if is_users(f.f_code.co_filename)]
    if not users:
        return ""
    (frame, line), path = users[-1], users[-1][0].f_code.co_filename
    used = {name for name in re.findall(r"\w+", linecache.getline(path, line)) if frame.f_globals.get(name, 0) is None}
    used |= {error.name} if isinstance(error, NameError) else set()
    tries = (node for node in ast.walk(ast.parse("".join(linecache.getlines(path)))) if isinstance(node, ast.Try))
    for node in (each for tried in tries for each in tried.body if isinstance(each, ast.Import | ast.ImportFrom)):
        for alias in node.names:
            if (alias.asname or alias.name) in used:
                return remedy(node.module if isinstance(node, ast.ImportFrom) and node.module else alias.name, path)
    return ""


def _sources(name: str, importer: Path) -> Iterator[Path]:
    """Yield files below the project's folder, in search order, that build a compiled module of this last name."""
    for folder, folders, files in islice(os.walk(_project_of(importer)), _MOST_FOLDERS):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in SKIPPED_DIRECTORIES)
        for path in (Path(folder, file) for file in sorted(files)):
            is_source = path.stem == name and path.suffix in _COMPILED
            if is_source or (path.name == "setup.py" and name in _built_by(path)):
                yield path


def _project_of(importer: Path) -> Path:
    """Return the outermost folder of a file that is on the search path."""
    above = [folder for folder in importer.parents if str(folder) in sys.path]
    return above[-1] if above else importer.parent


def _built_by(setup: Path) -> frozenset[str]:
    """Return the last names of the compiled modules that a setup.py names."""
    with suppress(OSError):  # an unreadable file names none
        text = setup.read_text(errors="replace")
        return frozenset(each.rpartition(".")[2] for each in _EXTENSION.findall(text) if "ext_modules" in text)
    return frozenset()
