"""PyTorch's private names stand in `memlint/accelerator/private/`: no other module of memlint or its rules has one."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRIVATE = ROOT / "memlint/accelerator/private"
GONE = re.compile(r"torch\.(_six\b|_overrides\b|_utils\._accumulate\b|nn\.modules\.linear\._LinearWithBias\b)")
OPERATORS = re.compile(r"(aten|torch\.ops\b.*)")
"""Owners of operators, whose names are public whatever they begin with."""
OF_OTHERS = frozenset(
    """
    _asdict _fields _make _replace _getframe _current_frames _exit _Environ _Popen _start_method _after_fork _target
    _shutdown _TemporaryFileCloser _rmtree_unsafe _rmtree_impl _use_fd_functions _initializing

    _option_string_actions _ActionsContainer _handle_conflict_error _handle_conflict_resolve

    _verify_loop_configurations _attn_implementation _name_or_path _check_and_adjust_attn_implementation _TYPES _find_shared_tensors
    _has_ops _batched_nms_vanilla _file_openers _download _process _validate_multiple_optimizers_support
    _COCO_CATEGORIES _supports_flash_attn _supports_flash_attn_2 _get_scoped_trace_graph _built_with_cuda _lib _row _rowptr _rowcount _colptr _colcount _csr2csc _csc2csr

    _tables_of_used
    """.split()  # noqa: SIM905
)
"""Names of Python, of other packages (Lightning, transformers, fvcore, safetensors, xFormers, torch_sparse, NumPy,
torchvision, torch_geometric), and of memlint."""
IN_TEXTS = frozenset({"_record_memory_history", "_indices"})
"""Words that are looked for in the text of programs, and in names of inputs."""


def is_private(name: str) -> bool:
    return re.match(r"_[A-Za-z]", name) is not None


@cache
def names_of_private() -> frozenset[str]:
    """Private names that the module writes."""
    names = set[str]()
    for file in PRIVATE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
    return frozenset(filter(is_private, names))


def defined_in(tree: ast.AST) -> set[str]:
    """Names that a module defines itself, as functions, classes or attributes of its own objects."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def uses(text: str) -> Iterator[str]:
    """PyTorch's private names in a module's text: line and name."""
    tree = ast.parse(text)
    own = defined_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [name for alias in node.names if _is_private_path(name := prefix + alias.name)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)] if is_private(node.attr) and not _is_known(node, own) else []
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_found = node.value in names_of_private() - IN_TEXTS or _is_private_path(node.value)
            names = [node.value] if is_found else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
            name = getattr(node.args[1], "value", None)
            names = [name] if isinstance(name, str) and is_private(name) and name not in own | OF_OTHERS else []
        else:
            continue
        yield from (f"{node.lineno}: {name}" for name in names)


def _is_private_path(name: str) -> bool:
    is_gone = GONE.match(name)  # programs that still ask for it are served
    return not is_gone and re.fullmatch(r"torch(\.\w+)*\._[A-Za-z][\w.]*", name) is not None


def _is_known(node: ast.Attribute, own: set[str]) -> bool:
    owner = ast.unparse(node.value)
    if node.attr in OF_OTHERS or OPERATORS.fullmatch(owner):
        return True
    return not owner.startswith("torch.") and (owner in ("self", "cls", "super()") or node.attr in own)


def modules() -> list[Path]:
    files = [file for folder in ("memlint", "rules", "libraries") for file in (ROOT / folder).rglob("*.py")]
    return [file for file in files if PRIVATE not in file.parents]


def test_no_module_but_one_has_a_private_name_of_pytorch():
    found = {
        str(file.relative_to(ROOT)): names for file in modules() if (names := [*uses(file.read_text(encoding="utf-8"))])
    }
    assert not found


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from torch.utils._pytree import tree_map", "torch.utils._pytree.tree_map"),
        ("from torch.nn.modules.conv import _ConvNd", "torch.nn.modules.conv._ConvNd"),
        ("from torch import _C", "torch._C"),
        ("import torch._dynamo", "torch._dynamo"),
        ("import torch\ntorch._C.DispatchKey", "torch._C"),
        ("import torch as t\nt._C.DispatchKey", "t._C"),
        ("def late():\n    from torch._ops import OpOverload", "torch._ops.OpOverload"),
        ("def hooks(module):\n    return module._forward_hooks", "module._forward_hooks"),
        ("def schema(op):\n    return op._schema", "op._schema"),
        ("patches = [(owner, '_reduce_ex_internal', function)]", "_reduce_ex_internal"),
        ("getattr(torch.library, '_any_other')", "_any_other"),
        ("import_module('torch._inductor.config')", "torch._inductor.config"),
    ],
)
def test_a_private_name_of_pytorch_is_found(line, name):
    assert [use.partition(": ")[2] for use in uses(line)] == [name]


@pytest.mark.parametrize(
    "line",
    [
        "aten._softmax.default",
        "torch.ops.aten._to_copy.default",
        "class Own:\n    def __init__(self):\n        self._text = ''\n\ndef read(own):\n    return own._text",
        "from memlint.accelerator.private import tree_map",
        "sys._getframe(1)",
        "import torch.__future__",
    ],
)
def test_operators_and_names_of_others_are_not(line):
    assert not [*uses(line)]
