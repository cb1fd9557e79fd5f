"""Lightning's `Trainer.add_argparse_args` and `from_argparse_args`, which version 2 no longer has."""

from __future__ import annotations

import argparse
import ast
import inspect
from contextlib import suppress
from typing import Any

from memlint.workloads.older_versions.renames import ARGUMENTS


def add_argparse_args(cls: Any, /, parent_parser: argparse.ArgumentParser, **_options: Any) -> argparse.ArgumentParser:
    """Return the parser with an option for each argument of the Trainer, those of version 1 included."""
    defaults = {name: each.default for name, each in _parameters(cls).items()}
    for name in {**defaults, **ARGUMENTS["Trainer"]}:
        if f"--{name}" not in parent_parser._option_string_actions and name != "tokenizer":
            default = defaults.get(name)
            parent_parser.add_argument(f"--{name}", type=_value, nargs="?", const=True, default=default)
    return parent_parser


def from_argparse_args(cls: Any, /, args: argparse.Namespace | argparse.ArgumentParser, **named: Any) -> Any:
    """Return the Trainer with those of the parsed arguments that it takes, by their present names."""
    if isinstance(args, argparse.ArgumentParser):
        args = args.parse_args()
    given = {**{name: value for name, value in vars(args).items() if value is not None}, **named}
    taken = {name: value for name, value in given.items() if name in _parameters(cls)}
    for name, value in given.items():
        new = ARGUMENTS["Trainer"][name].name if name in ARGUMENTS["Trainer"] else ""
        if new in _parameters(cls) and value:
            taken[new] = value
    return cls(**taken)


def _parameters(cls: Any) -> dict[str, inspect.Parameter]:
    return {name: each for name, each in inspect.signature(cls.__init__).parameters.items() if name != "self"}


def _value(text: str) -> Any:
    """Return the number, truth value or text of an option; a list of GPUs, `0,`, stays a text."""
    if "," not in text:
        with suppress(ValueError, SyntaxError):
            return ast.literal_eval({"true": "True", "false": "False", "none": "None"}.get(text.lower(), text))
    return text


RESTORED = {
    "Trainer.add_argparse_args": classmethod(add_argparse_args),
    "Trainer.from_argparse_args": classmethod(from_argparse_args),
}
"""Methods by their qualified names."""
