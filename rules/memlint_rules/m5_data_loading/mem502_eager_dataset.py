import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called, is_literal, unpacks
from memlint.source.scopes import Scope, scopes, uses_torch
from memlint.source.text import Source, dotted_name

_LOADER = re.compile(r"(.*_)?(data_?)?loader", re.IGNORECASE)
_READS = re.compile(r"numpy\.load|PIL\.Image\.open|cv2\.imread|imageio\.imread|torch\.load|torchaudio\.load|"
                    r"torchvision\.io\.(read_image|decode_image)|soundfile\.read|librosa\.load")  # fmt: skip
_MAPS: dict[str, tuple[str, int | None]] = {"numpy.load": ("mmap_mode", 1), "torch.load": ("mmap", None)}
"""The argument, and its position if it has one, by which a function memory-maps a file."""


class EagerDataset(SourceRule):
    """A whole data set is read into the host's memory at once.

    Looks in the `__init__` of data sets for `numpy.load` without `mmap_mode` and for lists of everything that a loop
    reads from files, and anywhere for `list(loader)`.

    ## Why it costs memory

    A step needs one batch. Data read in advance stays for the whole run, in the training process and, as soon as they
    write to it, in every worker. `list(loader)` keeps every batch of an epoch, already collated and perhaps pinned.

    ## How the saving is computed

    The possible saving is host memory: the bytes of the data.

    ## Known limits

    The size of the data is not known. Archives (`.npz`) and arrays of objects cannot be mapped and are left out, as are
    arrays that are processed before they are kept. A data set that fits well into memory reads faster this way: then
    suppress the finding.

    - https://numpy.org/doc/stable/reference/generated/numpy.load.html
    - https://docs.pytorch.org/docs/stable/data.html
    """

    code, name, severity = "MEM502", "eager-dataset", Severity.INFO
    example = """\
import numpy as np
import torch
from torch.utils.data import Dataset

class Tokens(Dataset):
    def __init__(self, path):
        self.tokens = np.load(path)

    def __getitem__(self, index):
        return torch.from_numpy(self.tokens[index : index + 1024])
"""
    bad = (
        Case(example, line=7),
        Case("""\
from PIL import Image
from torch.utils.data import Dataset

class Images(Dataset):
    def __init__(self, paths):
        self.images = [Image.open(path).convert("RGB") for path in paths]
""").but(title="Every image, decoded", line=6),
    )
    good = (
        bad[0].but(
            {
                "self.tokens = np.load(path)": 'self.tokens = np.load(path, mmap_mode="r")',
                "self.tokens[index : index + 1024]": "self.tokens[index : index + 1024].copy()",
            }
        ),
        Case("""\
from PIL import Image
from torch.utils.data import Dataset

class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __getitem__(self, index):
        return Image.open(self.paths[index]).convert("RGB")
""").but(title="Each image when it is asked for"),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("loader)", "dataset)", "dataset[") or not uses_torch(source):
            return
        for scope in scopes(source):
            if scope.name.startswith("test"):
                continue
            eager = scope.in_dataset and scope.name == "__init__"
            for node in scope.nodes:
                remark = _whole_epoch(node) or (_read_at_once(scope, node) if eager else None)
                if remark is not None and isinstance(node, ast.expr):
                    yield self.finding(source, node, *remark)


def _whole_epoch(node: ast.AST) -> tuple[str, str] | None:
    if not (called(node) == "list" and isinstance(node, ast.Call) and len(node.args) == 1):
        return None
    name = dotted_name(node.args[0])
    if not _LOADER.fullmatch(name.rpartition(".")[2]):
        return None
    message = f"`list({name})` keeps every batch of an epoch in memory at once."
    return message, f"Iterate over `{name}` in the loop itself, or over `itertools.islice({name}, n)`."


def _read_at_once(scope: Scope, node: ast.AST) -> tuple[str, str] | None:
    """Return message and fix if the `__init__` of a data set reads everything."""
    if isinstance(node, ast.ListComp) and _reads(scope, node.elt):
        message = "Every file is read when the data set is made, and stays in the host's memory."
        return message, "Keep the paths, and read one file in `__getitem__`."
    if (
        isinstance(node, ast.Call)
        and scope.source.qualified_name(node.func) == "numpy.load"
        and _can_be_mapped(scope, node)
    ):
        message = f"`{ast.unparse(node)[:60]}` reads the whole array into the host's memory."
        return message, 'Add `mmap_mode="r"`: then only what a batch reads is loaded.'
    return None


def _reads(scope: Scope, element: ast.expr) -> bool:
    """Return True if creating `element` reads a file. An image that is only opened, or a mapped array, is not read."""
    for part in ast.walk(element):
        name = (scope.source.qualified_name(part.func) or "") if isinstance(part, ast.Call) else ""
        if _READS.fullmatch(name) and not (name == "PIL.Image.open" and part is element) and not _is_mapped(name, part):
            return True
    return False


def _is_mapped(name: str, call: ast.AST) -> bool:
    """Return True if the call of `name` maps the file instead of reading it, or may do so."""
    if not isinstance(call, ast.Call) or name not in _MAPS:
        return False
    mode = argument(call, *_MAPS[name])
    return unpacks(call) or not (mode is None or is_literal(mode, None) or is_literal(mode, False))


def _can_be_mapped(scope: Scope, call: ast.Call) -> bool:
    if _is_mapped("numpy.load", call) or not call.args:
        return False
    if is_literal(argument(call, "allow_pickle", 2), True) or "npz" in ast.unparse(call.args[0]):
        return False
    parent = scope.parents[call]
    names = {dotted_name(target) for target in parent.targets} if isinstance(parent, ast.Assign) else set()
    if not any(name.startswith("self.") for name in names):
        return False
    # An archive is read by the names of its arrays.
    return not any(
        isinstance(node, ast.Subscript)
        and dotted_name(node.value) in names
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        for node in ast.walk(scope.owner or scope.node)
    )
