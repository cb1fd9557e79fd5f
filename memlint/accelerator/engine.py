"""Autograd's engine while a device is simulated."""

from typing import Any

from torch.autograd.variable import Variable

from memlint.accelerator.accumulation import measure_once
from memlint.accelerator.guard import taken


class _Engine(type(Variable._execution_engine)):  # type: ignore[misc]
    """Autograd's engine, which raises the exceptions that the guard took away."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run a backward."""
        measure_once()
        before = len(taken)
        try:
            return super().run_backward(*args, **kwargs)
        except SystemError:
            if len(taken) == before:
                raise
            exception = taken[before]
        finally:
            del taken[before:]
        raise exception  # here, where it keeps its own cause and context


def patches() -> list[tuple[Any, str, Any]]:
    """What is replaced while a device is simulated: owner, name, replacement."""
    return [(Variable, "_execution_engine", _Engine())]
