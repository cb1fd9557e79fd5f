"""`torch.cond`, `while_loop`, `scan` and `map` run what they are given, as plain Python would.

PyTorch traces branches and bodies with fake tensors of CUDA to differentiate them, which ends the process where PyTorch
is built without CUDA. Here autograd looks into what is run, and keeps what it keeps of any code, where PyTorch would
compute part of it again in the backward.
"""

from typing import Any

from torch._C import DispatchKey
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op


def patches() -> list[tuple[Any, str, Any]]:
    """Everything replaced while a device is simulated: owner, name, replacement."""
    return [
        (op, "_dispatch_cache", {DispatchKey.AutogradPrivateUse1: op.py_kernels[DispatchKey.CompositeExplicitAutograd]})
        for op in (cond_op, map_impl, scan_op, while_loop_op)
    ]
