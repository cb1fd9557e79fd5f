"""Reference cycles of gradients: they refer to their graph, it to the parameters, and these to the gradients."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakSet

from memlint.base.patching import patched
from memlint.whatif.change import Change, Effect


@dataclass(frozen=True, slots=True)
class ResetGradientsWithGraph(Change):
    """Set gradients with a graph (from `create_graph=True`) to None when the next forward begins.

    A program that reads them later fails with this Change.
    """

    text: ClassVar[str] = "set gradients that have a graph to None before the next forward"
    effect: ClassVar[Effect] = Effect.DYNAMICS

    def after_setup(self, _program: Any) -> None:
        import torch
        from torch.nn.modules.module import register_module_forward_pre_hook

        from memlint.cuda.simulated import simulated

        leaves: WeakSet[torch.Tensor] = WeakSet()
        differentiate: Any = torch.autograd.backward

        @functools.wraps(differentiate)
        def backward(tensors: Any, *args: Any, **options: Any) -> None:
            creates = options.get("create_graph", len(args) > 2 and args[2])
            new_leaves = list(_leaves((tensors,) if isinstance(tensors, torch.Tensor) else tensors)) if creates else []
            differentiate(tensors, *args, **options)
            leaves.update(new_leaves)

        def reset(_module: Any, _args: Any) -> None:
            while leaves:
                leaf = leaves.pop()
                if leaf.grad is not None and leaf.grad.grad_fn is not None:
                    leaf.grad = None

        exits = simulated().exits
        exits.enter_context(patched([(torch.autograd, "backward", backward)]))
        exits.callback(register_module_forward_pre_hook(reset).remove)


def _leaves(tensors: Iterable[Any]) -> Iterator[Any]:
    """Yield the tensors in whose `grad` a backward from here accumulates."""
    pending, seen = [tensor.grad_fn for tensor in tensors], set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        pending += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            yield node.variable
