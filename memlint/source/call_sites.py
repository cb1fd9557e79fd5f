"""Calls of a file's classes and functions in its project, with the arguments as far as the text shows them."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from memlint.source.assignments import assigns
from memlint.source.calls import called, last_name
from memlint.source.config_sites import config_calls
from memlint.source.expressions import Values
from memlint.source.lexical import may_call, may_choose, may_import
from memlint.source.project import Project
from memlint.source.project_files import ProjectFiles
from memlint.source.scopes import Scope, calls_backward, is_test, scopes
from memlint.source.text import Source, dotted_name
from memlint.source.values import Call, Name, Unknown, Unseen

_TRAINS = re.compile(r"(.*[_-])?(train|training|trainer|main|run|finetune|pretrain|solver|fit)([_-].*)?", re.IGNORECASE)
_OF_TRAINING = ("backward", "optim", "Trainer", "LightningModule")
"""Words of which a file that trains has one."""
_TESTS = re.compile(r"(test|tests|testing|conftest)(_.*)?|.*_test")
_TEST_FOLDERS = frozenset({"test", "tests", "testing"})
_MOST = 400
"""Largest number of calls of one name that are looked at."""


class Where(IntEnum):
    """Kind of file of a call, the likeliest to be meant first."""

    TRAINING = 0
    CONFIG = 1
    OTHER = 2
    OWN_FILE = 3
    PART = 4
    """Inside another model."""
    NOTEBOOK = 5
    TEST = 6
    DOCUMENT = 7


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call."""

    function: str
    """Name of the class or function in the file that defines it, or of a class and its method."""
    arguments: Mapping[str, object]
    """Plain values, or records of `memlint.source.values`; the keys of positional arguments are digits."""
    unseen: Mapping[str, str]
    """Arguments whose value the text does not determine, with the last name that the call has for each."""
    where: Where
    is_default: bool
    """True if no condition around it is known to fail with the project's defaults."""
    path: str
    line: int
    source: Source | None = None
    """Source of the call; None in a config."""
    inside: str = ""
    """Function or class around it."""
    whole: str = ""
    """The class of which a config makes it a part."""

    @property
    def misses_settings(self) -> bool:
        """True if an unknown value is set on one of its arguments."""
        calls = (each for each in self.arguments.values() if isinstance(each, Call))
        return any(isinstance(value, Unseen) for call in calls for value in call.attributes.values())


def call_sites(names: Collection[str], target: Path, project: Project) -> tuple[CallSite, ...]:
    """Return calls of the definitions `names` in the file `target`, the likeliest first."""
    modules = _modules(target)

    def is_worth(path: Path, text: str) -> bool:
        is_other = path.suffix == ".py" and path != target
        return may_call(text, names) and (not is_other or may_choose(text) or may_import(text, modules, names))

    sources = project.files.sources(names, is_worth)
    sites = [site for source in sources for site in _in_source(source, names, target, project)]
    sites += _in_configs(names, project.files)
    # If a command line chooses by name, as with models[args.arch](...), the name is written elsewhere.
    return tuple(
        sorted(sites, key=lambda site: (not site.is_default, site.misses_settings, site.where, len(site.unseen)))
    )


def _in_source(source: Source, names: Collection[str], target: Path, project: Project) -> Iterator[CallSite]:
    values = Values(source, project)
    own = Path(source.path) == target
    where = kind_of(source, project.root, own=own)
    num_seen = 0
    for scope in scopes(source):
        for call in scope.calls:
            if (holder := _holder(call)) is not None and not project.may_be_own(source, holder):
                continue
            name, method = function_name(call, values, scope), ""
            if name not in names and isinstance(call.func, ast.Attribute):
                name, method = last_name(call.func.value), name
            if name not in names or num_seen > _MOST or _is_base_call(call):
                continue
            num_seen += 1
            function = call.func.value if method and isinstance(call.func, ast.Attribute) else call.func
            if not own and not (
                _is_from(function, source, target, project.root) or _by_name(call, scope, values, target)
            ):
                continue
            if own and (scope.in_module or scope.name == name):
                continue  # a part of another model
            arguments, unseen = values.arguments(call, scope)
            default = values.runs(call, scope)
            here = _of_own_file(scope) if own else where
            if scope.in_module and not _trains_itself(scope):
                here = max(here, Where.PART)
            inside = scope.owner.name if scope.owner is not None else scope.name
            names_of = {key: last_name(node) for key, node in _arguments_of(call) if key in unseen}
            unseen_names = {key: names_of.get(key, "") for key in unseen}
            full = f"{name}.{method}" if method else name
            yield CallSite(full, arguments, unseen_names, here, default, source.path, call.lineno, source, inside)


def _of_own_file(scope: Scope) -> Where:
    """Return the kind of a call in the file that defines the called name: its own loop or `main` is a script."""
    if not scope.in_module and calls_backward(scope.owner or scope.node):
        return Where.TRAINING
    return Where.OTHER if not scope.name or _TRAINS.fullmatch(scope.name) else Where.OWN_FILE


def function_name(call: ast.Call, values: Values, scope: Scope) -> str:
    """Return the last name of the called function; also for `models[arch](...)` and `getattr(models, arch)(...)`."""
    function = call.func
    try:
        if isinstance(function, ast.Subscript):
            value = values.of(function.slice, scope)
            table = values.of(function.value, scope) if isinstance(function.value, ast.Name | ast.Attribute) else None
            item = table.get(value) if isinstance(table, Mapping) else None
            return item.text.rpartition(".")[2] if isinstance(item, Name) else str(value)
        if isinstance(function, ast.Call) and called(function) == "getattr" and len(function.args) > 1:
            return str(values.of(function.args[1], scope))
    except Unknown:
        return ""
    return last_name(function)


def _holder(call: ast.Call) -> ast.Name | None:
    """Return the name of what the called function is looked up in: `models` of `getattr(models, arch)(...)`."""
    function = call.func
    holder = None
    if isinstance(function, ast.Subscript):
        holder = function.value
    elif isinstance(function, ast.Call) and called(function) == "getattr" and function.args:
        holder = function.args[0]
    return holder if isinstance(holder, ast.Name) else None


def _arguments_of(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the expressions of a call's arguments, positional ones under digits."""
    yield from ((str(position), node) for position, node in enumerate(call.args))
    yield from ((keyword.arg or "**", keyword.value) for keyword in call.keywords)


def _trains_itself(scope: Scope) -> bool:
    """Return True if the function belongs to a Lightning-like module, which holds the model and its training step."""
    return scope.owner is not None and any(getattr(each, "name", "") == "training_step" for each in scope.owner.body)


def _is_base_call(call: ast.Call) -> bool:
    """Return True if it is `Base.__init__(...)` or a method of another class with the same name."""
    return isinstance(call.func, ast.Attribute) and dotted_name(call.func.value).startswith(("self", "super"))


def kind_of(source: Source, root: Path, *, own: bool = False) -> Where:
    """Return the kind of file in the project at `root`; `own`: the file that defines the searched names."""
    path = Path(source.path)
    folders = path.relative_to(root).parts[:-1]
    if path.suffix == ".ipynb":
        return Where.NOTEBOOK
    if path.suffix != ".py":
        return Where.DOCUMENT
    if {"backward", "add_argument"} <= source.words and not is_test(source):
        return Where.OWN_FILE if own else Where.TRAINING
    if _TESTS.fullmatch(path.stem) or not _TEST_FOLDERS.isdisjoint(folders) or is_test(source):
        return Where.TEST
    if own:
        return Where.OWN_FILE
    return Where.TRAINING if is_training(source) else Where.OTHER


def is_training(source: Source) -> bool:
    """Return True if the file trains, or is named as if it did."""
    return not source.words.isdisjoint(_OF_TRAINING) or _is_named_after_training(Path(source.path))


def may_train(path: Path, text: str) -> bool:
    """Return True if `is_training` may be True of a file with this text."""
    return path.suffix == ".py" and (any(word in text for word in _OF_TRAINING) or _is_named_after_training(path))


def _is_named_after_training(path: Path) -> bool:
    return _TRAINS.fullmatch(path.stem) is not None


def _is_from(function: ast.expr, source: Source, target: Path, root: Path) -> bool:
    """Return True if the called name may be defined in `target`: it is no class of the same name defined elsewhere."""
    if isinstance(function, ast.Subscript | ast.Call):
        return True
    written = dotted_name(function)
    first = written.partition(".")[0]
    meaning = source.qualified_name(function)
    if meaning is None:
        defined = any(isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == first for n in source.tree.body)
        return not defined and (Path(source.path).suffix != ".py" or "*" in source.imports or not written)
    if first not in source.imports:
        modules = (f"{'.' * each.level}{each.module or ''}" for each in _starred(source))
        return any(_leads_to(f"{each}.{first}", source, target, root) for each in modules)
    return _leads_to(meaning, source, target, root)


def _by_name(call: ast.Call, scope: Scope, values: Values, target: Path) -> bool:
    """Return True if it calls something of a module that is imported by a name, which may be `target`'s.

    It may if that is the default name, or if a command line of a document states it.
    """
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not isinstance(holder, ast.Name):
        return False
    assigned = (each.value for each in scope.nodes if assigns(each, holder.id) and isinstance(each, ast.Assign))
    for value in assigned:
        if called(value) in ("import_module", "__import__") and isinstance(value, ast.Call) and value.args:
            try:
                name = str(values.of(value.args[0], scope))
            except Unknown:
                continue
            return name.rpartition(".")[2] == target.stem
    return False


def _starred(source: Source) -> Iterator[ast.ImportFrom]:
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            yield node


def _leads_to(meaning: str, source: Source, target: Path, root: Path) -> bool:
    """Return True if the dotted name, as the file imports it, may be one of `target`."""
    level = len(meaning) - len(meaning.lstrip("."))
    parts = meaning.lstrip(".").split(".")[:-1]
    folders = [Path(source.path).parent] if not level else [(Path(source.path).parents)[level - 1]]
    folders += [root, *target.parents] if not level else []
    for folder in folders:
        for place in (folder.joinpath(*parts).with_suffix(".py"), folder.joinpath(*parts, "__init__.py")):
            if not parts or not place.is_file():
                continue
            if place.resolve() == target:
                return True
            # A package may re-export it; a module that defines the name itself is another one.
            return place.name == "__init__.py" and place.parent.resolve() in target.parents
    return not parts or parts[-1] in _modules(target)


def _modules(target: Path) -> set[str]:
    """Return the names of the file and of all folders around it, of which modules' names are made."""
    return {target.stem, *(each.name for each in target.parents)}


def _in_configs(names: Collection[str], files: ProjectFiles) -> Iterator[CallSite]:
    for each in config_calls(names, files):
        yield CallSite(each.name, each.arguments, {}, Where.CONFIG, True, str(each.path), each.line, whole=each.whole)


__all__ = ["CallSite", "Unknown", "Where", "call_sites"]
