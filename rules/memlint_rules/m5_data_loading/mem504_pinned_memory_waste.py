import ast
from dataclasses import replace
from math import prod

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Finding, Findings, Severity, SourceRule
from memlint.source.calls import argument, before, called, constant_shape, is_literal
from memlint.source.scopes import Scope, calls, uses_torch
from memlint.source.text import Source

WASTE_NBYTES = 16 * 2**20
"""Bytes lost by rounding from which it is reported."""

_ITEMSIZES = {
    "": 4, "float32": 4, "float": 4, "float64": 8, "double": 8, "float16": 2, "half": 2, "bfloat16": 2, "int64": 8,
    "long": 8, "int32": 4, "int": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of an element by the name of its dtype; the default is float32."""


class PinnedMemoryWaste(SourceRule):
    """Pinned host memory is rounded up to a power of two, or holds a whole data set.

    Looks for pinned tensors with a literal shape whose size is just above a power of two, and for data sets that pin
    all their data when they are created.

    ## Why it costs memory

    PyTorch rounds every pinned allocation up to a power of two, so that 129 MiB take 256 MiB. Pinned memory is
    page-locked: the system cannot swap it or use it for anything else. A copy to the GPU needs one pinned batch at a
    time, not the whole data set.

    ## How the saving is computed

    For literal shapes it is exact: the next power of two minus the bytes of the tensor. It is host memory; the peak on
    the GPU does not change.

    ## Known limits

    Computed shapes are not known. `PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:64`, which disables the rounding
    for larger sizes, is not seen if it is set outside the file.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf
    """

    code, name, severity = "MEM504", "pinned-memory-waste", Severity.NOTE
    bad = (
        Case("""\
import torch

staging = torch.empty(129, 1024, 1024, dtype=torch.uint8, pin_memory=True)
""").but(title="129 MiB take 256", line=3),
        Case("""\
import torch
from torch.utils.data import Dataset

class Images(Dataset):
    def __init__(self, path):
        self.images = torch.load(path).pin_memory()
""").but(title="A whole data set", line=6),
    )
    good = (
        Case("""\
import torch

staging = torch.empty(128, 1024, 1024, dtype=torch.uint8, pin_memory=True)
"""),
        Case("""\
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, path):
        self.images = torch.load(path, mmap=True)

loader = DataLoader(Images("images.pt"), batch_size=64, pin_memory=True)
""").but(title="One batch at a time"),
    )

    def check(self, source: Source) -> Findings:
        if (
            "pin_memory" not in source.words
            or "pinned_max_round_threshold_mb" in source.words
            or not uses_torch(source)
        ):
            return
        for scope, call in calls(source):
            if called(call) != "pin_memory" and not is_literal(argument(call, "pin_memory"), True):
                continue
            waste = _rounding(scope, call)
            if waste >= WASTE_NBYTES:
                yield self._report(
                    source,
                    call,
                    f"Pinned memory is rounded up to a power of two: this takes {format_nbytes(waste)} of the host "
                    "beyond what it holds.",
                    "Choose a size just below a power of two, or set "
                    "`PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:64`.",
                    waste,
                )
            elif called(call) == "pin_memory" and scope.in_dataset and scope.name == "__init__":
                yield self._report(
                    source,
                    call,
                    "The whole data set is page-locked, rounded up to a power of two, for as long as it is used.",
                    "Give the DataLoader `pin_memory=True`: it pins each batch.",
                    None,
                )

    def _report(self, source: Source, call: ast.Call, message: str, fix: str, nbytes: int | None) -> Finding:
        confidence = Confidence.ANALYTIC if nbytes is not None else Confidence.HEURISTIC
        return replace(self.finding(source, call, message, fix), nbytes=nbytes, confidence=confidence)


def _rounding(scope: Scope, call: ast.Call) -> int:
    """Return the bytes that rounding adds to the pinned tensor of a call with a literal shape; 0 for other shapes."""
    made = before(call, {"pin_memory"})
    if not isinstance(made, ast.Call) or not (scope.source.qualified_name(made.func) or "").startswith("torch."):
        return 0
    shape = constant_shape(made)
    dtype = argument(made, "dtype")
    itemsize = _ITEMSIZES.get("" if dtype is None else ast.unparse(dtype).removeprefix("torch."), 0)
    nbytes = prod(shape) * itemsize if shape is not None else 0
    return (1 << (nbytes - 1).bit_length()) - nbytes if nbytes else 0
