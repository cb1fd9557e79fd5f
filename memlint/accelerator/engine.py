"""Autograd's engine while a device is simulated."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.variable import Variable

from memlint.accelerator.accumulation import has_run_backward, measure_once
from memlint.accelerator.device import is_virtual, real_device_of
from memlint.accelerator.guard import taken
from memlint.accelerator.private import ENGINE, Engine
from memlint.accelerator.sparse import is_host
from memlint.accelerator.values import to_host


class _Engine(Engine):  # type: ignore[misc]
    """Autograd's engine that raises the exceptions which the guard has stored."""

    def run_backward(self, outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a backward from these outputs, with a gradient or None for each."""
        if not has_run_backward() and all(each.is_meta for each in outputs) and not args[1]:
            return _of_shapes(outputs, args[2], is_summed=kwargs.get("accumulate_grad", False))
        measure_once()
        gradients = tuple(map(_on_device_of_output, outputs, gradients))
        before = len(taken)
        try:
            return super().run_backward(outputs, gradients, *args, **kwargs)
        except SystemError:
            if len(taken) == before:
                raise
            exception = taken[before]
        finally:
            del taken[before:]
        raise exception  # here it keeps its own cause and context


def _of_shapes(outputs: Sequence[torch.Tensor], inputs: Sequence[Any], *, is_summed: bool) -> tuple[Any, ...]:
    """Give leaves or `inputs` the gradients of a backward on the meta device, which have no values, without the engine.

    So a program that only counts operations with it can still be copied: an engine that has run has threads.
    """
    if not is_summed:
        return tuple(map(torch.empty_like, inputs))
    for leaf in inputs or _leaves([each.grad_fn for each in outputs]):
        leaf.grad = torch.empty_like(leaf) if leaf.grad is None else leaf.grad
    return ()


def _leaves(nodes: list[Any]) -> Iterator[torch.Tensor]:
    """Yield the leaves that the graph behind these nodes leads to."""
    seen = {None}
    while nodes:
        if (node := nodes.pop()) not in seen:
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            if isinstance(leaf := getattr(node, "variable", None), torch.Tensor):
                yield leaf


def _on_device_of_output(output: Any, gradient: Any) -> Any:
    """Move a gradient to its output's place: a host tensor that requires one is virtual, the program's may be real."""
    is_real = isinstance(gradient, torch.Tensor) and real_device_of(gradient).type == "cpu"
    return to_host(gradient) if is_real and is_virtual(output) and is_host(output) else gradient


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [(Variable, ENGINE, _Engine())]
