"""Runs kernels: shapes from PyTorch's meta kernels, storages from the ledger, no computation.

Kernels that differ from that are written by hand: see `memlint.accelerator.registration.kernel`.
"""

from typing import Any, NoReturn

import torch

from memlint.accelerator import state
from memlint.accelerator.device import CPU_KEYS, NAME, entry_of, real, real_device_of, set_storage
from memlint.accelerator.inference import Shape, describe, infer_described, materialize
from memlint.accelerator.kernel import Kernel, kernel_of, tensors_in
from memlint.accelerator.private import DisableTorchFunction, OpOverload, handle_of, num_function_modes
from memlint.accelerator.propagation import follow
from memlint.accelerator.values import refuse_out_of_range
from memlint.base.errors import TraceError

Tensor = torch.Tensor


def fallback(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Run every op that has neither a composite kernel in PyTorch's C++ nor a kernel of memlint's own."""
    return run(kernel_of(op), args, kwargs)


def run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op on the virtual device."""
    if kernel.is_view:
        now = state.current
        now.of_thread.last_host = entry_of(args[0]).host
        for observer in now.observers:
            observer.viewed()
        return handle_of(kernel.op).redispatch_boxed(CPU_KEYS, *args, **kwargs)
    with state.turn:
        calls = state.current.calls
        if calls is None:
            return _run_unseen(kernel, args, kwargs)
        calls.began()
        try:
            return _run_unseen(kernel, args, kwargs)
        finally:
            calls.ended()


def _run_unseen(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if num_function_modes():  # hide the kernel's work from device contexts and the user's modes
        with DisableTorchFunction():
            return _run(kernel, args, kwargs)
    return _run(kernel, args, kwargs)


def _run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: C901  (the hot path)
    now = state.current
    for observer in now.observers:
        observer.started(kernel)
    tensors: list[Tensor] = []
    scratch = now.host_scratch(kernel, args, kwargs) if now.host_scratch is not None else None
    try:
        as_called = args
        if kernel.strict_tensors:
            args = _with_tensors(kernel, args)
        key: list[Any] = [kernel]
        cacheable = describe(args, key, tensors)
        for name, value in kwargs.items():
            key.append(name)
            cacheable &= describe((value,), key, tensors)
        if now.calls is not None:
            now.calls.with_arguments(kernel, as_called, kwargs, key if cacheable else None, tensors)
        if kernel.reads_at_index:
            refuse_out_of_range(kernel.packet, args)
        if kernel.hand_written is None:
            check_devices(kernel, tensors)
            if kernel.is_foreign:
                assume_kernel_takes_nothing(f"{kernel.op.namespace}::{kernel.packet}", "it has none that runs here")
        result = _take(kernel, args, kwargs, tensors, key if cacheable else None)
        now.ledger.has_indexed |= kernel.reads_at_index
    except BaseException:
        for observer in now.observers:
            observer.failed()
        raise
    outputs = tensors_in(kernel.written_of(args, kwargs) if kernel.written else result)
    if kernel.written and not kernel.returns_written:
        outputs += tensors_in(result)
    if outputs and real_device_of(outputs[0]).type == NAME and outputs[0].layout is torch.strided:
        now.of_thread.last_host = entry_of(outputs[0]).host
    follow(kernel, args, kwargs, tensors, outputs)
    del scratch
    for observer in now.observers:
        observer.finished(tensors, outputs)
    return result


def assume_kernel_takes_nothing(name: str, reason: str) -> None:
    """Report an assumption for an op of another package: only its shapes are known, as its kernel cannot run here."""
    state.assume_once(f"memory that the kernel of {name} takes for itself is not counted: {reason}")


def run_alone(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op on the virtual device only for the memory it takes: no observer sees it, and no values are known."""
    host_scratch = state.current.host_scratch
    scratch = host_scratch(kernel, args, kwargs) if host_scratch is not None else None
    if kernel.strict_tensors:
        args = _with_tensors(kernel, args)
    tensors: list[Tensor] = []
    key: list[Any] = [kernel]
    if kernel.hand_written is not None:  # its results are not inferred
        tensors, cacheable = tensors_in((args, list(kwargs.values()))), False
    else:
        cacheable = describe((*args, *kwargs.values()), key, tensors)
    result = _take(kernel, args, kwargs, tensors, key if cacheable else None)
    del scratch
    return result


def _take(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], key: list[Any] | None
) -> Any:
    """Open and close all storages of a kernel and return its results. `tensors` are those among its arguments."""
    now = state.current
    for t in tensors:
        if real_device_of(t).type == NAME:
            now.of_thread.last_host = is_host = entry_of(t).host
            if not is_host or t.dim():  # a number of the host goes where the other operands are
                break
    if now.meets_unknown_sizes:
        now.unknown_sizes = _unknown_sizes(tensors)
        if now.unknown_sizes and kernel.packet == "cat" and len(tensors) > 1:
            now.unknown_sizes |= _size_together(tensors, *args[1:2], **kwargs)
    steps = None
    temporaries = kernel.temporaries if now.cuda else kernel.host_temporaries
    if temporaries is not None and now.takes_temporaries and _any_on_gpu(tensors):
        keywords = {n: value for n, value in kwargs.items() if n not in kernel.results} if kernel.results else kwargs
        steps = temporaries(*args, **keywords)
        next(steps)
    if kernel.hand_written is not None:
        result = kernel.hand_written(*args, **kwargs)
    elif kernel.in_place and len(tensors) == 1:
        result = tensors[0] if kernel.num_returns else None  # without operands no shape changes
    else:
        shapes = infer_described(kernel, key, args, kwargs)
        result = _write(kernel, args, kwargs, shapes) if kernel.returns_written else materialize(shapes)
    if steps is not None:
        next(steps, None)
    return result


def _unknown_sizes(tensors: list[Tensor]) -> dict[int, float]:
    """Collect sizes that are upper bounds in these tensors, and so in the results computed from them."""
    return dict(bound for t in tensors if (bound := _bound_of(t)) is not None)


def _size_together(tensors: list[Tensor], dim: int = 0) -> dict[int, float]:
    """Return the size along `dim` of these tensors in a row, and its likely share, if any is an upper bound."""
    sizes = [(t.shape[dim] if t.dim() else 0, dict([bound]) if (bound := _bound_of(t)) else {}) for t in tensors]
    total, likely = sum(size for size, _ in sizes), sum(size * shares.get(size, 1.0) for size, shares in sizes)
    return {total: likely / total} if likely < total else {}


def _bound_of(t: Tensor) -> tuple[int, float] | None:
    is_known = real_device_of(t).type == NAME and t.layout is torch.strided
    return entry_of(t).unknown_size if is_known else None


def _any_on_gpu(tensors: list[Tensor]) -> bool:
    return any(real_device_of(t).type == NAME and not entry_of(t).host for t in tensors)


def _with_tensors(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `args` with Python numbers turned into tensors of the dtype to which they promote the first operand."""
    numbers = [i for i in kernel.strict_tensors if i < len(args) and isinstance(args[i], (int, float))]
    if not numbers:
        return args
    other = next((a for a in args if isinstance(a, Tensor)), None)
    changed = list(args)
    for i in numbers:
        dtype = torch.get_default_dtype() if other is None else torch.result_type(other, args[i])
        made_in = torch.int64 if type(args[i]) is int and not dtype.is_floating_point else dtype
        changed[i] = real.full((), args[i], dtype=made_in, device="cpu").to(dtype)  # an int wraps: `x & 0x80000000`
    return tuple(changed)


_MIXES_DEVICES = (
    "_foreach_", "_fused_", "index_put", "_index_put", "copy_", "_copy_from", "_to_copy", "lift", "_amp_", "set_",
    "optimizer_update",
)  # fmt: skip


def check_devices(kernel: Kernel, tensors: list[Tensor]) -> None:
    """Raise as a real device does if a host tensor of at least one dimension meets device tensors."""
    host = device = False
    for t in tensors:
        if real_device_of(t).type == NAME:
            if entry_of(t).host:
                host = host or t.dim() > 0
            else:
                device = True
        elif t.dim() and t.numel():
            host = True
    if host and device and kernel.packet != "index" and not kernel.packet.startswith(_MIXES_DEVICES):
        refuse_mixed_devices(kernel.packet)


def refuse_mixed_devices(packet: str) -> NoReturn:
    """Raise PyTorch's error for operands of an op on several devices."""
    if not state.current.cuda:
        raise TraceError(
            f"aten::{packet} meets a tensor that was made before the host was simulated, such as at the top level of a"
            " module",
            "Make it in the model, as a buffer, or in the function that gives the model.",
        )
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
        f"(when checking arguments of aten::{packet})"
    )


def _write(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: list[Any]) -> Any:
    """Run an op that writes its arguments: nothing is computed.

    Out= tensors of another size are resized, as in PyTorch.
    """
    outputs = kernel.written_of(args, kwargs)
    for output, shape in zip(outputs, shapes, strict=True):
        if isinstance(shape, Shape) and output.shape != shape.shape:
            if real_device_of(output).type != NAME:  # as for a result that PyTorch makes where a host operand is
                refuse_mixed_devices(kernel.packet)
            set_storage(output, output.untyped_storage(), output.storage_offset(), shape.shape, shape.stride)
    if kernel.num_returns == 0:
        return None
    return outputs[0] if kernel.num_returns == 1 else tuple(outputs)
