import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called
from memlint.source.scopes import position, scopes, uses_torch
from memlint.source.text import Source, dotted_name
from memlint_rules.support.environment import ALLOCATOR_SETTINGS, variable_set

_ON_GPU = re.compile(r"""f?['"]cuda.*|torch\.device\(f?['"]cuda.*""")


class LateAllocatorSettings(SourceRule):
    """The allocator's settings are set after its first use, where they have no effect.

    Looks for `os.environ["PYTORCH_ALLOC_CONF"] = ...`, or its older name with `CUDA`, after code in the same function,
    or in the file outside functions, that has put a tensor on the GPU.

    ## Why it costs memory

    PyTorch reads the variable once, when the allocator is first used. Later settings change nothing, so memory stays as
    fragmented as it was: with sizes that differ from step to step, `reserved` can be much larger than `allocated`.

    ## How the saving is computed

    Declare the setting as `allocator` of a workload to see its effect on `reserved`.

    ## Known limits

    Earlier code in other functions and files is not seen. Values such as `device` are not followed.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
    """

    code, name, severity = "MEM603", "late-allocator-settings", Severity.INFO
    example = """\
import os
import torch

model = torch.nn.Linear(1024, 1024).cuda()
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
"""
    bad = (Case(example, line=5),)
    good = (
        Case("""\
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch

model = torch.nn.Linear(1024, 1024).cuda()
"""),
    )

    def check(self, source: Source) -> Findings:
        if ALLOCATOR_SETTINGS.isdisjoint(source.words) or not uses_torch(source):
            return
        for scope in scopes(source):
            used = min((position(call) for call in scope.calls if _allocates(call)), default=None)
            for node in scope.nodes:
                if (
                    used is not None
                    and variable_set(source, node)[0] in ALLOCATOR_SETTINGS
                    and isinstance(node, ast.expr | ast.stmt)
                    and position(node) > used
                ):
                    yield self.finding(
                        source,
                        node,
                        f"The allocator was used on line {used[0]} and has read its settings: this has no effect.",
                        "Set it in the environment of the process, or at the top of the program before PyTorch is "
                        "imported.",
                    )


def _allocates(call: ast.Call) -> bool:
    """Return True if it certainly puts a tensor or a module on the GPU."""
    if called(call) == "cuda" and isinstance(call.func, ast.Attribute):
        return dotted_name(call.func) != "torch.cuda"
    device = argument(call, "device", 0 if called(call) == "to" else None)
    return device is not None and called(call) != "device" and _ON_GPU.fullmatch(ast.unparse(device)) is not None
