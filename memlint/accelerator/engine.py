"""Autograd's engine while a device is simulated."""

from typing import Any

import torch
from torch.autograd.variable import Variable

from memlint.accelerator.accumulation import measure_once
from memlint.accelerator.device import is_virtual, real_device_of
from memlint.accelerator.guard import taken
from memlint.accelerator.private import ENGINE, Engine
from memlint.accelerator.sparse import is_host
from memlint.accelerator.values import to_host


class _Engine(Engine):  # type: ignore[misc]
    """Autograd's engine, which raises the exceptions that the guard took away."""

    def run_backward(self, outputs: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a backward from these outputs, and a gradient or None of each."""
        measure_once()
        gradients = tuple(map(_where_its_output_is, outputs, gradients))
        before = len(taken)
        try:
            return super().run_backward(outputs, gradients, *args, **kwargs)
        except SystemError:
            if len(taken) == before:
                raise
            exception = taken[before]
        finally:
            del taken[before:]
        raise exception  # here, where it keeps its own cause and context


def _where_its_output_is(output: Any, gradient: Any) -> Any:
    """What of the host needs a gradient is virtual there; a gradient that a program makes is not."""
    is_real = isinstance(gradient, torch.Tensor) and real_device_of(gradient).type == "cpu"
    return to_host(gradient) if is_real and is_virtual(output) and is_host(output) else gradient


def patches() -> list[tuple[Any, str, Any]]:
    """What is replaced while a device is simulated: owner, name, replacement."""
    return [(Variable, ENGINE, _Engine())]
