import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import calls, differentiates, uses_torch
from memlint.source.text import Source

_COLLECTS = re.compile(r"\bgc\.(collect|enable)\(|import (collect|enable)\b")


class GcSettings(SourceRule):
    """The cycle collector is switched off, so tensors in reference cycles are never freed.

    Looks for `gc.disable()` in files that use PyTorch and neither collect explicitly nor switch the collector on again.

    ## Why it costs memory

    A tensor in a reference cycle, such as one kept by a traceback, by a closure that refers to itself, or by a gradient
    computed with `create_graph=True`, is only freed by the collector. Without it the tensor stays on the GPU to the
    end.

    ## How the saving is computed

    No saving is computed. Programs without cycles lose nothing.

    ## Known limits

    A collection in another file is not seen.

    - https://docs.python.org/3/library/gc.html
    - https://pytorch.org/blog/understanding-gpu-memory-2/
    """

    code, name, severity = "MEM602", "gc-settings", Severity.INFO
    example = """\
import gc
import torch

def fit(model, loader, optimizer):
    gc.disable()
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    bad = (Case(example, line=5),)
    good = (
        bad[0].but(
            {
                "for x in loader:": "for number, x in enumerate(loader):",
                "optimizer.zero_grad()": (
                    "optimizer.zero_grad()\n        if number % 50 == 0:\n            gc.collect(1)"
                ),
            }
        ),
        Case("""\
import gc
import torch

def measure(model, x):
    gc.disable()
    try:
        return model(x)
    finally:
        gc.enable()
""").but(title="Only while something is measured"),
    )

    def check(self, source: Source) -> Findings:
        if not source.words >= {"gc", "disable"}:
            return
        if source.words & {"collect", "enable"} and _COLLECTS.search(source.text):
            return
        if not uses_torch(source) or not (differentiates(source) or source.words & {"cuda", "device"}):
            return
        for _scope, call in calls(source, re.compile(r"gc\.disable")):
            yield self.finding(
                source,
                call,
                "With the collector off, tensors in reference cycles stay on the GPU until the process ends.",
                "Call `gc.collect(1)` every few steps, where it costs little time.",
            )
