"""ACM001: an example that looks for `.double()`; say here in one line what the rule finds."""

import ast

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import uses_torch
from memlint.source.text import Source


class NoDoubles(SourceRule):
    """A tensor is converted to float64.

    Reports calls of `.double()` in files that import PyTorch.

    ## Why it costs memory

    An element of float64 takes 8 bytes, one of float32 takes 4.

    ## Known limits

    Any object may have a method of that name.

    - https://docs.pytorch.org/docs/stable/generated/torch.Tensor.double.html
    """

    code = "ACM001"
    name = "no-doubles"
    severity = Severity.WARNING
    bad = (Case(source="import torch\n\nx = torch.zeros(4).double()\n", line=3),)
    good = (Case(source="import torch\n\nx = torch.zeros(4)\n"),)

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
