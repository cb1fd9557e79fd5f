"""A call as typed after a file's name: `UNet(n_channels=3)`."""

import ast

from memlint.source.arithmetic import CONVERSIONS
from memlint.source.calls import called
from memlint.source.expressions import Values
from memlint.source.scopes import Scope
from memlint.source.text import Source, dotted_name
from memlint.source.values import Call, Name, Unknown


def literal_call(text: str) -> tuple[str, dict[str, object]] | None:
    """Return the name and the arguments of a call as typed; None for anything else. Raises Unknown."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None
    if not isinstance(node, ast.Call) or not dotted_name(node.func):
        return None
    source = Source("", text, ast.Module([], []))
    known, unseen = _Typed(source, None).arguments(node, None)
    if unseen:
        raise Unknown(unseen[0])
    return dotted_name(node.func), known


class _Typed(Values):
    """Evaluator of typed text: every name is one of the file that it follows."""

    def _name(self, node: ast.Name, _scope: Scope | None) -> object:
        return Name(node.id, "")

    def _call(self, node: ast.Call, scope: Scope | None) -> object:
        if called(node) in (*CONVERSIONS, "dict"):
            return super()._call(node, scope)
        known, unseen = self.arguments(node, scope)
        if unseen:
            raise Unknown(unseen[0])
        return Call(Name(self._dotted(node.func), ""), known)

    def _attribute(self, node: ast.Attribute, _scope: Scope | None) -> object:
        return Name(self._dotted(node), "")

    def _dotted(self, node: ast.expr) -> str:
        if not dotted_name(node):
            raise Unknown
        return dotted_name(node)
