"""Settings with defaults in code: options of a command line, calls with many arguments, trees of yacs' kind."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from memlint.source.arithmetic import CONVERSIONS
from memlint.source.calls import argument, called
from memlint.source.expressions import Values
from memlint.source.scopes import Scope, scopes
from memlint.source.text import Source, dotted_name
from memlint.source.values import Call, Unknown, Unseen

_CLASSES = ("Config", "DefaultConfig", "Options", "Settings")
"""Names of classes that hold the settings of a project, as attributes with values."""
WORDS = ("add_argument", "HParams", "DEFINE_integer", "Namespace", "dict", "edict", "CfgNode", *_CLASSES)
"""Words of which at least one occurs in every file with settings."""
_HOLDS_SETTINGS = re.compile(r"HParams|Namespace|(Attr|Easy|Config)Dict|edict|dict")
_FEW = 4
"""Smallest number of arguments of a call that holds settings."""


class Option(NamedTuple):
    """A setting and its place."""

    value: object
    line: int
    is_typed: bool = False
    """True if the value is that of a command line shown in a document, not the default."""


def options_in(source: Source, root: Path) -> dict[str, Option]:
    """Return the settings of one file, by name; definitions in other files are followed below `root`."""
    values = Values(source, None, root)
    options = _tree(source, values) if "CfgNode" in source.words else {}
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and node.name in _CLASSES:
            options |= _attributes(node, values)
    for scope in scopes(source):
        for call in scope.calls:
            with suppress(Unknown):
                for key, value in _settings_in(call, values, scope):
                    options[key] = Option(value, call.lineno)
    return options


def typed(options: Mapping[str, Option], words: Sequence[str]) -> dict[str, Option]:
    """Return `options` with the values that they have on a command line of these words."""
    own = dict(options)
    for word, following in itertools.pairwise((*words, "-")):
        key = word.lstrip("-").replace("-", "_")
        if not word.startswith("-") or key not in options:
            continue
        value: object = following
        if following.startswith("-") or isinstance(options[key].value, bool):
            value = options[key].value is not True
        elif (plain := type(options[key].value)) in (int, float):
            with suppress(ValueError):
                value = plain(following)
        elif options[key].value is None and following.isdecimal():
            value = int(following)
        own[key] = options[key]._replace(value=value, is_typed=True)
    return own


def _attributes(owner: ast.ClassDef, values: Values) -> dict[str, Option]:
    """Return the attributes that the body of a class gives a plain value."""
    options: dict[str, Option] = {}
    for node in owner.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            with suppress(Unknown):
                options[dotted_name(target)] = Option(values.of(node.value, None), node.lineno)
    return options


def _tree(source: Source, values: Values) -> dict[str, Option]:
    """Return settings made outside of functions, as `_C.DATA.BATCH_SIZE = 128`: mappings within mappings."""
    options: dict[str, Option] = {}
    outside = scopes(source)[0]
    for node in outside.nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if not isinstance(node, ast.Assign) or not isinstance(target, ast.Attribute):
            continue
        with suppress(Unknown):
            value = values.of(node.value, outside)
            _root, first, *inner = dotted_name(target).split(".")
            branch = {} if isinstance(value, Call) else value
            if not inner:
                options.setdefault(first, Option(branch, node.lineno))
            branch_of = options[first].value if first in options else None
            for name in inner[:-1]:
                branch_of = branch_of.get(name) if isinstance(branch_of, dict) else None
            if inner and isinstance(branch_of, dict):
                branch_of[inner[-1]] = branch
    return options


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
    """Yield the name that `add_argument` gives a value, and its default."""
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
        with suppress(ValueError):  # an empty text stands for nothing given
            value = CONVERSIONS[dotted_name(kind)](value)
    if name:
        yield str(name), value
