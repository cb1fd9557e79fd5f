import ast
import re

from memlint.lint.edits import unsafe, with_argument
from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called, unpacks
from memlint.source.scopes import Scope, calls, is_test, position
from memlint.source.text import Source, dotted_name

_LOAD = re.compile(r"torch\.(serialization\.)?load")
_WORTH_PARSING = re.compile(r"torch\.(serialization\.)?load\(|import load\b")
_DEVICE = re.compile(r"cuda|device", re.IGNORECASE)
_CHECKPOINT = re.compile(r"(.*_)?(ckpt|checkpoint|state_dict|weights)", re.IGNORECASE)
_SMALL = re.compile(r"sched|scaler|sampler|rng", re.IGNORECASE)
_IN_MEMORY = re.compile(r"buf|stream|bytes", re.IGNORECASE)


class TorchLoadOnGpu(SourceRule):
    """A checkpoint is loaded without `map_location`, so it goes to the GPU it was saved from.

    Looks for `torch.load` without `map_location` whose result goes to `load_state_dict`, or is named like a checkpoint.
    A file gets one finding, at its first such load.

    ## Why it costs memory

    `torch.load` moves every tensor to the device it was saved from. A checkpoint written during training on a GPU is
    thus on the GPU a second time, including the optimizer's state if that was saved, until the last reference to it is
    released. If every process of a machine loads it, all copies land on the GPU of the process that wrote it.

    ## How the saving is computed

    The possible saving is the bytes of the checkpoint, which with Adam's state are three times those of the parameters.

    ## Known limits

    The device that the file was saved from is not known: a checkpoint of CPU tensors stays on the CPU. Files that
    mention no device are left out, as are tests, schedulers, and checkpoints read back from memory. `mmap=True` needs a
    path, not an open file.

    - https://docs.pytorch.org/docs/stable/generated/torch.load.html
    """

    code, name, severity = "MEM506", "torch-load-on-gpu", Severity.WARNING
    example = """\
import torch

def resume(model, optimizer, path):
    model.cuda()
    checkpoint = torch.load(path)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
"""
    bad = (
        Case(example, line=5),
        Case("""\
import torch

def resume(model, ema, path):
    model.load_state_dict(torch.load(path)["model"])
    ema.load_state_dict(torch.load(path)["ema"])
    return model.cuda(), ema.cuda()
""").but(title="Each load of the file", line=4),
    )
    good = (
        bad[0].but({"= torch.load(path)": '= torch.load(path, map_location="cpu", mmap=True)'}),
        Case("""\
import torch

def tokens(path, device):
    return torch.load(path).to(device)
""").but(title="No checkpoint"),
    )

    def check(self, source: Source) -> Findings:
        if (
            "load" not in source.words
            or is_test(source)
            or not _WORTH_PARSING.search(source.text)
            or not _DEVICE.search(source.text)
        ):
            return
        loads = [
            call
            for scope, call in calls(source, _LOAD, tests=False)
            if not unpacks(call) and argument(call, "map_location", 1) is None and not _from_memory(scope, call)
            if _is_checkpoint(scope, call)
        ]
        if loads:
            first, *others = sorted(loads, key=position)
            lines = f" So do {len(others)} more in this file, the next in line {others[0].lineno}." if others else ""
            edits = [edit for call in loads for edit in with_argument(source, call, 'map_location="cpu"')]
            yield self.finding(
                source,
                first,
                f"`{ast.unparse(first)[:60]}` puts every tensor where it was saved from: a checkpoint written "
                f"on a GPU is on the GPU a second time beside the model.{lines}",
                'Add `map_location="cpu"`, and `mmap=True` where it is a path: `load_state_dict` copies to the '
                "model's device.",
                correction=unsafe(tuple(edits)),
            )


def _from_memory(scope: Scope, call: ast.Call) -> bool:
    if not call.args or _IN_MEMORY.search(ast.unparse(call.args[0])) is not None:
        return True
    name = dotted_name(call.args[0])
    return any(
        isinstance(node, ast.Assign) and called(node.value) == "BytesIO" and dotted_name(node.targets[0]) == name
        for node in scope.nodes
    )


def _is_checkpoint(scope: Scope, call: ast.Call) -> bool:
    """Return True if it goes to `load_state_dict` in this function, or gets the name of a checkpoint."""
    names: set[str] = set()
    for parent in scope.around(call):
        if isinstance(parent, ast.Call) and called(parent) == "load_state_dict":
            return _SMALL.search(ast.unparse(parent.func)) is None
        if isinstance(parent, ast.Assign):
            names = {dotted_name(target) for target in parent.targets} - {""}
    if any(_CHECKPOINT.fullmatch(name.rpartition(".")[2]) for name in names):
        return True
    return any(
        called(other) == "load_state_dict"
        and any(dotted_name(part) in names for part in ast.walk(other))
        and not _SMALL.search(ast.unparse(other.func))
        for other in scope.calls
    )
