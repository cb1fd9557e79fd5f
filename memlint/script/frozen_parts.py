"""Find which parts of a model a script has frozen, and whether its training frees them later."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

_MAKES = re.compile("freeze|^__init__$")
"""Names of functions whose loops are none of a training."""
_OF_PARTS = re.compile(r"\b(?:named_)?(?:parameters|modules|children)\(")
"""Methods that give the parts of a model: a loop over them chooses some."""


def frozen_parts(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the outermost modules and the parameters that are frozen.

    Empty for a model that is frozen as a whole: it is not trained, or waits for its turn as a discriminator does.
    """
    return () if _is_frozen(model) else tuple(_frozen_in(model, ""))


def frees_later(trees: Iterable[ast.AST]) -> bool:
    """Return True if a loop in one of these files frees parameters: `if epoch >= 50: model.unfreeze()`."""
    return next(_freeing(trees), None) is not None


def batch_when_freed(trees: Iterable[ast.AST]) -> str:
    """Return the name of the batch size that a loop takes where it frees parameters; empty if it keeps its own."""
    assigned = (node for part in _freeing(trees) for node in ast.walk(part) if isinstance(node, ast.Assign))
    of_batch = (each for each in assigned if "batch" in ast.unparse(each.targets[0]).lower())
    return next((each.value.id for each in of_batch if isinstance(each.value, ast.Name)), "")


def _freeing(trees: Iterable[ast.AST]) -> Iterator[ast.If]:
    """Yield the conditions in loops under which parameters are freed; not where a model is made, or only that done."""
    for tree in trees:
        functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and _MAKES.search(each.name))
        tools = {id(node) for each in functions for node in ast.walk(each)}
        loops = (each for each in ast.walk(tree) if _is_loop(each) and id(each) not in tools)
        under_condition = (part for loop in loops for part in ast.walk(loop) if isinstance(part, ast.If))
        yield from (part for part in under_condition if any(map(_frees, ast.walk(part))))


def _is_loop(node: ast.AST) -> bool:
    """Return True for a loop that is not one over the parts of a model, of which some are chosen."""
    return isinstance(node, ast.While) or (isinstance(node, ast.For) and not _OF_PARTS.search(ast.unparse(node.iter)))


def _is_frozen(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


def _frozen_in(module: nn.Module, prefix: str) -> Iterator[str]:
    for name, parameter in module.named_parameters(prefix.rstrip("."), recurse=False):
        if not parameter.requires_grad:
            yield name
    for name, child in module.named_children():
        if _is_frozen(child):
            yield prefix + name
        else:
            yield from _frozen_in(child, f"{prefix}{name}.")


def _frees(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func).rpartition(".")[2].lower()
        is_set = any(isinstance(each, ast.Constant) and each.value is True for each in node.args)
        return "unfreeze" in name or (name == "requires_grad_" and (is_set or not node.args))
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is True:
        return any(ast.unparse(target).endswith(".requires_grad") for target in node.targets)
    return False
