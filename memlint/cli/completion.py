"""Completion in the shell: targets, GPUs, dtypes and rules."""

import ast
from contextlib import suppress
from pathlib import Path

import click
from click.shell_completion import CompletionItem

_SEPARATOR = "::"


def targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete files and folders, and behind `file.py::` the classes and functions of the file."""
    before = context.params.get(parameter.name or "")
    words = [*map(str, before)] if isinstance(before, tuple) else []
    if incomplete == _SEPARATOR and words:  # bash takes each of the three parts for a word
        return [CompletionItem(f"{_SEPARATOR}{each}") for each in _definitions(words[-1], "")]
    if words[-1:] == [_SEPARATOR] and len(words) > 1:
        return [CompletionItem(each) for each in _definitions(words[-2], incomplete)]
    file, separator, name = incomplete.partition(_SEPARATOR)
    if not separator:
        return [CompletionItem(incomplete, type="file")]
    return [CompletionItem(f"{file}{_SEPARATOR}{each}") for each in _definitions(file, name)]


def _definitions(file: str, name: str) -> list[str]:
    """The classes and functions of a file whose names begin so; none of one that cannot be read."""
    with suppress(OSError, SyntaxError, ValueError):
        body = ast.parse(Path(file).expanduser().read_bytes()).body
        kinds = (ast.ClassDef, ast.FunctionDef)
        return [each.name for each in body if isinstance(each, kinds) and each.name.startswith(name)]
    return []


def gpus(_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of GPUs."""
    from memlint.memory.devices import CATALOGUE  # noqa: PLC0415

    return _of(parameter, {name: device.title for name, device in CATALOGUE.items()}, incomplete)


def dtypes(_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of dtypes."""
    from memlint.base.units import DTYPES  # noqa: PLC0415

    return _of(parameter, dict.fromkeys(DTYPES, ""), incomplete)


def engine_dtypes(_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of dtypes that serving engines run models in."""
    from memlint.serving.options import FLOATS  # noqa: PLC0415

    return _of(parameter, dict.fromkeys(FLOATS, ""), incomplete)


def cache_dtypes(_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of dtypes of a serving engine's cache."""
    from memlint.serving.options import CACHE_DTYPES  # noqa: PLC0415

    return _of(parameter, dict.fromkeys(("auto", *CACHE_DTYPES), ""), incomplete)


def rules(_context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete codes of the installed rules; those of the project are code, which is not run for that."""
    from memlint.lint.registry import load_rules  # noqa: PLC0415

    return _of(parameter, {rule.code: rule.summary for rule in load_rules().rules}, incomplete)


def _of(parameter: click.Parameter, names: dict[str, str], incomplete: str) -> list[CompletionItem]:
    """The names that begin so, with what is to be said of each; of several by comma the last is completed."""
    before, comma, last = incomplete.rpartition(",") if _takes_several(parameter) else ("", "", incomplete)
    taken = before.split(",")
    return [
        CompletionItem(f"{before}{comma}{name}", help=text)
        for name, text in names.items()
        if name not in taken and name.lower().startswith(last.lower())
    ]


def _takes_several(parameter: click.Parameter) -> bool:
    """Return True if its help calls its value by a plural: several are separated by commas."""
    return str(parameter.metavar).endswith("S")
