"""What expressions of a project stand for, seen in its text: literals, names, and what those are assigned.

Nothing is run. A name is followed to its assignment, a parameter to what callers pass or to its default, `args.x` to
the default of the command line's `--x`, and `config["x"]` to the project's YAML and JSON files.
"""

from __future__ import annotations

import ast
import copy
import operator
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from memlint.source.calls import argument, called, last_name
from memlint.source.files import Unreadable
from memlint.source.project_files import ProjectFiles
from memlint.source.scopes import Scope, is_test, scopes
from memlint.source.text import Source, dotted_name

_DEEPEST = 12
_LARGEST, _LONGEST = 2**40, 10_000
"""Numbers that are computed with, and repetitions of a list."""
_OPERATORS: Mapping[type[ast.AST], Callable[..., object]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_CONVERSIONS: Mapping[str, Callable[..., object]] = {
    "int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "list": list, "len": len, "max": max,
    "min": min, "eval": ast.literal_eval, "round": round,
}  # fmt: skip
_SETTINGS = re.compile(
    r"_*(args?|opts?|options|flags|config|configs|cfg|cfgs|conf|hparams?|hps|hp|params|hyperparams|settings|h|c)",
    re.IGNORECASE,
)
_MAKES_SETTINGS = re.compile(
    r"parse_(known_)?args|.*(config|cfg|hparams|options?|args|opts?)|(attr|easy|e|ordered|config)?dict|namespace|munch"
    r"|load|loads|safe_load|full_load|parse|create|compose",
    re.IGNORECASE,
)
_PARSES = re.compile(r"parse_(known_)?args")
_HOLDS_SETTINGS = re.compile(r"HParams|Namespace|(Attr|Easy|Config)Dict|edict|dict")
_COMMON = frozenset({"main", "run", "forward", "train", "build", "get", "create", "make", "load", "init"})
"""Names of functions that are too many to tell which one is called."""
_MOST_CALLS = 8
_FEW = 4
"""Arguments that a call with settings has at least."""


class Unknown(Exception):  # noqa: N818 -- no error: nobody can see the value
    """The text does not say what an expression stands for."""


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function, by its dotted name: as imports write it out, or as it stands in the file `path`."""

    text: str
    path: str

    def __str__(self) -> str:
        """As it is written in the file."""
        return self.text.lstrip(".")


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a class or function that makes an argument; positional arguments stand under digits."""

    function: Name
    arguments: Mapping[str, object]
    unseen: tuple[str, ...] = ()
    """Arguments of which the text does not say what they are."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """What is set on it before it is used."""

    def __str__(self) -> str:
        """As it could be typed, but for what is set on it."""
        return f"{self.function.text.rpartition('.')[2]}({shown_arguments(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Unseen:
    """A setting that is there under this name, and of which the text does not say what it is."""

    name: str


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a project, as its command line and configs have them by default."""

    text: str
    """The name that it goes by."""
    values: Mapping[str, object]
    path: str
    line: int

    def __str__(self) -> str:
        """With where it comes from."""
        return f"{self.text} as {Path(self.path).name}:{self.line} has it"


def shown(value: object) -> str:
    """A value as it could be typed."""
    if isinstance(value, list | tuple) and any(isinstance(each, Name | Call) for each in value):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return str(value) if isinstance(value, Name | Call | Settings) else repr(value)


def shown_arguments(arguments: Mapping[str, object]) -> str:
    """What stands between the parentheses of a call."""
    return ", ".join(shown(value) if name.isdigit() else f"{name}={shown(value)}" for name, value in arguments.items())


class Project:
    """What a project's files say beside the call: settings of its command lines and configs."""

    def __init__(self, files: ProjectFiles) -> None:
        self.files = files
        self._calls: dict[str, tuple[tuple[Values, Scope, ast.Call], ...]] = {}

    def settings(self, source: Source, text: str) -> Settings:
        """Those that code in `source` has under the name `text`: its own command line's first."""
        nearest = sorted(self._options, key=lambda path: (path != source.path, *_steps(path, source.path)))
        options: dict[str, _Option] = {}
        for path in nearest:
            for key, option in self._options[path].items():
                if option.value is not None or key not in options:
                    options.setdefault(key, option)
        values = {**self._configured, **{k: each.value for k, each in options.items() if each.value is not None}}
        values = {**dict.fromkeys(options), **values}
        places = [(path, each.line) for path in nearest for each in self._options[path].values()]
        places += [(str(path), 1) for path in self.files.configs]
        if not values:
            raise Unknown
        return Settings(text, values, *places[0])

    def option(self, name: str) -> object:
        """The default of an option of any command line; None without one."""
        return next((each[name].value for each in self._options.values() if name in each), None)

    def calls_of(self, function: str) -> tuple[tuple[Values, Scope, ast.Call], ...]:
        """Calls of a function or class by its last name, outside of tests and documents."""
        if function not in self._calls:
            self._calls[function] = ()  # while it is looked for
            self._calls[function] = tuple(
                (Values(source, self), scope, call)
                for source in self.files.sources((function,))
                if source.path.endswith(".py") and not is_test(source)
                for scope in scopes(source)
                for call in scope.calls
                if called(call) == function and self._may_be_own(source, call.func)
            )[:_MOST_CALLS]
        return self._calls[function]

    def _may_be_own(self, source: Source, function: ast.expr) -> bool:
        """Whether what is called may be the project's: no method, and nothing that another package has."""
        meaning = source.qualified_name(function)
        if meaning is None:
            return not isinstance(function, ast.Attribute)
        top = meaning.partition(".")[0]
        return not top or top in self._tops

    @cached_property
    def _tops(self) -> frozenset[str]:
        """Names of the project's files and folders."""
        paths = (path.relative_to(self.files.root) for path in self.files.paths if path.suffix == ".py")
        return frozenset(part.removesuffix(".py") for path in paths for part in path.parts)

    @cached_property
    def _options(self) -> dict[str, dict[str, _Option]]:
        """By file: options of its command line, and settings in calls that hold many."""
        sources = self.files.sources(("add_argument", "HParams", "DEFINE_integer", "Namespace", "dict", "edict"))
        options = {source.path: dict(self._options_of(source)) for source in sources}
        return {path: each for path, each in options.items() if each}

    def _options_of(self, source: Source) -> Iterator[tuple[str, _Option]]:
        values = Values(source, None, self.files.root)
        for scope in scopes(source):
            for call in scope.calls:
                try:
                    for key, value in _settings_in(call, values, scope):
                        yield key, _Option(value, call.lineno)
                except Unknown:
                    continue

    @cached_property
    def _configured(self) -> dict[str, object]:
        """The nearest config that stands where configs do."""
        merged: dict[str, object] = {}
        for path, values in self.files.configs.items():
            if path.suffix == ".json" and "config" not in str(path).lower():
                continue
            merged = {**{str(key): value for key, value in values.items()}, **merged}
        return merged


class _Option(NamedTuple):
    value: object
    line: int


def _steps(path: str, other: str) -> tuple[int, str]:
    """How many folders lie between two files."""
    common = Path(os.path.commonpath((path, other)))
    return len(Path(path).parts) + len(Path(other).parts) - 2 * len(common.parts), path


def _settings_in(call: ast.Call, values: Values, scope: Scope) -> Iterator[tuple[str, object]]:
    name = called(call)
    if name == "add_argument":
        yield from _option_in(call, values, scope)
    elif name.startswith("DEFINE_") and len(call.args) > 1:
        yield str(values.of(call.args[0], scope)), values.of(call.args[1], scope)
    elif _HOLDS_SETTINGS.fullmatch(name) and len(call.keywords) >= _FEW:
        for keyword in call.keywords:
            if keyword.arg is not None:
                try:
                    yield keyword.arg, values.of(keyword.value, scope)
                except Unknown:
                    yield keyword.arg, Unseen(keyword.arg)


def _option_in(call: ast.Call, values: Values, scope: Scope) -> Iterator[tuple[str, object]]:
    """The name that `add_argument` gives a value, and its default."""
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    key = argument(call, "dest")
    name = key.value if isinstance(key, ast.Constant) else max(flags, key=len, default="").lstrip("-").replace("-", "_")
    action, default, kind = (argument(call, each) for each in ("action", "default", "type"))
    value: object = None
    if default is not None:
        value = values.of(default, scope)
    elif isinstance(action, ast.Constant) and str(action.value).startswith("store_"):
        value = action.value == "store_false"
    if isinstance(value, str) and kind is not None and dotted_name(kind) in ("int", "float"):
        value = _CONVERSIONS[dotted_name(kind)](value)
    if name:
        yield str(name), value


class Values:
    """Evaluates expressions of one file."""

    def __init__(self, source: Source, project: Project | None, root: Path | None = None) -> None:
        """Names of other files are followed below `root`, that of the project if it is not given."""
        self.source = source
        self.project = project
        self._root = project.files.root if project is not None else root
        self._depth = 0

    def of(self, node: ast.expr, scope: Scope | None) -> object:
        """Give a plain value, or a Name, a Call or Settings. Raises Unknown."""
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise Unknown
            return self._of(node, scope)
        except (TypeError, ValueError, ArithmeticError, LookupError, SyntaxError) as error:
            raise Unknown from error
        finally:
            self._depth -= 1

    def _of(self, node: ast.expr, scope: Scope | None) -> object:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                values = [self.of(each, scope) for each in items]
                return values if isinstance(node, ast.List) else tuple(values)
            case ast.Dict():
                return self._mapping(node, scope)
            case ast.Name():
                return self._name(node, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Subscript(value=value, slice=key):
                return self._item(self._holder(value, scope), self.of(key, scope))
            case ast.Call():
                return self._call(node, scope)
        return self._operation(node, scope)

    def _mapping(self, node: ast.Dict, scope: Scope | None) -> dict[object, object]:
        entries: dict[object, object] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.of(item, scope)
            if key is not None:
                entries[self.of(key, scope)] = value
            elif isinstance(value, Mapping):
                entries |= value
            else:
                raise Unknown
        return entries

    def _operation(self, node: ast.expr, scope: Scope | None) -> object:
        match node:
            case ast.UnaryOp(op=op, operand=operand):
                return _plain(_OPERATORS[type(op)], self.of(operand, scope))
            case ast.BinOp(op=op, left=left, right=right):
                return _plain(_OPERATORS[type(op)], *(self._followed(self.of(each, scope)) for each in (left, right)))
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=items, ifs=[])]
            ):
                values = self._followed(self.of(items, scope))
                if not isinstance(values, list | tuple | range) or len(values) > _LONGEST:
                    raise Unknown
                return [self.of(_Put(name, value).visit(copy.deepcopy(element)), scope) for value in values]
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return _plain(_OPERATORS[type(op)], self.of(left, scope), self.of(right, scope))
            case ast.BoolOp(op=op, values=items):
                value: object = None
                for each in items:  # as Python does: the first that decides, or else the last
                    value = self.of(each, scope)
                    if bool(value) is isinstance(op, ast.Or):
                        break
                return value
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.of(body if self.of(test, scope) else other, scope)
        raise Unknown

    def _followed(self, value: object) -> object:
        """What a name that another file of the project assigns stands for there; anything else as it is."""
        for _ in range(_DEEPEST):
            if not isinstance(value, Name) or self._root is None:
                break
            module, _, last = value.text.lstrip(".").rpartition(".")
            level = len(value.text) - len(value.text.lstrip("."))
            own = Path(value.path)
            folders = (own.parents[level - 1],) if level else (own.parent, self._root)
            places = (folder.joinpath(*module.split(".")) for folder in folders if module)
            files = (file for place in places for file in (place.with_suffix(".py"), place / "__init__.py"))
            file = next(filter(Path.is_file, files), None)
            if file is None:
                break
            value = Values(_read(file), None, self._root).of(ast.Name(last, ast.Load()), None)
        return value

    def runs(self, node: ast.AST, scope: Scope) -> bool:
        """Whether the conditions around `node` hold, as far as anybody can see."""
        child = node
        for parent in scope.around(node):
            if isinstance(parent, ast.If) and child is not parent.test:
                try:
                    if bool(self.of(parent.test, scope)) is (child in parent.orelse):
                        return False
                except Unknown:
                    pass
            child = parent
        return True

    def arguments(self, call: ast.Call, scope: Scope | None) -> tuple[dict[str, object], tuple[str, ...]]:
        """Arguments of a call, positional ones under digits, and the names of those that nobody can see."""
        known: dict[str, object] = {}
        unseen = []
        position = 0
        for node in call.args:
            try:
                values = self.of(node.value, scope) if isinstance(node, ast.Starred) else (self.of(node, scope),)
                if not isinstance(values, list | tuple):
                    raise Unknown
                known |= {str(position + k): value for k, value in enumerate(values)}
                position += len(values)
            except Unknown:
                unseen.append(str(position))
                if isinstance(node, ast.Starred):
                    break  # nobody knows how many it stands for
                position += 1
        for keyword in call.keywords:
            try:
                value = self.of(keyword.value, scope)
                if keyword.arg is not None:
                    known[keyword.arg] = value
                elif isinstance(value, Mapping):
                    known |= {str(key): each for key, each in value.items()}
                elif isinstance(value, Settings):
                    known |= {key: each for key, each in value.values.items() if each is not None}
            except Unknown:
                unseen.append(keyword.arg or "**")
        return known, tuple(unseen)

    def _name(self, node: ast.Name, scope: Scope | None) -> object:
        """What was assigned last before `node`, the default of a parameter, settings, or a name to be looked up."""
        outside = scopes(self.source)[0]
        for each in dict.fromkeys((scope, outside)):
            if each is None:
                continue
            assigned = [n for n in each.nodes if _assigns(n, node.id) and (each is not scope or _ends_before(n, node))]
            for statement in reversed(assigned):
                if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                    if self.runs(statement, each):
                        return self._with_attributes(node, statement.value, each)
                else:
                    raise Unknown
            if each is scope and not isinstance(each.node, ast.Module) and _has_parameter(each.node, node.id):
                return self._parameter(node.id, each)
        if node.id in self.source.imports or _defines(self.source, node.id):
            return Name(self.source.qualified_name(node) or node.id, self.source.path)
        if _SETTINGS.fullmatch(node.id) and self.project is not None:
            return self.project.settings(self.source, node.id)
        raise Unknown

    def _with_attributes(self, node: ast.Name, value: ast.expr, scope: Scope) -> object:
        """What was assigned to the name, with what was set on it since where a class of the project makes it."""
        names = [name for name in _attribute_assignments(scope) if name.startswith(f"{node.id}.")]
        if not names or not isinstance(value, ast.Call) or _PARSES.fullmatch(called(value)):
            return self._assigned(node.id, value, scope)
        function = self.of(value.func, scope)
        known, unseen = self.arguments(value, scope)
        if not isinstance(function, Name) or unseen:
            return self._assigned(node.id, value, scope)
        attributes: dict[str, object] = {}
        for name in (each.partition(".")[2] for each in names):
            try:
                if (own := self._set_on(node, name, scope)) is not None:
                    attributes[name] = self.of(own, scope)
            except Unknown:
                attributes[name] = Unseen(name)
        return Call(function, known, attributes=attributes)

    def _assigned(self, name: str, value: ast.expr, scope: Scope) -> object:
        try:
            known = self.of(value, scope)
            is_made = isinstance(known, Call) and known.function.text.rpartition(".")[2][:1].islower()
            if not (is_made and self.project is not None and _SETTINGS.fullmatch(name)):
                return known
            return self.project.settings(self.source, name)
        except Unknown:
            makes = isinstance(value, ast.Call) and bool(
                _MAKES_SETTINGS.fullmatch(called(value)) or dotted_name(value.func).startswith("OmegaConf.")
            )
            if self.project is None or not (makes or _SETTINGS.fullmatch(name)):
                raise
            return self.project.settings(self.source, name)

    def _parameter(self, name: str, scope: Scope) -> object:
        assert not isinstance(scope.node, ast.Module)
        arguments = scope.node.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        defaults = dict(zip(reversed(names), reversed(arguments.defaults), strict=False))
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        defaults |= {each.arg: default for each, default in named if default is not None}
        passed = self._passed(name, scope)
        if passed:
            return passed[0]
        if name in defaults:
            return self.of(defaults[name], scopes(self.source)[0])
        if arguments.kwarg is not None and arguments.kwarg.arg == name:
            return {}
        if self.project is not None and passed is None and (value := self.project.option(name)) is not None:
            return value
        if _SETTINGS.fullmatch(name) and self.project is not None:
            return self.project.settings(self.source, name)
        raise Unknown

    def _passed(self, name: str, scope: Scope) -> tuple[object, ...] | None:
        """What the project's first call of the function, or of the class whose `__init__` it is, passes on.

        Empty where that is not seen.
        """
        function = scope.owner.name if scope.owner is not None and scope.name == "__init__" else scope.name
        if self.project is None or (scope.owner is not None and function == scope.name) or function in _COMMON:
            return None
        assert not isinstance(scope.node, ast.Module)
        names = [each.arg for each in scope.node.args.args]
        position = names.index(name) - (scope.owner is not None) if name in names else None
        for caller, where, call in self.project.calls_of(function):
            node = argument(call, name, position)
            if node is not None and where.node is not scope.node:
                try:
                    return (caller.of(node, where),)
                except Unknown:
                    return ()
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope | None) -> object:
        if (name := self.source.qualified_name(node)) is not None:
            return Name(name, self.source.path)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope is not None and scope.owner:
            own = _made_in_init(self.source, scope.owner, node.attr)
            if own is not None:
                return self._assigned(node.attr, own[0], own[1])
            if _SETTINGS.fullmatch(node.attr) and self.project is not None:
                return self.project.settings(self.source, node.attr)
        set_on = self._set_on(node.value, node.attr, scope) if isinstance(node.value, ast.Name) else None
        if set_on is not None:
            return self.of(set_on, scope)
        return self._item(self._holder(node.value, scope), node.attr)

    def _set_on(self, node: ast.Name, name: str, scope: Scope | None) -> ast.expr | None:
        """What is assigned to this attribute last before the name is used."""
        assigned = () if scope is None else _attribute_assignments(scope).get(f"{node.id}.{name}", ())
        before = (each for each in reversed(assigned) if scope is not None and _ends_before(each, node))
        return next((each.value for each in before if scope is not None and self.runs(each, scope)), None)

    def _holder(self, node: ast.expr, scope: Scope | None) -> object:
        """What an attribute or item is of; settings, where nobody sees what makes them and the name says so."""
        try:
            value = self.of(node, scope)
        except Unknown:
            value = None
        name = node.attr if isinstance(node, ast.Attribute) else dotted_name(node)
        if isinstance(value, Name | Call | None) and self.project is not None and _SETTINGS.fullmatch(name):
            return self.project.settings(self.source, name)
        return value

    def _item(self, value: object, key: object) -> object:
        if isinstance(value, Settings):
            known = value.values
            if known.get(str(key)) is None and "." in str(key):
                raise Unknown
            item = known[str(key)]
            if isinstance(item, Mapping):
                return Settings(str(key), {str(k): v for k, v in item.items()}, value.path, value.line)
            if item is None or isinstance(item, Unseen):
                raise Unknown
            return item
        if isinstance(value, Mapping | list | tuple | str):
            return value[key]  # type: ignore[index,call-overload]
        raise Unknown

    def _call(self, node: ast.Call, scope: Scope | None) -> object:
        name = called(node)
        if isinstance(node.func, ast.Name) and name in _CONVERSIONS and not node.keywords:
            arguments = [self._followed(self.of(each, scope)) for each in node.args]
            return _plain(_CONVERSIONS[name], *arguments)
        if isinstance(node.func, ast.Name) and name == "dict":
            return self.arguments(node, scope)[0]
        if isinstance(node.func, ast.Attribute) and name in ("get", "split"):
            base, *arguments = [self.of(each, scope) for each in (node.func.value, *node.args)]
            if name == "get" and isinstance(base, Settings):
                base = base.values
            return getattr(base, name)(*arguments)
        if isinstance(node.func, ast.Attribute) and name in ("to", "cuda", "float", "eval", "train", "half", "double"):
            return self.of(node.func.value, scope)
        function = self.of(node.func, scope)
        known, unseen = self.arguments(node, scope)
        if not isinstance(function, Name) or _MAKES_SETTINGS.fullmatch(name) or (unseen and name[:1].islower()):
            raise Unknown
        return Call(function, known, unseen)


class _Put(ast.NodeTransformer):
    """Put a value in the place of a name."""

    def __init__(self, name: str, value: object) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._value) if node.id == self._name else node  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _read(file: Path) -> Source:
    """Raise Unknown for a file that nobody can read."""
    try:
        return Source.read(file)
    except Unreadable as error:
        raise Unknown from error


def arguments_of(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The expressions of a call's arguments, positional ones under digits."""
    yield from ((str(position), node) for position, node in enumerate(call.args))
    yield from ((keyword.arg or "**", keyword.value) for keyword in call.keywords)


def literal_call(text: str) -> tuple[str, dict[str, object]] | None:
    """The name and the arguments of a call as somebody types it; None for anything else. Raises Unknown."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Call) or not dotted_name(node.func):
        return None
    source = Source("", text, ast.Module([], []))
    known, unseen = _Typed(source, None).arguments(node, None)
    if unseen:
        raise Unknown(unseen[0])
    return dotted_name(node.func), known


class _Typed(Values):
    """Of what somebody typed: every name is one of the file that it stands behind."""

    def _name(self, node: ast.Name, _scope: Scope | None) -> object:
        return Name(node.id, "")

    def _attribute(self, node: ast.Attribute, _scope: Scope | None) -> object:
        if not dotted_name(node):
            raise Unknown
        return Name(dotted_name(node), "")


def _plain(function: Callable[..., object], *arguments: object) -> object:
    """The result on plain values that stay small."""
    if any(isinstance(each, Name | Call | Settings) for each in arguments):
        raise Unknown
    numbers = [each for each in arguments if isinstance(each, int | float)]
    if any(abs(number) > _LARGEST for number in numbers):
        raise Unknown
    if function is operator.mul and len(numbers) < len(arguments) and max(numbers, default=0) > _LONGEST:
        raise Unknown
    return function(*arguments)


def _assigns(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(each, ast.Name) and each.id == name for each in node.targets)
    if isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr):
        return isinstance(node.target, ast.Name) and node.target.id == name
    return False


@lru_cache(maxsize=16)
def _attribute_assignments(scope: Scope) -> Mapping[str, list[ast.Assign]]:
    """By `name.attribute`: the statements that assign it."""
    assigned: dict[str, list[ast.Assign]] = {}
    for node in scope.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            assigned.setdefault(f"{target.value.id}.{target.attr}", []).append(node)
    return assigned


def _ends_before(statement: ast.AST, node: ast.expr) -> bool:
    return (getattr(statement, "end_lineno", 0) or 0) < node.lineno


def _has_parameter(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return any(each is not None and each.arg == name for each in every)


def _defines(source: Source, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name for node in source.tree.body)


def _made_in_init(source: Source, owner: ast.ClassDef, attribute: str) -> tuple[ast.expr, Scope] | None:
    """What `__init__` assigns to an attribute of `self`, or the class to its own."""
    for scope in scopes(source):
        if scope.owner is owner and scope.name == "__init__":
            for node in scope.nodes:
                if isinstance(node, ast.Assign) and any(dotted_name(t) == f"self.{attribute}" for t in node.targets):
                    return node.value, scope
    return None


def function_name(call: ast.Call, values: Values, scope: Scope) -> str:
    """The last name of what is called: also of `models[args.arch](...)` and `getattr(models, args.arch)(...)`."""
    function = call.func
    try:
        if isinstance(function, ast.Subscript):
            value = values.of(function.slice, scope)
            held = values.of(function.value, scope) if isinstance(function.value, ast.Name | ast.Attribute) else None
            item = held.get(value) if isinstance(held, Mapping) else None
            return item.text.rpartition(".")[2] if isinstance(item, Name) else str(value)
        if isinstance(function, ast.Call) and called(function) == "getattr" and len(function.args) > 1:
            return str(values.of(function.args[1], scope))
    except Unknown:
        return ""
    return last_name(function)
