import ast
import re
from math import prod

from memlint.lint.rule import Case, Finding, Findings, Severity, SourceRule
from memlint.source.calls import argument, before, called, chain, constant_shape
from memlint.source.scopes import Scope, calls, scopes, uses_torch
from memlint.source.text import Source, dotted_name

SMALL_NUMEL = 2**27
"""Maximum number of elements of literal data that is not worth reporting: 512 MiB of float32."""

_MOVES = frozenset({"to", "cuda", "float", "long", "half", "contiguous", "pin_memory", "requires_grad_", "detach"})
_DEVICE = re.compile(
    r"""(f?['"])cuda.*|torch\.device\(f?['"]cuda.*|((self|args|opt|cfg|config|params)\.)?_?(device|dev|gpu|rank|local_rank)"""
)
_MODEL = re.compile(r"model|net|encoder|vae|extract|detect|process|tokeniz|embedder|layer|module", re.IGNORECASE)
_TENSOR_DATASET = re.compile(r".*data\.TensorDataset")
_COLLATE = re.compile(r"_*(.*_)?collate(_.*)?", re.IGNORECASE)
_WORKERS = re.compile(r"num_workers(?!\s*=\s*0\b)")


class DatasetOnGpu(SourceRule):
    """A whole data set is kept on the GPU, or worker processes use it.

    Looks for tensors that a `Dataset` moves to the GPU when it is created, for a `TensorDataset` of tensors on the GPU,
    and for moves in `__getitem__` or in a collate function in files that use `num_workers`.

    ## Why it costs memory

    A step needs one batch. Data moved in advance is on the GPU from the first step to the last. A worker process that
    touches the GPU creates a CUDA context of its own, of some hundreds of MiB, and its batches are on the GPU while
    they wait in the queue.

    ## How the saving is computed

    The possible saving is the bytes of the data set minus those of a batch.

    ## Known limits

    The size of the data is not known, unless a factory such as `torch.zeros` gets its shape: below 512 MiB of float32
    it is left out. If a small data set is on the GPU for speed, suppress the finding. Devices are recognised by the
    usual names.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers
    - https://docs.pytorch.org/docs/stable/notes/multiprocessing.html#cuda-in-multiprocessing
    """

    code, name, severity = "MEM501", "dataset-on-gpu", Severity.WARNING
    example = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

def loader(images, labels):
    return DataLoader(TensorDataset(images.cuda(), labels.cuda()), batch_size=64)
"""
    bad = (
        Case(example, line=5),
        Case("""\
import torch
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __init__(self, paths, device):
        self.paths, self.device = paths, device

    def __getitem__(self, index):
        return torch.load(self.paths[index]).to(self.device)

def loader(paths):
    return DataLoader(Images(paths, "cuda"), batch_size=64, num_workers=8)
""").but(title="Every worker uses the GPU", line=9),
    )
    good = (
        Case("""\
import torch
from torch.utils.data import DataLoader, TensorDataset

def batches(images, labels):
    for x, y in DataLoader(TensorDataset(images, labels), batch_size=64, pin_memory=True):
        yield x.cuda(non_blocking=True), y.cuda(non_blocking=True)
"""),
        Case("""\
import torch
from torch.utils.data import Dataset

class Features(Dataset):
    def __init__(self, model, paths, device):
        self.model = model.to(device)
        self.paths = paths
""").but(title="A model that makes the features"),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("tensordataset", "dataset)", "dataset[", "collate") or not uses_torch(source):
            return
        workers = _WORKERS.search(source.text) is not None
        for scope, call in calls(source, _TENSOR_DATASET):
            yield from self._wrapped(scope, call)
        for scope in scopes(source):
            if scope.in_dataset and scope.name == "__init__":
                yield from self._moved(scope, "The data set keeps `{}` on the GPU for as long as it is used.")
            elif workers and ((scope.in_dataset and scope.name == "__getitem__") or _COLLATE.fullmatch(scope.name)):
                yield from self._moved(
                    scope, "`{}` runs in the worker processes, so each of them makes a CUDA context of its own."
                )

    def _wrapped(self, scope: Scope, call: ast.Call) -> Findings:
        """Check the arguments of a TensorDataset."""
        moved = next((each for value in call.args if (each := _moved_value(scope, value)) is not None), None)
        if moved is not None:
            yield self._report(
                scope,
                call,
                f"The whole data set is on the GPU: `{ast.unparse(moved)[:60]}` moves it there at once.",
            )

    def _moved(self, scope: Scope, message: str) -> Findings:
        seen: set[ast.expr] = set()
        for call in scope.calls:
            if call in seen or not _moves(call) or _is_model(scope, call):
                continue
            seen.update(chain(call, _MOVES))
            yield self._report(scope, call, message.format(ast.unparse(call)[:60]))

    def _report(self, scope: Scope, call: ast.Call, message: str) -> Finding:
        return self.finding(
            scope.source,
            call,
            message,
            "Keep the data on the host, give the DataLoader `pin_memory=True`, and move each batch in the loop with "
            "`.to(device, non_blocking=True)`.",
        )


def _moves(call: ast.Call) -> bool:
    """Return True for `.cuda()` or `.to(device)`."""
    if not isinstance(call.func, ast.Attribute) or called(call) not in ("cuda", "to"):
        return False
    device = argument(call, "device", 0)
    return called(call) == "cuda" or (device is not None and _DEVICE.fullmatch(ast.unparse(device)) is not None)


def _is_model(scope: Scope, call: ast.Call) -> bool:
    moved = before(call, _MOVES)
    name = dotted_name(moved) or called(moved)
    if isinstance(moved, ast.Call) and name[:1].isupper():
        return True
    parent = scope.parents[call]
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    return any(_MODEL.search(text) for text in (name, *map(dotted_name, targets)))


def _moved_value(scope: Scope, value: ast.expr) -> ast.expr | None:
    """Return the expression that moves `value`, or the variable that it is, to the GPU."""
    name = dotted_name(value)
    made = [
        node.value
        for node in scope.nodes
        if name and isinstance(node, ast.Assign) and any(dotted_name(target) == name for target in node.targets)
    ]
    value = made[-1] if made else value
    if not any(_moves(call) for call in chain(value, _MOVES)):
        return None
    data = before(value, _MOVES)
    shape = constant_shape(data) if isinstance(data, ast.Call) else None
    written_out = isinstance(data, ast.Call) and bool(data.args) and isinstance(data.args[0], ast.List)
    return None if written_out or (shape is not None and prod(shape) < SMALL_NUMEL) else value
