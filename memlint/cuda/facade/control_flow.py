"""`torch.cond`, `while_loop`, `scan` and `map` run their functions as plain Python would.

PyTorch traces branches and bodies with fake tensors of CUDA to differentiate them, which ends the process where PyTorch
is built without CUDA. Here autograd records the functions as ordinary code and saves their activations, where PyTorch
would recompute part of them in the backward. `torch.lobpcg` stops at values that are not known here, so it runs three
equal iterations.
"""

from typing import Any

from torch import _lobpcg as lobpcg
from torch._C import DispatchKey
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op

from memlint.accelerator import state

NUM_ITERATIONS = 3
_stops = lobpcg.LOBPCG.stop_iteration


def _stop_iteration(solver: Any) -> bool:
    if solver.ivars["istep"] < NUM_ITERATIONS:
        return bool(_stops(solver))  # type: ignore[no-untyped-call]
    state.assume(f"lobpcg() is taken to need no more memory after {NUM_ITERATIONS} iterations")
    return True


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    key, plain = DispatchKey.AutogradPrivateUse1, DispatchKey.CompositeExplicitAutograd
    ops = (cond_op, map_impl, scan_op, while_loop_op)
    return [
        *((op, "_dispatch_cache", {key: op.py_kernels[plain]}) for op in ops),
        (lobpcg.LOBPCG, "stop_iteration", _stop_iteration),
    ]
