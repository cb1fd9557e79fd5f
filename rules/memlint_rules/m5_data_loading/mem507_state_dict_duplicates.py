import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, called, is_literal, unpacks
from memlint.source.scopes import Scope, calls_backward, is_test, position, scopes, uses_torch
from memlint.source.text import Source, dotted_name, named

_WORTH_PARSING = re.compile(r"load_state_dict|FullStateDictConfig|full_state_dict|(deepcopy|clone)\(.*state_dict")
_TRAINS = re.compile(r"_*(train|fit|run_training|training)(_.*)?|train_.*|.*_train")
_LOADS = frozenset({"torch.load", "torch.serialization.load", "safetensors.torch.load_file"})
_COPIES = frozenset({"deepcopy", "clone"})
_GATHERS = frozenset({"FullStateDictConfig", "StateDictOptions"})
_DEVICE = re.compile(r"cuda|device", re.IGNORECASE)
_LEAVES = re.compile(r"\.cpu\(|\.to\(['\"]cpu|device\(['\"]cpu")


class StateDictDuplicates(SourceRule):
    """A state dict keeps a second copy of the weights.

    Looks for three things: a checkpoint that is loaded into a model and stays bound to a name during the training that
    follows in the same function; snapshots of a `state_dict` by `clone` or `deepcopy` that are not moved to the host;
    and full state dicts of sharded models that are gathered without `offload_to_cpu` or `cpu_offload`.

    ## Why it costs memory

    `load_state_dict` copies. The loaded checkpoint stays in memory, on the device that it was loaded to, until its last
    name is deleted. A clone of a state dict is a second copy of the weights beside the first, and a full state dict is
    the whole model on every GPU that gathers it.

    ## How the saving is computed

    The possible saving is the bytes of the weights, plus twice as many if the file holds Adam's state.

    ## Known limits

    Names are followed within one function, tests are left out, and snapshots are not looked for in files that mention
    no device. Only `map_location` tells whether a file was loaded to the GPU or to the host.

    - https://docs.pytorch.org/docs/stable/generated/torch.load.html
    - https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
    """

    code, name, severity = "MEM507", "state-dict-duplicates", Severity.INFO
    example = """\
import torch

def main(model, loader, optimizer, path):
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    for x in loader:
        model(x).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
    bad = (
        Case(example, line=4),
        Case("""\
import copy
import torch

def fit(model, epochs, device):
    model.to(device)
    for epoch in range(epochs):
        if train_epoch(model):
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
""").but(title="The best weights so far, kept on the GPU", line=8),
        Case(example).but(
            {
                "def main(model, loader, optimizer, path):": "def main(model, loader, optimizer, path, resume, gpu):",
                '    checkpoint = torch.load(path, map_location="cpu")': """\
    if resume == "cpu":
        checkpoint = torch.load(path, map_location="cpu")
    elif gpu is None:
        checkpoint = torch.load(path)
    else:
        checkpoint = torch.load(path, map_location=gpu)""",
            },
            title="One finding for all branches",
            line=7,
        ),
    )
    good = (
        bad[0].but({"for x in loader:": "del checkpoint\n    for x in loader:"}),
        bad[1].but(
            {
                "import copy\n": "",
                "copy.deepcopy(model.state_dict())": (
                    '{name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}'
                ),
            },
            title="The best weights so far, kept on the host",
        ),
    )

    def check(self, source: Source) -> Findings:
        if not source.mentions("state_dict", "statedictconfig") or is_test(source):
            return
        if not _WORTH_PARSING.search(source.text) or not uses_torch(source):
            return
        copies = not _COPIES.isdisjoint(source.words) and _DEVICE.search(source.text) is not None
        for scope in scopes(source):
            if scope.name.startswith("test"):
                continue
            if "load_state_dict" in source.words:
                yield from self._loaded(scope)
            if copies:
                yield from self._copied(scope)
            if not _GATHERS.isdisjoint(source.words):
                yield from self._gathered(scope)

    def _loaded(self, scope: Scope) -> Findings:
        """Yield one finding for each name, however many branches bind it: at a binding that is not on the host."""
        loaded: dict[str, tuple[bool, ast.Assign, ast.expr | ast.stmt]] = {}
        for node in scope.nodes:
            if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1):
                continue
            name = dotted_name(node.targets[0])
            if not name or scope.source.qualified_name(node.value.func) not in _LOADS:
                continue
            training = _training_after_loading(scope, node, name)
            on_host = is_literal(argument(node.value, "map_location", 1), "cpu")
            if training is not None and (name not in loaded or (loaded[name][0] and not on_host)):
                loaded[name] = on_host, node, training
        for name, (on_host, node, training) in loaded.items():
            where = "on the host" if on_host else "where it was loaded to"
            yield self.finding(
                scope.source,
                node,
                f"`{name}` keeps everything that was loaded {where} through the training on line "
                f"{training.lineno}, although the model has its own copy.",
                f"Write `del {name}` once all of it is loaded, or load it in a function of its own.",
            )

    def _copied(self, scope: Scope) -> Findings:
        for node in scope.nodes:
            if isinstance(node, ast.DictComp):
                gathers = ".state_dict()" in ast.unparse(node.generators[0].iter)
                copies = gathers and ".clone(" in ast.unparse(node.value)
            else:
                copies = called(node) == "deepcopy" and _is_state_dict(node)
            if copies and isinstance(node, ast.expr) and not _LEAVES.search(ast.unparse(node)):
                yield self.finding(
                    scope.source,
                    node,
                    f"`{ast.unparse(node)[:60]}` is a second copy of the weights, on the same device.",
                    'Keep it on the host, `{name: value.to("cpu", copy=True) for name, value in '
                    "model.state_dict().items()}`, or save it to a file.",
                )

    def _gathered(self, scope: Scope) -> Findings:
        for call in scope.calls:
            last = called(call)
            if last == "FullStateDictConfig":
                whole = any(called(other).endswith(("state_dict", "state_dict_type")) for other in scope.calls)
                option = "offload_to_cpu"
            elif last == "StateDictOptions":
                taken = any(called(parent).startswith("get_") for parent in scope.around(call))
                whole, option = taken and is_literal(argument(call, "full_state_dict"), True), "cpu_offload"
            else:
                continue
            if (
                whole
                and not unpacks(call)
                and (argument(call, option) is None or is_literal(argument(call, option), False))
            ):
                yield self.finding(
                    scope.source,
                    call,
                    "The full state dict is gathered on the GPU, where it takes the bytes of the whole model.",
                    f"Add `{option}=True`"
                    + (
                        " and `rank0_only=True`." if last == "FullStateDictConfig" else ", or save sharded state dicts."
                    ),
                )


def _is_state_dict(node: ast.AST) -> bool:
    arguments = node.args if isinstance(node, ast.Call) else []
    return bool(arguments) and called(arguments[0]) == "state_dict"


def _training_after_loading(scope: Scope, node: ast.Assign, name: str) -> ast.expr | ast.stmt | None:
    """Return the statement that trains after the last `load_state_dict` of `name`; None if `name` is deleted first."""
    loads = [
        call
        for call in scope.calls
        if called(call) == "load_state_dict"
        and position(call) > position(node)
        and any(dotted_name(part) == name for argument in call.args for part in ast.walk(argument))
    ]
    if not loads or any(is_literal(argument(call, "assign"), True) for call in loads):
        return None
    for other in named(scope.nodes, name):
        if not isinstance(other.ctx, ast.Load) and position(other) > position(loads[0]):
            return None
    for each in scope.nodes:
        if isinstance(each, ast.expr | ast.stmt) and _trains(each) and position(each) > position(loads[-1]):
            return each
    return None


def _trains(node: ast.AST) -> bool:
    """Return True for a loop that differentiates, or a call with arguments of something named like a training."""
    if isinstance(node, ast.For | ast.While):
        return calls_backward(node)
    return isinstance(node, ast.Call) and _TRAINS.fullmatch(called(node)) is not None and bool(node.args)
