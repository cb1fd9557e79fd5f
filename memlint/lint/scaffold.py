"""`memlint new-rule`: a rule that works and whose cases pass, to be changed into the one that is wanted."""

import re
from pathlib import Path

from memlint.base.errors import UsageError
from memlint.lint.registry import CODE, Registry

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_TEXT = '''\
"""@CODE@: an example that looks for `.double()`; say here in one line what the rule finds."""

import ast

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import uses_torch
from memlint.source.text import Source


class @CLASS@(SourceRule):
    """A tensor is converted to float64.

    Reports calls of `.double()` in files that import PyTorch.

    ## Why it costs memory

    An element of float64 takes 8 bytes, one of float32 takes 4.

    ## Known limits

    Any object may have a method of that name.

    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.double.html
    """

    code = "@CODE@"
    name = "@NAME@"
    severity = Severity.WARNING
    bad = (Case(source="import torch\\n\\nx = torch.zeros(4).double()\\n", line=3),)
    good = (Case(source="import torch\\n\\nx = torch.zeros(4)\\n"),)

    def check(self, source: Source) -> Findings:
        """Yield a finding for each call."""
        if not uses_torch(source):
            return
        for node in ast.walk(source.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="double")):
                    what = "`double()` makes a copy in float64, of twice the bytes."
                    fix = "Use `float()`, or leave the conversion out."
                    yield self.finding(source, node, what, fix)
'''


def write_rule(code: str, name: str, folder: Path, registry: Registry) -> Path:
    """Write the file of a new rule into `folder` and give its path.

    Raises UsageError for a code or name that is none or is taken, and for a file that exists or cannot be written.
    """
    if not CODE.fullmatch(code):
        raise UsageError(f"{code!r} is no code", "Give one to five capital letters and three digits, as in ACM001.")
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name", "Give lower-case words joined by hyphens, as in prints-in-forward.")
    for rule in registry.rules:
        if rule.code == code or rule.name == name:
            taken = code if rule.code == code else name
            raise UsageError(f"{taken} is taken by {rule.code} ({rule.name})", "`memlint rules` lists what is taken.")
    file = folder / f"{code.lower()}_{name.replace('-', '_')}.py"
    words = {"@CODE@": code, "@NAME@": name, "@CLASS@": "".join(word.capitalize() for word in name.split("-"))}
    text = re.sub("|".join(words), lambda match: words[match[0]], _TEXT)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise UsageError(f"{file} exists already", "Remove it, or give another --path.") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}", "Give another --path.") from error
    return file
