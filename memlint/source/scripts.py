"""Scripts, recognised from their text without running anything: files that do work when they are run."""

import ast
import re

from memlint.source.calls import called
from memlint.source.scopes import Scope, calls_backward, scopes, uses_torch
from memlint.source.text import Source, dotted_name

_TRAINS = re.compile(r"(train|fit|finetune|fine_tune)(_\w+)?")
_OPTIMIZER = re.compile(r"(.*[._])?(optim|optimizer|opt|scaler)", re.IGNORECASE)


def training_at_import(source: Source) -> ast.Call | None:
    """Return the first call outside of functions and of `if __name__ == "__main__":` that trains.

    Such a call is a `backward` or an optimizer's step in a loop, a function that makes one, an imported function named
    after training, or the `fit`, `train` or `run` of a `Trainer`. In a file without a model it is also the parsing of a
    command line.
    """
    if not (uses_torch(source) or any(name.endswith("Trainer") for name in source.imports.values())):
        return None
    outside = scopes(source)[0]
    trainers, training = _trainers(outside), _training_functions(source)
    for call in outside.calls:
        if _is_guarded(outside, call):
            continue
        name = dotted_name(call.func)
        looped = _differentiates(call) and bool(outside.loops(call))
        imported = name in source.imports and _TRAINS.fullmatch(name)
        begun = called(call) in ("fit", "train", "run") and name.rpartition(".")[0] in trainers
        parsed = called(call) in ("parse_args", "parse_known_args") and not _defines_model(source)
        if looped or imported or begun or parsed or name in training:
            return call
    return None


def is_script(source: Source) -> bool:
    """Return True if the file defines no model and has something to run: a part for `__main__`, or training."""
    if _defines_model(source):
        return False
    return any(isinstance(node, ast.If) and _asks_for_main(node) for node in source.tree.body) or (
        training_at_import(source) is not None
    )


def only_runs(source: Source) -> bool:
    """Return True for a script, for a file that trains at import, and for statements alone that make something."""
    if is_script(source) or training_at_import(source) is not None:
        return True
    defined = any(isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) for node in source.tree.body)
    made = any(isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) for node in source.tree.body)
    return made and not defined


def _differentiates(call: ast.Call) -> bool:
    if called(call) == "step" and isinstance(call.func, ast.Attribute):
        return _OPTIMIZER.fullmatch(dotted_name(call.func.value)) is not None
    return called(call).endswith("backward")


def _training_functions(source: Source) -> set[str]:
    """Return the names of the file's functions that train, or call one that does."""
    functions = {
        scope.name: (scope.calls, calls_backward(scope.node) or any(map(_differentiates, scope.calls)))
        for scope in scopes(source)[1:]
        if scope.owner is None
    }
    training = {name for name, (_calls, differentiates) in functions.items() if differentiates}
    more = set(training)
    while more:
        callers = {name for name, (calls, _) in functions.items() if any(dotted_name(c.func) in more for c in calls)}
        more = callers - training
        training |= more
    return training


def _trainers(outside: Scope) -> set[str]:
    """Return the names that hold instances of classes called `...Trainer`."""
    return {
        dotted_name(target)
        for node in outside.nodes
        if isinstance(node, ast.Assign) and called(node.value).endswith("Trainer")
        for target in node.targets
    } - {""}


def _is_guarded(outside: Scope, node: ast.AST) -> bool:
    return any(isinstance(parent, ast.If) and _asks_for_main(parent) for parent in outside.around(node))


def _asks_for_main(block: ast.If) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(block.test))


def _defines_model(source: Source) -> bool:
    return any(scope.in_module for scope in scopes(source))
