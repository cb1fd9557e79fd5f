"""Environment variables that a program sets for PyTorch's allocator."""

import ast

from memlint.source.calls import called
from memlint.source.text import Source

ALLOCATOR_SETTINGS = frozenset({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"})


def variable_set(source: Source, node: ast.AST) -> tuple[str, str]:
    """Return the environment variable that `node` sets and its new text; empty if it sets none."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        held, key, value = node.targets[0].value, node.targets[0].slice, node.value
    elif isinstance(node, ast.Call) and called(node) == "setdefault" and len(node.args) == 2:
        held, key, value = getattr(node.func, "value", node.func), *node.args
    else:
        return "", ""
    if source.qualified_name(held) != "os.environ" or not isinstance(key, ast.Constant):
        return "", ""
    return str(key.value), str(value.value) if isinstance(value, ast.Constant) else ""
