"""Which rules there are.

Rules are found through the entry-point group `memlint.rules`: each entry names a module or a package, whose rules are
those in its `RULES`, or else all subclasses of Rule defined in it and in the modules directly inside it, less those
whose names begin with an underscore. The built-in rules are loaded in the same way. A project's own rules are the
files of the folders in its `rule-paths`.
"""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from memlint.base.errors import RuleError, UsageError
from memlint.base.patching import patched
from memlint.config import Settings, find_settings
from memlint.lint.diagnostics import DIAGNOSTICS, LOCAL, BrokenRule, Diagnostic
from memlint.lint.own_rules import kept_in_bounds
from memlint.lint.rule import FROM_CASES, HEADINGS, SAVING, Finding, Rule, Severity, SourceRule, TraceRule
from memlint.lint.selection import select_rules, unknown

GROUP = "memlint.rules"
BUILT_IN = "memlint_rules"
CODE = re.compile(r"[A-Z]{1,5}[0-9]{3}")
_HELPERS = ("_", "test_")
"""How the names of files begin that are no rules, though they lie in a folder of `rule-paths`."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The installed rules by code, memlint's own diagnostics included, and one Finding for everything broken."""

    rules: tuple[Rule, ...]
    problems: tuple[Finding, ...]
    complete: bool = True
    """True if every rule that was asked for could be loaded; if not, a code that is not here may still be a rule's."""

    def __getitem__(self, code: str) -> Rule:
        """Find the rule of that code (in any case) or name; UsageError with the closest one if there is none."""
        key = code.strip()
        for rule in self.rules:
            if key.upper() == rule.code or key.lower() == rule.name:
                return rule
        raise unknown(code, self.rules)

    def chosen(self, settings: Settings) -> tuple[Rule, ...]:
        """Choose the rules that `settings` ask for; raises UsageError for codes that no rule has."""
        return select_rules(
            self.rules, settings.select, settings.ignore, settings.extend_select, complete=self.complete
        )


def load_rules(
    plugins: Iterable[EntryPoint] | None = None, paths: Sequence[Path] = (), *, left_out: bool = False
) -> Registry:
    """Every rule of every installed plugin (or of `plugins`) and of the files and folders `paths`, whose code is run.

    Of two rules with one code the second is a problem, and the built-in ones come first. `left_out` says that there
    are rules that are not to be loaded. Raises UsageError for a path that does not exist.
    """
    loading = _Loading({each.code: _checked(type(each)) for each in DIAGNOSTICS}, [])
    installed = entry_points(group=GROUP) if plugins is None else plugins
    for plugin in sorted(installed, key=lambda plugin: (plugin.value != BUILT_IN, plugin.value)):
        loading.plugin(plugin)
    with redirect_stdout(sys.stderr):  # where no report is spoilt by what a file prints
        for path in paths:
            loading.path(path)
    rules = tuple(loading.rules[code] for code in sorted(loading.rules))
    return Registry(rules, tuple(loading.problems), complete=not loading.problems and not left_out)


def project_rules(settings: Settings, root: Path, *, execute: bool = True) -> Registry:
    """The installed rules and those of the project at `root`, whose `rule-paths` only count if code may be executed."""
    paths = [root / path for path in settings.rule_paths]
    if not (paths and execute):
        return _installed_rules(left_out=bool(paths))
    with kept_in_bounds(settings.timeout):
        return load_rules(paths=paths)


@cache
def _installed_rules(*, left_out: bool) -> Registry:
    """Load the rules of plugins, which a process imports once."""
    return load_rules(left_out=left_out)


def registry_here(no_exec: bool) -> Registry:
    """Load the installed rules, and those of the project around the current directory if its code may be run."""
    return project_rules(*find_settings(Path()), execute=not no_exec)


@dataclass(frozen=True, slots=True)
class _Loading:
    rules: dict[str, Rule]
    problems: list[Finding]

    def plugin(self, plugin: EntryPoint) -> None:
        broken = partial(BrokenRule.of_plugin, plugin.name, plugin.dist.name if plugin.dist else plugin.value)
        with self._reported(broken):
            loaded = plugin.load()
            if hasattr(loaded, "RULES"):
                self._add(loaded.RULES, broken)
            elif not hasattr(loaded, "__name__"):
                raise RuleError(f"{loaded!r} is not a module")
            else:
                self._add(_defined_in(loaded), broken)
                self._add_modules_in(loaded, broken)

    def path(self, path: Path) -> None:
        """Load one file, or the files directly in a folder, which may import one another as `from .name import ...`."""
        if not path.exists():
            raise UsageError(f"rule-paths: {path} does not exist", "Give a folder or a Python file.")
        folder = path if path.is_dir() else path.parent
        package = _package(folder)
        for item in sorted(pkgutil.iter_modules([str(folder)]), key=lambda item: item.name):
            file = folder / (f"{item.name}/__init__.py" if item.ispkg else f"{item.name}.py")
            if path == file or (path.is_dir() and not item.name.startswith(_HELPERS)):
                # A file changed within a second of its bytecode would be taken for unchanged.
                with patched([(sys, "dont_write_bytecode", True)]):
                    self._add_module(f"{package}.{item.name}", partial(BrokenRule.of_file, file))

    @contextmanager
    def _reported(self, broken: Callable[..., Finding], rule: object = None) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            self.problems.append(broken(error, rule))

    def _add_modules_in(self, package: ModuleType, broken: Callable[..., Finding]) -> None:
        """Load the modules of a plugin's package, and of the packages in it but for private ones and tests."""
        for item in pkgutil.iter_modules(getattr(package, "__path__", ())):
            name = f"{package.__name__}.{item.name}"
            self._add_module(name, broken)
            if item.ispkg and name in sys.modules and not item.name.startswith((*_HELPERS, "tests")):
                self._add_modules_in(sys.modules[name], broken)

    def _add_module(self, name: str, broken: Callable[..., Finding]) -> None:
        with self._reported(broken):
            module = importlib.import_module(name)
            self._add(getattr(module, "RULES", None) or _defined_in(module), broken)

    def _add(self, rules: Iterable[type[Rule]], broken: Callable[..., Finding]) -> None:
        for rule in rules:
            with self._reported(broken, rule):
                checked = _checked(rule)
                other = self.rules.setdefault(checked.code, checked)
                if type(other) is not rule:
                    raise RuleError(f"{_path(rule)} has the code {checked.code}, and so has {_path(type(other))}")


def _package(folder: Path) -> str:
    """A fresh package, importable in this process, whose modules are the files of `folder`."""
    name = f"{LOCAL}{zlib.crc32(str(folder.resolve()).encode()):08x}"
    for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        del sys.modules[module]
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    importlib.invalidate_caches()
    return name


def _defined_in(module: ModuleType) -> Iterator[type[Rule]]:
    for value in list(vars(module).values()):
        if not (isinstance(value, type) and issubclass(value, Rule)) or value.__name__.startswith("_"):
            continue
        if value.__module__ == module.__name__:
            yield value


def _checked(rule: type[Rule]) -> Rule:
    """Make an instance of `rule` if it has everything a rule must have; raises RuleError."""
    if not (isinstance(rule, type) and issubclass(rule, Rule)):
        raise RuleError(f"{rule!r} is no subclass of memlint.lint.rule.Rule")
    path = _path(rule)
    if not issubclass(rule, SourceRule | TraceRule | Diagnostic):
        raise RuleError(f"{path} is neither a SourceRule nor a TraceRule")
    chapters = sections(rule)
    rule.summary = rule.summary or " ".join(chapters[""].split())
    for attribute in ("code", "name", "summary", "severity"):
        if not getattr(rule, attribute, None):
            raise RuleError(f"{path} has no {attribute}")
    if not CODE.fullmatch(rule.code):
        raise RuleError(f"{path}: the code {rule.code!r} is not capital letters and three digits")
    if rule.severity not in tuple(Severity):
        raise RuleError(f"{path}: {rule.severity!r} is no severity")
    for heading in HEADINGS:
        if heading not in FROM_CASES and heading not in chapters:
            raise RuleError(f"{path}: the docstring has no heading {heading!r}")
    return rule()


def _path(rule: type[Rule]) -> str:
    """Module and name; without the package that stands for a folder."""
    module = rule.__module__.partition(".")[2] if rule.__module__.startswith(LOCAL) else rule.__module__
    return f"{module}.{rule.__qualname__}"


def sections(rule: type[Rule]) -> dict[str, str]:
    """The sections of the docstring of `rule` by their headings, and its first sentence by "".

    What stands between the sentence and the first heading is "What it does", a list of links at the end "References".
    """
    text, *links = re.split(r"\n\n(?=- http(?:.+\n?)+\Z)", documentation(rule))
    opening, *rest = re.split(r"^## (.+)\n", f"{text}\n", flags=re.MULTILINE)
    sentence, _, what = opening.partition("\n\n")
    chapters = {"": sentence, "What it does": what, **dict(zip(rest[::2], rest[1::2], strict=True))}
    if links:
        chapters["References"] = links[0]
    if rule.saving:
        chapters[SAVING] = f"{rule.saving}\n{chapters.get(SAVING, '')}"
    return {heading: text.strip() for heading, text in chapters.items() if heading in rest or text.strip()}


def documentation(rule: type[Rule]) -> str:
    """The docstring, read from the source where Python runs with -OO and leaves them out."""
    if rule.__doc__ is not None or sys.flags.optimize < 2:
        return inspect.cleandoc(rule.__doc__ or "")
    with suppress(OSError, SyntaxError):
        text = textwrap.dedent(inspect.getsource(rule))
        tree = compile(text, rule.__module__, "exec", ast.PyCF_ONLY_AST, optimize=0)  # `ast.parse` does as -OO says
        return ast.get_docstring(tree.body[0]) or ""  # type: ignore[attr-defined]  # a module, of a class
    return ""
