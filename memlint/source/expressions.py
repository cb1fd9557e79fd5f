"""Evaluation of a file's expressions without running anything: literals, names, and their assigned values.

A name is followed to its assignment, a parameter to the callers' argument or to its default, `args.x` to the default of
the command line's `--x`, and `config["x"]` to the project's YAML and JSON files.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from memlint.source.arithmetic import CONVERSIONS, LONGEST, OPERATORS, computed
from memlint.source.assignments import (
    annotation_of,
    assigned_part,
    attribute_assignments,
    defines,
    ends_before,
    has_parameter,
    is_grown,
    made_in_init,
    name_assignments,
)
from memlint.source.calls import argument, called
from memlint.source.files import Unreadable
from memlint.source.scopes import Scope, scopes
from memlint.source.text import Source, dotted_name
from memlint.source.values import Call, Name, Settings, Unknown, Unseen

_DEEPEST = 24
_SETTINGS = re.compile(
    r"_*(args?|opts?|options|flags|config|configs|cfg|cfgs|conf|hparams?|hps|hp|params|hyperparams|settings|h|c)",
    re.IGNORECASE,
)
_MAKES_SETTINGS = re.compile(
    r"parse_(known_)?args|.*(config|cfg|hparams|options?|args|opts?)|(attr|easy|e|ordered|config)?dict|namespace|munch"
    r"|load|loads|safe_load|full_load|parse|create|compose",
    re.IGNORECASE,
)
_OF_DATACLASSES = ("asdict", "vars", "field")
"""Functions that return the fields of an object by name, and the one that says a field's default."""
_OF_TEXTS = ("split", "lower", "upper", "strip")
_OF_ONE_PROCESS = {"get_world_size": 1, "device_count": 1, "get_rank": 0}
"""Values of functions in a program that runs alone on one GPU."""
_PARSES = re.compile(r"parse_(known_)?args")
_COMMON = frozenset({"main", "run", "forward", "train", "build", "get", "create", "make", "load", "init"})
"""Function names that are too common to tell which function is called."""


class Elsewhere(Protocol):
    """Information from the other files of a project."""

    root: Path

    def settings(self, source: Source, text: str) -> Settings:
        """Return the settings that code in `source` has under the name `text`. Raises Unknown."""

    def option(self, name: str) -> object:
        """Return the default of an option of any command line; None if there is none."""

    def calls_of(self, function: str, path: str) -> tuple[tuple[Scope, ast.Call], ...]:
        """Return calls of a function or class of the file `path` by its last name."""


class Values:
    """Evaluates expressions of one file."""

    def __init__(self, source: Source, project: Elsewhere | None, root: Path | None = None, depth: int = 0) -> None:
        """Names of other files are followed below `root`, by default the project's.

        `depth` counts the expressions that wait for the value of this one.
        """
        self.source = source
        self.project = project
        self._root = project.root if project is not None else root
        self._depth = depth
        self._made: dict[tuple[ast.Name, Scope, int], object] = {}
        """Evaluated names with their attributes, by use and depth: the condition around each one reads others."""

    def of(self, node: ast.expr, scope: Scope | None) -> object:
        """Return a plain value, or a Name, a Call or Settings. Raises Unknown."""
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
                return computed(OPERATORS[type(op)], self.of(operand, scope))
            case ast.BinOp(op=op, left=left, right=right):
                return computed(OPERATORS[type(op)], *(self._followed(self.of(each, scope)) for each in (left, right)))
            case ast.ListComp(
                elt=element, generators=[ast.comprehension(target=ast.Name(id=name), iter=items, ifs=[])]
            ):
                values = self._followed(self.of(items, scope))
                if not isinstance(values, list | tuple | range) or len(values) > LONGEST:
                    raise Unknown
                return [self.of(_Put(name, value).visit(copy.deepcopy(element)), scope) for value in values]
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return computed(OPERATORS[type(op)], self.of(left, scope), self.of(right, scope))
            case ast.BoolOp(op=op, values=items):
                value: object = None
                for each in items:  # as in Python: the first that decides, or else the last
                    value = self.of(each, scope)
                    if bool(value) is isinstance(op, ast.Or):
                        break
                return value
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.of(body if self.of(test, scope) else other, scope)
        raise Unknown

    def _followed(self, value: object) -> object:
        """Return the value that another file of the project assigns to a name; anything else unchanged."""
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
        """Return False if a condition around `node` is known not to hold."""
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
        """Return the arguments of a call, positional ones under digits, and the names of the unknown ones."""
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
                    break  # the number of its items is not known
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
        """Evaluate a name: its last assignment before `node`, the default of a parameter, settings, or a Name."""
        outside = scopes(self.source)[0]
        for each in dict.fromkeys((scope, outside)):
            if each is None:
                continue
            binding = name_assignments(each).get(node.id, ())
            assigned = [n for n in binding if each is not scope or ends_before(n, node)]
            for statement in reversed(assigned):
                value = assigned_part(statement, node.id)
                if value is None or (isinstance(value, ast.List) and is_grown(each, node.id)):
                    raise Unknown
                if self.runs(statement, each):
                    return self._with_attributes(node, value, each)
            if each is scope and not isinstance(each.node, ast.Module) and has_parameter(each.node, node.id):
                return self._parameter(node.id, each)
        if node.id in self.source.imports or defines(self.source, node.id):
            return Name(self.source.qualified_name(node) or node.id, self.source.path)
        if _SETTINGS.fullmatch(node.id) and self.project is not None:
            return self.project.settings(self.source, node.id)
        raise Unknown

    def _with_attributes(self, node: ast.Name, value: ast.expr, scope: Scope) -> object:
        """Evaluate the name's assigned value, with attributes set on it since, if a class of the project makes it."""
        names = [name for name in attribute_assignments(scope) if name.startswith(f"{node.id}.")]
        if not names or not isinstance(value, ast.Call) or _PARSES.fullmatch(called(value)):
            return self._assigned(node.id, value, scope)
        function = self.of(value.func, scope)
        known, unseen = self.arguments(value, scope)
        if not isinstance(function, Name) or unseen:
            return self._assigned(node.id, value, scope)
        use = (node, scope, self._depth)
        if use not in self._made:
            self._made[use] = Call(function, known, attributes=self._attributes_of(node, names, scope))
        return self._made[use]

    def _attributes_of(self, node: ast.Name, names: Iterable[str], scope: Scope) -> dict[str, object]:
        attributes: dict[str, object] = {}
        for name in (each.partition(".")[2] for each in names):
            try:
                if (own := self._set_on(node, name, scope)) is not None:
                    attributes[name] = self.of(own, scope)
            except Unknown:
                attributes[name] = Unseen(name)
        return attributes

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
        """Return the argument in the project's first call of the function, or of the class whose `__init__` it is.

        Empty if it cannot be evaluated, None if there is no call.
        """
        function = scope.owner.name if scope.owner is not None and scope.name == "__init__" else scope.name
        if self.project is None or (scope.owner is not None and function == scope.name) or function in _COMMON:
            return None
        assert not isinstance(scope.node, ast.Module)
        names = [each.arg for each in scope.node.args.args]
        position = names.index(name) - (scope.owner is not None) if name in names else None
        for where, call in self.project.calls_of(function, self.source.path):
            node = argument(call, name, position)
            if node is not None and where.node is not scope.node:
                try:
                    return (Values(where.source, self.project, depth=self._depth).of(node, where),)
                except Unknown:
                    return ()
        return None

    def _attribute(self, node: ast.Attribute, scope: Scope | None) -> object:
        if (name := self.source.qualified_name(node)) is not None:
            return self._imported(node, Name(name, self.source.path))
        if isinstance(node.value, ast.Name) and node.value.id == "self" and scope is not None and scope.owner:
            own = made_in_init(self.source, scope.owner, node.attr)
            if own is not None:
                return self._assigned(node.attr, own[0], own[1])
            if _SETTINGS.fullmatch(node.attr) and self.project is not None:
                return self.project.settings(self.source, node.attr)
        set_on = self._set_on(node.value, node.attr, scope) if isinstance(node.value, ast.Name) else None
        if set_on is not None:
            return self.of(set_on, scope)
        with suppress(Unknown):
            return self._of_class(node, scope)
        return self._item(self._holder(node.value, scope), node.attr)

    def _of_class(self, node: ast.Attribute, scope: Scope | None) -> object:
        """Evaluate an attribute that a class of the project states, for itself or for each object. Raises Unknown."""
        maker = node.value
        if isinstance(maker, ast.Name) and scope is not None:
            name = maker.id
            bound = (name_assignments(each).get(name, ()) for each in (scope, scopes(self.source)[0]))
            made = (assigned_part(statement, name) for statements in bound for statement in statements)
            kinds = (call.func for call in made if isinstance(call, ast.Call))
            maker = next(kinds, None) or annotation_of(scope.node, name) or maker
        meaning = self.source.qualified_name(maker)
        if meaning is None and isinstance(maker, ast.Name) and defines(self.source, maker.id):
            meaning = maker.id
        source, owner = self._class(Name(meaning, self.source.path) if meaning is not None else None)
        values = Values(source, self.project, self._root, self._depth)
        if (own := made_in_init(source, owner, node.attr)) is not None:
            return values.of(*own)
        for statement in owner.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                if any(isinstance(each, ast.Name) and each.id == node.attr for each in targets):
                    return values.of(statement.value, None)
        raise Unknown

    def _class(self, name: Name | None) -> tuple[Source, ast.ClassDef]:
        """Return a class of the project, and the file that defines it. Raises Unknown."""
        kind = self._followed(name)
        if not isinstance(kind, Name):
            raise Unknown
        source = _read(Path(kind.path))
        owner = next((n for n in source.tree.body if isinstance(n, ast.ClassDef) and n.name == kind.text), None)
        if owner is None:
            raise Unknown
        return source, owner

    def _of_dataclass(self, name: str, node: ast.Call, scope: Scope | None) -> object:
        if name != "field":
            return self._fields(self.of(node.args[0], scope))
        default = argument(node, "default") or argument(node, "default_factory")
        if default is None:
            raise Unknown
        value = self.of(default, scope)
        return Call(value, {}) if isinstance(value, Name) else value

    def _fields(self, made: object) -> object:
        """Return the fields of an object of a dataclass, as `asdict` does, with their defaults. Raises Unknown."""
        if not isinstance(made, Call) or made.unseen:
            return made
        source, owner = self._class(made.function)
        values = Values(source, self.project, self._root, self._depth)
        fields = [each for each in owner.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        names = [each.target.id for each in fields if isinstance(each.target, ast.Name)]
        given = {names[int(key)] if key.isdigit() else key: value for key, value in made.arguments.items()}
        defaults = zip(names, (each.value for each in fields), strict=True)
        return {
            name: values.of(each, None) for name, each in defaults if each is not None and name not in given
        } | given

    def _imported(self, node: ast.Attribute, name: Name) -> object:
        """Evaluate an attribute of an imported object: a value that its file assigns, a setting, or else the Name."""
        with suppress(Unknown, LookupError):
            value = self._followed(name)
            if isinstance(value, Name) and _SETTINGS.fullmatch(dotted_name(node).partition(".")[0]):
                value = self._item(self._holder(node.value, None), node.attr)
            if not isinstance(value, Name | Call):
                return value
        with suppress(Unknown):
            return self._of_class(node, None)
        return name

    def _set_on(self, node: ast.Name, name: str, scope: Scope | None) -> ast.expr | None:
        """Return the last value assigned to this attribute before the name is used."""
        assigned = () if scope is None else attribute_assignments(scope).get(f"{node.id}.{name}", ())
        before = (each for each in reversed(assigned) if scope is not None and ends_before(each, node))
        return next((each.value for each in before if scope is not None and self.runs(each, scope)), None)

    def _holder(self, node: ast.expr, scope: Scope | None) -> object:
        """Evaluate the owner of an attribute or item.

        Settings, if its maker is not known and its name suggests them.
        """
        try:
            value = self.of(node, scope)
        except Unknown:
            value = None
        name = node.attr if isinstance(node, ast.Attribute) else dotted_name(node)
        if isinstance(value, Name | Call | None) and self.project is not None and _SETTINGS.fullmatch(name):
            return self.project.settings(self.source, name)
        return value

    def _is_own(self, function: object) -> bool:
        """Return True if a file of the project defines it."""
        if not isinstance(function, Name) or self._root is None:
            return False
        first, _, rest = function.text.lstrip(".").partition(".")
        if not rest:
            return defines(self.source, first)
        place = self._root / first
        return function.text.startswith(".") or place.is_dir() or place.with_suffix(".py").is_file()

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
        value = self._fields(value)
        if isinstance(value, Mapping | list | tuple | str):
            return value[key]  # type: ignore[index,call-overload]
        raise Unknown

    def _call(self, node: ast.Call, scope: Scope | None) -> object:
        name = called(node)
        if name in _OF_ONE_PROCESS and not node.args:
            return _OF_ONE_PROCESS[name]
        if isinstance(node.func, ast.Name) and name in CONVERSIONS and not node.keywords:
            arguments = [self._followed(self.of(each, scope)) for each in node.args]
            return computed(CONVERSIONS[name], *arguments)
        if isinstance(node.func, ast.Name) and name == "dict":
            return self.arguments(node, scope)[0]
        if name in _OF_DATACLASSES:
            return self._of_dataclass(name, node, scope)
        if isinstance(node.func, ast.Attribute) and name in ("get", *_OF_TEXTS):
            base, *arguments = [self.of(each, scope) for each in (node.func.value, *node.args)]
            if name == "get" and isinstance(base, Settings):
                base = base.values
            if not isinstance(base, Mapping if name == "get" else str):
                raise Unknown
            return getattr(base, name)(*arguments)
        if isinstance(node.func, ast.Attribute) and name in ("to", "cuda", "float", "eval", "train", "half", "double"):
            return self.of(node.func.value, scope)
        function = self.of(node.func, scope)
        known, unseen = self.arguments(node, scope)
        is_class = name[:1].isupper()
        makes_settings = _MAKES_SETTINGS.fullmatch(name) and not (is_class and known and self._is_own(function))
        if not isinstance(function, Name) or makes_settings or (unseen and not is_class):
            raise Unknown
        return Call(function, known, unseen)


class _Put(ast.NodeTransformer):
    """Replaces a name by a value."""

    def __init__(self, name: str, value: object) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(self._value) if node.id == self._name else node  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _read(file: Path) -> Source:
    """Read a file; raises Unknown if it cannot be read."""
    try:
        return Source.read(file)
    except Unreadable as error:
        raise Unknown from error
