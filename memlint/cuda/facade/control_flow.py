"""`torch.cond`, `while_loop`, `scan` and `map` run their functions as plain Python would.

PyTorch traces branches and bodies with fake tensors of CUDA to differentiate them, which ends the process where PyTorch
is built without CUDA. Here autograd records the functions as ordinary code and saves their activations, where PyTorch
would recompute part of them in the backward. `torch.lobpcg` stops at values that are not known here, so it runs three
equal iterations.
"""

from typing import Any

from memlint.accelerator import state
from memlint.accelerator.private import DISPATCH_CACHE, LOBPCG, DispatchKey, cond_op, map_op, scan_op, while_loop_op

NUM_ITERATIONS = 3
_stops = LOBPCG.stop_iteration


def _stop_iteration(solver: Any) -> bool:
    if solver.ivars["istep"] < NUM_ITERATIONS:
        return bool(_stops(solver))
    state.assume(f"lobpcg() is taken to need no more memory after {NUM_ITERATIONS} iterations")
    return True


def patches() -> list[tuple[Any, str, Any]]:
    """Return the patches while a device is simulated: owner, name, replacement."""
    key, plain = DispatchKey.AutogradPrivateUse1, DispatchKey.CompositeExplicitAutograd
    ops = (cond_op, map_op, scan_op, while_loop_op)
    return [
        *((op, DISPATCH_CACHE, {key: op.py_kernels[plain]}) for op in ops),
        (LOBPCG, "stop_iteration", _stop_iteration),
    ]
