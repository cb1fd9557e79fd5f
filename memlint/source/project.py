"""Information in a project's files about a call: settings of command lines and configs, and callers of a function."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from memlint.source.calls import called
from memlint.source.lexical import may_call_itself, may_hold_settings
from memlint.source.options import WORDS, Option, options_in, typed
from memlint.source.project_files import ProjectFiles
from memlint.source.scopes import Scope, is_test, scopes
from memlint.source.text import Source
from memlint.source.values import Settings, Unknown

_MOST_CALLS = 8


class Project:
    """Project of a file."""

    def __init__(self, files: ProjectFiles) -> None:
        self.files, self.root = files, files.root
        self._of_files: dict[str, dict[str, Option]] = {}
        self._calls: dict[str, tuple[tuple[Scope, ast.Call], ...]] = {}

    def settings(self, source: Source, text: str) -> Settings:
        """Return the settings that code in `source` has under the name `text`: its own command line's first."""
        nearest = sorted(self._options, key=lambda path: (path != source.path, *_steps(path, source.path)))
        options: dict[str, Option] = {}
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
        """Return the default of an option of any command line; None if there is none."""
        return next((each[name].value for each in self._options.values() if name in each), None)

    def calls_of(self, function: str, path: str) -> tuple[tuple[Scope, ast.Call], ...]:
        """Return the calls of a function or class of the file `path` by its last name, outside of tests and documents.

        Another file that has a function of that name calls its own.
        """
        calls = self._calls_of(function)
        return tuple(each for each in calls if each[0].source.path == path or not _defines(each[0].source, function))

    def _calls_of(self, function: str) -> tuple[tuple[Scope, ast.Call], ...]:
        if function not in self._calls:
            self._calls[function] = ()  # during the search itself
            self._calls[function] = tuple(
                (scope, call)
                for source in self.files.sources((function,), lambda _path, text: may_call_itself(text, function))
                if source.path.endswith(".py") and not is_test(source)
                for scope in scopes(source)
                for call in scope.calls
                if called(call) == function and self.may_be_own(source, call.func)
            )[:_MOST_CALLS]
        return self._calls[function]

    def may_be_own(self, source: Source, function: ast.expr) -> bool:
        """Return True if the called function may be the project's: not a method, and not of another package."""
        meaning = source.qualified_name(function)
        if meaning is None:
            return not isinstance(function, ast.Attribute)
        top = meaning.partition(".")[0]
        return not top or top in self._top_level_names

    @cached_property
    def _top_level_names(self) -> frozenset[str]:
        """Names of the project's top-level files and folders."""
        names = (name.removeprefix(f"{self.root}{os.sep}") for name in self.files.names if name.endswith(".py"))
        parts = (name.removesuffix(".py").split(os.sep) for name in names)  # noqa: PTH206 -- thousands of them
        return frozenset(itertools.chain.from_iterable(parts))

    @cached_property
    def _options(self) -> dict[str, dict[str, Option]]:
        """Settings by file, as documents or shell scripts that name the file type them."""
        options = {source.path: self._options_in(source) for source in self._with_settings}
        return {path: each for path, each in options.items() if each}

    def _options_in(self, source: Source) -> dict[str, Option]:
        if source.path not in self._of_files:
            self._of_files[source.path] = {}  # while it is read, which may ask for others
            options = options_in(source, self.root) if may_hold_settings(source.text) else {}
            lines = list(self.files.command_lines(Path(source.path).name)) if options else []
            own = typed(options, next((line for line in lines if self.files.near.stem in line), ()))
            others = typed(options, next(iter(lines), ()))  # which say at least what has no default
            self._of_files[source.path] = {k: others[k] if each.value is None else each for k, each in own.items()}
        return self._of_files[source.path]

    @property
    def _with_settings(self) -> Iterator[Source]:
        return self.files.sources(WORDS, lambda _path, text: may_hold_settings(text))

    def options_of(self, source: Source) -> Mapping[str, Option]:
        """Return the settings in the file itself."""
        return self._options_in(source)

    @cached_property
    def _configured(self) -> dict[str, object]:
        """Return the nearest config in a folder where configs usually are."""
        merged: dict[str, object] = {}
        for path, values in self.files.configs.items():
            if path.suffix == ".json" and "config" not in str(path).lower():
                continue
            merged = {**{str(key): value for key, value in values.items()}, **merged}
        return merged


def _steps(path: str, other: str) -> tuple[int, str]:
    """Return the number of folders between two files."""
    common = Path(os.path.commonpath((path, other)))
    return len(Path(path).parts) + len(Path(other).parts) - 2 * len(common.parts), path


def _defines(source: Source, name: str) -> bool:
    """Return True if the file has a function or class of this name."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return any(isinstance(each, kinds) and each.name == name for each in source.tree.body)
