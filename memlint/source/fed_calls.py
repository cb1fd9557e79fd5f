"""Calls of a model in the loop that trains it: what it is fed there, and which of its methods are called.

`logits, loss = model(X, Y)` feeds the second parameter of `forward`, optional or not. Where the loop calls
`model.decode(model.encode(x), y)` and no `forward`, the methods together are the step.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from memlint.source.assignments import assigned_part, ends_before, name_assignments
from memlint.source.calls import called, last_name, unpacks
from memlint.source.scopes import Scope, calls_backward, scopes
from memlint.source.text import Source, dotted_name

_USUAL = ("model", "net", "network", "self.model", "self.net", "self.network")
"""Names of the model in a function that is given it."""
_TRANSPARENT = ("module", "_orig_mod", "forward")
"""Attributes by which the model itself is called all the same: PyTorch's wrappers, and what `__call__` calls."""
_STEPS = frozenset({"training_step", "train_step", "compute_loss", "train_one_step", "training_losses"})
"""Names of functions that return the loss of one batch to a loop elsewhere."""
_OF_EVERY_MODULE = re.compile(
    r"train|eval|to|cuda|cpu|float|half|double|bfloat16|type|apply|compile|zero_grad|requires_grad_|no_sync|join"
    r"|(named_)?(parameters|buffers|modules|children)|(load_)?state_dict|(save|load|from|push)_\w+|get_\w+|set_\w+"
    r"|register_\w+|add_module|share_memory|configure_\w+|gradient_checkpointing_\w+|backward|step|log(_\w+)?|update\w*"
)
"""Methods that belong to modules, engines and trainers, and compute no loss."""
_NO_GRAD = re.compile(r"no_grad|inference_mode|set_grad_enabled\(False\)")
_DTYPES = {"long": "int64", "int": "int32", "float": "float32", "bool": "bool"}
_FLAT = re.compile(r"\.(reshape|view)\(-1\)(\.\w+\([^()]*\))*$|\.flatten\(\)$")
"""Ends of an expression that has one dimension."""
_COLUMN = re.compile(r"\.(reshape|view)\(-1, 1\)(\.\w+\([^()]*\))*$")
"""Ends of an expression that has two dimensions, of which the second has one entry."""


@dataclass(frozen=True, slots=True)
class FedInput:
    """An argument of a call of the model, as far as its expression says what it is."""

    name: str
    """The last name in the expression: `images` of `batch["images"].to(device)`."""
    dtype: str = ""
    """The dtype that the expression has for certain; empty if it does not say."""
    is_flat: bool = False
    """True if it has one dimension."""
    is_column: bool = False
    """True if it has a second dimension, of size 1."""


@dataclass(frozen=True, slots=True)
class FedCall:
    """The call of a model in its training loop."""

    path: str
    line: int
    inputs: Mapping[str, FedInput] = field(hash=False)
    """By parameter; the keys of positional ones are digits. Those that are `None` are left out."""
    methods: tuple[str, ...] = ()
    """The methods that are called in place of `forward`, in order."""
    code: str = ""
    """A function `forward` that calls these methods as the loop does; its parameters are named after what it feeds."""


def fed_call(sources: Iterable[Source], makers: Collection[str]) -> FedCall | None:
    """Return the call of the model that one of `makers` gives, in the first of `sources` that trains it.

    The names of a class and of functions that return it are `makers`. None if no call is seen, or what it is fed is not
    written there, as in `model(**batch)`.
    """
    for source in sources:
        names = _names(source, makers)
        for scope in _training(source):
            calls = [call for call in scope.calls if _holder(call.func) in names and not _without_grad(call, scope)]
            if any(map(unpacks, calls)):
                return None
            if calls:
                call = max(calls, key=lambda each: len(each.args) + len(each.keywords))
                return FedCall(source.path, call.lineno, dict(_inputs(call, scope)))
            if (composed := _composed(scope, names)) is not None:
                return composed
    return None


def _names(source: Source, makers: Collection[str]) -> frozenset[str]:
    """Return the names of the model in a file: those that are given what a maker returns, and the usual ones."""
    names = {*_USUAL, *(maker.lower() for maker in makers if not maker.islower())}  # a function is no model
    for statement in source.index.of(ast.Assign):
        value = statement.value
        made = (each for each in ast.walk(value) if isinstance(each, ast.Call) and last_name(each.func) in makers)
        is_wrapped = isinstance(value, ast.Call) and any(dotted_name(each) in names for each in value.args)
        if next(made, None) is not None or (is_wrapped and not _is_result(value)):
            names |= {dotted_name(target) for target in statement.targets} - {""}
    return frozenset(names)


def _is_result(value: ast.expr) -> bool:
    """Return True unless the called function may wrap a model, as classes, `compile` and `prepare` do."""
    name = called(value)
    return not (name[:1].isupper() or name.startswith(("compile", "prepare", "wrap", "setup", "script")))


def _training(source: Source) -> Iterator[Scope]:
    """Yield the functions that take a step, then those that compute a loss for one, and that these call."""
    own = [scope for scope in scopes(source) if not (scope.evaluates or _is_of_layer(scope))]
    loops = [scope for scope in own if any(called(call).endswith("backward") for call in scope.calls)]
    yield from loops
    helpers = {called(call) for scope in loops for call in scope.calls}
    yield from (scope for scope in own if scope not in loops and scope.name in helpers | _STEPS)


def _is_of_layer(scope: Scope) -> bool:
    """Return True for methods of a module that is no training of a whole model."""
    return scope.in_module and scope.name not in _STEPS and not calls_backward(scope.node)


def _holder(function: ast.expr) -> str:
    """Return the name of what is called, without what changes nothing: `model` for `model.module.forward`."""
    name = dotted_name(function)
    while name.rpartition(".")[2] in _TRANSPARENT:
        name = name.rpartition(".")[0]
    return name


def _without_grad(node: ast.AST, scope: Scope) -> bool:
    blocks = (each for each in scope.around(node) if isinstance(each, ast.With))
    return any(_NO_GRAD.search(ast.unparse(item.context_expr)) for block in blocks for item in block.items)


def _inputs(call: ast.Call, scope: Scope) -> Iterator[tuple[str, FedInput]]:
    for place, value in enumerate(call.args):
        if not _is_none(value):
            yield str(place), _fed(value, scope)
    for keyword in call.keywords:
        if keyword.arg and not _is_none(keyword.value):
            yield keyword.arg, _fed(keyword.value, scope)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _fed(value: ast.expr, scope: Scope) -> FedInput:
    text = ast.unparse(_assigned(value, scope))
    dtype = next((_DTYPES[each] for each in re.findall(r"\.(\w+)\(\)", text)[::-1] if each in _DTYPES), "")
    return FedInput(_short(value), dtype, _FLAT.search(text) is not None, _COLUMN.search(text) is not None)


def _assigned(value: ast.expr, scope: Scope) -> ast.expr:
    """Return what a name was last assigned before it is used, or else the expression itself."""
    if not isinstance(value, ast.Name):
        return value
    known = (each for each in reversed(name_assignments(scope).get(value.id, ())) if ends_before(each, value))
    parts = (assigned_part(each, value.id) for each in known)
    return next(filter(None, parts), value)


def _short(value: ast.expr) -> str:
    """Return the last name of an expression: `images` for `batch["images"][:, 0].to(device)`; empty without one."""
    while True:
        match value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch" | "F" | "np")), args=[inner, *_]):
                value = inner
            case ast.Call(func=ast.Attribute(value=inner)) | ast.Starred(value=inner):
                value = inner
            case ast.Subscript(value=inner, slice=key):
                if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value.isidentifier():
                    return key.value
                value = inner
            case ast.Attribute(attr=name) | ast.Name(id=name):
                return name
            case _:
                return ""


# --- methods in place of forward


def _composed(scope: Scope, names: Collection[str]) -> FedCall | None:
    """Return the methods of the model from which the loss is computed, as one function; None if there are none."""
    needed = _leading_to_loss(scope)
    statements = []
    for node in scope.nodes:
        is_one = isinstance(node, ast.Assign | ast.Return | ast.Expr) and node.value is not None
        if is_one and any(_method(each, names) for each in ast.walk(node)) and not _without_grad(node, scope):
            assert isinstance(node, ast.Assign | ast.Return | ast.Expr), "it is one"
            targets = _bound(node)
            if (
                isinstance(node, ast.Return)
                or any(called(each).endswith("backward") for each in ast.walk(node))
                or targets & needed
            ):
                statements.append(node)
    methods = (each for node in statements for each in ast.walk(node) if _method(each, names))
    if not statements or any(isinstance(each, ast.Call) and unpacks(each) for each in methods):
        return None
    return _function(statements, names, scope)


def _method(node: ast.AST, names: Collection[str]) -> str:
    """Return the method of the model that is called; empty if it is another call."""
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or _holder(function.value) not in names:
        return ""
    return "" if _OF_EVERY_MODULE.fullmatch(function.attr) else function.attr


def _bound(node: ast.AST) -> set[str]:
    """Return the names that a statement assigns."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _leading_to_loss(scope: Scope) -> set[str]:
    """Return the names of which the loss is computed, and those of which these are."""
    ends: list[ast.AST] = [call for call in scope.calls if called(call).endswith("backward")]
    ends = ends or [node for node in scope.nodes if isinstance(node, ast.Return)]
    needed = {each.id for end in ends for each in ast.walk(end) if isinstance(each, ast.Name)}
    for node in reversed([each for each in scope.nodes if isinstance(each, ast.Assign | ast.AugAssign)]):
        if _bound(node) & needed:
            needed |= {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
    return needed


class _Composing(ast.NodeTransformer):
    """Makes calls of the model's methods calls of `self`, and what else they are given parameters."""

    def __init__(self, names: Collection[str], scope: Scope) -> None:
        self._names, self._scope = names, scope
        self.outputs: set[str] = set()
        self.inputs: dict[str, FedInput] = {}
        self._of_text: dict[str, str] = {}
        self.methods: list[str] = []

    def visit_Call(self, node: ast.Call) -> ast.expr:
        method = _method(node, self._names)
        if not method:
            self.generic_visit(node)
            return node
        self.methods.append(method)
        args = [self._argument(each) for each in node.args]
        keywords = [ast.keyword(each.arg, self._argument(each.value)) for each in node.keywords]
        function = ast.Attribute(ast.Name("self", ast.Load()), method, ast.Load())
        return ast.Call(function, args, keywords)

    def _argument(self, value: ast.expr) -> ast.expr:
        """Return what stands for an argument: a plain value, an earlier output, or a parameter."""
        read = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
        has_method = any(_method(each, self._names) for each in ast.walk(value))
        if has_method or read & self.outputs:
            return self.visit(value)  # type: ignore[no-any-return]
        if not read:
            return value
        text = ast.unparse(value)
        if text not in self._of_text:
            name = _short(value) or "x"
            while name in self.inputs or name in self.outputs:
                name += "_"
            self._of_text[text], self.inputs[name] = name, _fed(value, self._scope)
        return ast.Name(self._of_text[text], ast.Load())


def _function(statements: list[ast.Assign | ast.Return | ast.Expr], names: Collection[str], scope: Scope) -> FedCall:
    """Return the statements as one function of what the loop feeds, which returns what none of them takes further.

    Like variables of the loop, what they give lives until the next step replaces it.
    """
    composing = _Composing(names, scope)
    lines: list[str] = []
    results: dict[str, None] = {}
    for statement in statements:
        calls = [each for each in ast.walk(statement.value or statement) if _method(each, names)]  # outer before inner
        inner = {id(each) for call in calls for each in ast.walk(call) if each is not call}
        for call in (each for each in calls if id(each) not in inner):
            is_whole = statement.value is call and isinstance(statement, ast.Assign)
            target = ast.unparse(statement.targets[0]) if is_whole and isinstance(statement, ast.Assign) else ""
            if not re.fullmatch(r"[\w, ()]+", target):
                target = f"output{len(results)}"
            value = composing.visit(copy.deepcopy(call))
            read = {each.id for each in ast.walk(value) if isinstance(each, ast.Name)}
            bound = re.findall(r"\w+", target)
            kept = f"    vars(self)['_of_loop_{len(lines)}'] = {', '.join(bound)}"
            lines += [f"    {target} = {ast.unparse(value)}", kept]
            results = dict.fromkeys((*(each for each in results if each not in read), *bound))
            composing.outputs |= set(bound)
    returned = ", ".join(name for name in results if name != "_")
    code = "\n".join((f"def forward(self, {', '.join(composing.inputs)}):", *lines, f"    return {returned}"))
    first = statements[0]
    return FedCall(scope.source.path, first.lineno, composing.inputs, tuple(dict.fromkeys(composing.methods)), code)
