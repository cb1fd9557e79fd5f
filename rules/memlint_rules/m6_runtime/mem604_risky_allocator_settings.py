import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import scopes, uses_torch
from memlint.source.text import Source
from memlint_rules.support.environment import ALLOCATOR_SETTINGS, variable_set

SMALL_SPLIT_MB = 128
"""`max_split_size_mb` below which the blocks of many ordinary activations are never split."""

_NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"
_SPLIT = re.compile(r"max_split_size_mb\s*:\s*(\d+)")


class RiskyAllocatorSettings(SourceRule):
    """The allocator's cache is switched off, or hardly allowed to split blocks.

    Looks for `PYTORCH_NO_CUDA_MEMORY_CACHING` and for a `max_split_size_mb` below 128 that a program puts into its
    environment.

    ## Why it costs memory

    Without the cache the driver allocates every tensor, which makes the device wait; tensors take no less memory, and
    the setting is meant for memory checkers. A block that must not be split serves only requests close to its own size:
    PyTorch's documentation calls `max_split_size_mb` a last resort against fragmentation, and a small value makes more
    blocks useless than it keeps whole.

    ## How the saving is computed

    Declare the setting as `allocator` of a workload to see its effect on `reserved`.

    ## Known limits

    Settings in shell scripts and job files are not seen.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
    - https://docs.pytorch.org/docs/stable/cuda_environment_variables.html
    """

    code, name, severity = "MEM604", "risky-allocator-settings", Severity.NOTE
    example = """\
import os

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"

import torch
"""
    bad = (
        Case(example, line=3),
        Case("""\
import os

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")

import torch
""").but(title="Blocks above 32 MiB are never split", line=3),
    )
    good = (
        bad[0].but(
            {'["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"': '["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"'}
        ),
        Case("""\
import os
import torch

def under_checker(run):
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1" if run.checks_memory else "0"
""").but(title="For a memory checker"),
    )

    def check(self, source: Source) -> Findings:
        if (ALLOCATOR_SETTINGS | {_NO_CACHE}).isdisjoint(source.words) or not uses_torch(source):
            return
        for scope in scopes(source):
            for node in scope.nodes:
                name, value = variable_set(source, node)
                split = _SPLIT.search(value) if name in ALLOCATOR_SETTINGS else None
                if name == _NO_CACHE and value not in ("", "0"):
                    message = (
                        "Without its cache PyTorch asks the driver for every tensor and waits; none takes less memory."
                    )
                    fix = "Leave it out, except under a memory checker."
                elif split is not None and int(split[1]) < SMALL_SPLIT_MB:
                    message = (
                        f"Blocks of {split[1]} MiB and more are never split, so they serve only requests of their size."
                    )
                    fix = "Use `expandable_segments:True` against fragmentation, or a much larger value."
                else:
                    continue
                assert isinstance(node, ast.expr | ast.stmt)
                yield self.finding(source, node, message, fix)
