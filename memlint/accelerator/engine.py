"""Autograd's engine while a device is simulated."""

from typing import Any

import torch
from torch.autograd.variable import Variable

from memlint.accelerator.accumulation import measure_once
from memlint.accelerator.device import is_virtual, real_device_of
from memlint.accelerator.guard import taken
from memlint.accelerator.sparse import is_host
from memlint.accelerator.values import to_host


class _Engine(type(Variable._execution_engine)):  # type: ignore[misc]
    """Autograd's engine that raises the exceptions which the guard has stored."""

    def run_backward(self, outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a backward from these outputs, with a gradient or None for each."""
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


def _on_device_of_output(output: Any, gradient: Any) -> Any:
    """Move a gradient to its output's place: a host tensor that requires one is virtual, the program's may be real."""
    is_real = isinstance(gradient, torch.Tensor) and real_device_of(gradient).type == "cpu"
    return to_host(gradient) if is_real and is_virtual(output) and is_host(output) else gradient


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    return [(Variable, "_execution_engine", _Engine())]
