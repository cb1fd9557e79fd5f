import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called
from memlint.source.scopes import Scope, scopes, uses_torch
from memlint.source.text import Source, dotted_name

MANY_BATCHES = 64
"""Number of batches in flight from which the queue of a DataLoader is reported; the default is two for each worker."""

_WORKERS = re.compile(r"num_workers\s*=\s*(?!0\b)")
_READS_OBJECTS = re.compile(r"json\.loads?|pickle\.loads?|yaml\.(safe_)?load|csv\.(reader|DictReader)|jsonlines\.open")


class DataloaderHostMemory(SourceRule):
    """Each worker of a DataLoader ends up with a copy of the data set, or with many batches.

    Looks for data sets that keep many Python objects, read by `json`, `pickle`, `csv` or `readlines`, in files that
    use `num_workers`; and for DataLoaders that hold 64 batches or more in their queue.

    ## Why it costs memory

    A forked worker shares the memory of its parent until one of them writes to it. Even reading a Python object writes
    to it, because its reference count changes, so over time every worker gets a copy of all objects of the data set.
    Arrays stay shared: only their header has a reference count. Each worker also prepares `prefetch_factor` batches
    ahead, all of which wait in shared memory.

    ## How the saving is computed

    The possible saving is host memory: the bytes of the objects times the number of workers, or of a batch times
    `num_workers
    * prefetch_factor`.

    ## Known limits

    The number of objects is not known, nor whether workers are forked: that is the default on Linux before Python 3.14.
    Only literal numbers of workers and batches are multiplied.

    - https://github.com/pytorch/pytorch/issues/13246
    - https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading
    """

    code, name, severity = "MEM503", "dataloader-host-memory", Severity.INFO
    example = """\
import json
from torch.utils.data import DataLoader, Dataset

class Lines(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = [json.loads(line) for line in file]

    def __getitem__(self, index):
        return self.rows[index]["text"]

loader = DataLoader(Lines("train.jsonl"), batch_size=32, num_workers=8)
"""
    bad = (
        Case(example, line=7),
        Case("""\
from torch.utils.data import DataLoader

def loader(dataset):
    return DataLoader(dataset, batch_size=256, num_workers=16, prefetch_factor=16)
""").but(title="A long queue", line=4),
    )
    good = (
        Case("""\
import numpy as np
from torch.utils.data import DataLoader, Dataset

class Lines(Dataset):
    def __init__(self, path):
        self.text = np.memmap(path, dtype=np.uint8, mode="r")
        self.ends = np.flatnonzero(self.text == ord("\\\\n"))

    def __getitem__(self, index):
        return bytes(self.text[self.ends[index] + 1 : self.ends[index + 1]])

loader = DataLoader(Lines("train.txt"), batch_size=32, num_workers=8)
"""),
        Case("""\
import json
from torch.utils.data import DataLoader, Dataset

class Lines(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.rows = [json.loads(line) for line in file]

loader = DataLoader(Lines("train.jsonl"), batch_size=32, num_workers=0)
""").but(title="Without workers there is one copy"),
    )

    def check(self, source: Source) -> Findings:
        if "num_workers" not in source.words or not _WORKERS.search(source.text) or not uses_torch(source):
            return
        for scope in scopes(source):
            yield from self._queues(scope)
            if scope.in_dataset and scope.name == "__init__":
                yield from self._objects(scope)

    def _queues(self, scope: Scope) -> Findings:
        for call in scope.calls:
            if called(call) != "DataLoader":
                continue
            workers, each = (_number(argument(call, name)) for name in ("num_workers", "prefetch_factor"))
            if workers and each and workers * each >= MANY_BATCHES:
                yield self.finding(
                    scope.source,
                    call,
                    f"Up to {workers} x {each} = {workers * each} batches wait in the host's memory.",
                    "Lower `prefetch_factor`: a few batches ahead are enough to keep the GPU busy.",
                )

    def _objects(self, scope: Scope) -> Findings:
        for node in scope.nodes:
            if not (isinstance(node, ast.Assign) and dotted_name(node.targets[0]).startswith("self.")):
                continue
            if _many_objects(scope, node.value):
                yield self.finding(
                    scope.source,
                    node,
                    f"`{dotted_name(node.targets[0])}` holds Python objects, which every worker ends up copying as "
                    "it reads them.",
                    "Keep the data in one array or memory-mapped file with the offsets of its entries, or in an Arrow "
                    "data set.",
                )


def _number(node: ast.expr | None) -> int:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 0


def _many_objects(scope: Scope, value: ast.expr) -> bool:
    """Return True if `value` is a list read by `json` or the like, line by line or all at once."""
    if isinstance(value, ast.ListComp):
        inner: ast.AST = value.elt
    elif isinstance(value, ast.Call) and called(value) in ("list", "readlines", "load"):
        inner = value
    else:
        return False
    return any(
        called(node) == "readlines" or _READS_OBJECTS.fullmatch(scope.source.qualified_name(node.func) or "")
        for node in ast.walk(inner)
        if isinstance(node, ast.Call)
    )
