"""Every kernel of the virtual device: shapes from PyTorch's meta kernels, storages from the ledger, no computation.

A kernel's result depends on the geometry of its arguments alone, so it is inferred once per geometry and remembered.
Kernels that differ from that are listed in `EXPLICIT`; other modules add to it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch._decomp import decomposition_table

from memlint.accelerator import index_range
from memlint.accelerator.device import (
    CPU_KEYS,
    NAME,
    State,
    allocate,
    entry_of,
    real,
    real_device_of,
    reshape_storage,
)
from memlint.accelerator.places import distinct_places
from memlint.accelerator.propagation import follow
from memlint.base.errors import TraceError

if TYPE_CHECKING:
    from torch._ops import OpOverload

aten = torch.ops.aten
Tensor = torch.Tensor
Explicit = Callable[..., Any]

EXPLICIT: dict[str, Explicit] = {}
"""Kernels written by hand, by qualified overload name. They take the op's arguments and allocate what it returns."""


_STRUCTURED = "CompositeExplicitAutogradNonFunctional"
_STRUCTURED_KEY = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional


Temporaries = Callable[..., Iterator[None]]
TEMPORARIES: dict[str, Temporaries] = {}
"""What kernels take for themselves on a GPU: by op name without overload, a generator function of the op's arguments
that takes and drops memory in the kernel's order and yields once, where the kernel makes its outputs."""


class Kernel:
    """What the schema of one overload says about it."""

    __slots__ = (
        "explicit",
        "in_place",
        "infer",
        "is_random",
        "is_view",
        "name",
        "num_returns",
        "op",
        "over_lists",
        "packet",
        "pointwise",
        "reads_at_index",
        "strict_tensors",
        "temporaries",
        "tensor_positions",
        "written",
    )

    def __init__(self, op: OpOverload) -> None:
        self.op = op
        self.packet = op._schema.name.split("::")[-1]
        self.name = f"{op.namespace}.{self.packet}.{op._overloadname}"
        self.written = tuple(
            (i, a.name)
            for i, a in enumerate(op._schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        )
        self.num_returns = len(op._schema.returns)
        self.is_view = not self.written and any(r.alias_info is not None for r in op._schema.returns)
        self.is_random = torch.Tag.nondeterministic_seeded in op.tags
        self.in_place = self.packet.endswith("_") and bool(self.written)
        # Structured kernels infer shapes in C++; the Meta key may lead to a slow Python reference instead.
        structured = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _STRUCTURED)
        self.infer = functools.partial(op._op_dk, _STRUCTURED_KEY) if structured else op
        self.pointwise = torch.Tag.pointwise in op.tags
        self.over_lists = self.packet.startswith("_foreach_")
        self.explicit = EXPLICIT.get(self.name)
        self.tensor_positions = tuple(
            i for i, a in enumerate(op._schema.arguments) if isinstance(a.type, torch.TensorType)
        )
        self.strict_tensors = () if torch._C._should_allow_numbers_as_tensors(self.packet) else self.tensor_positions
        """Positions of tensors for which PyTorch hands over a Python number but takes none."""
        self.temporaries = TEMPORARIES.get(self.packet)
        self.reads_at_index = op.namespace == "aten" and self.packet in index_range.PACKETS


class Observer(Protocol):
    """Whoever wants to know which kernels run."""

    def started(self, kernel: Kernel) -> None:
        """`kernel` begins: storages born from now on are its own."""

    def finished(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """The kernel begun last read `inputs` and made or wrote `outputs`."""

    def failed(self) -> None:
        """The kernel begun last raised."""


observers: list[Observer] = []
_kernels: dict[OpOverload, Kernel] = {}
_results: dict[Any, Any] = {}
"""What was inferred, by kernel and geometry of the arguments."""
_memory = _results
"""Where that is looked up: see `remembering`."""


def kernel_of(op: OpOverload) -> Kernel:
    """The description of `op`, made at first sight."""
    kernel = _kernels.get(op)
    if kernel is None:
        kernel = _kernels[op] = Kernel(op)
    return kernel


def fallback(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Kernel of every op that neither PyTorch's C++ composites nor a kernel of ours provides."""
    return run(kernel_of(op), args, kwargs)


def run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out one op on the virtual device."""
    if kernel.is_view:
        State.last_host = entry_of(args[0]).host
        return kernel.op._handle.redispatch_boxed(CPU_KEYS, *args, **kwargs)
    calls = State.calls
    if calls is None:
        return _run_unseen(kernel, args, kwargs)
    calls.began()
    try:
        return _run_unseen(kernel, args, kwargs)
    finally:
        calls.ended()


def _run_unseen(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if torch._C._len_torch_function_stack():  # device contexts and users' modes must not see what a kernel does
        with torch._C.DisableTorchFunction():
            return _run(kernel, args, kwargs)
    return _run(kernel, args, kwargs)


def _run(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: C901, PLR0912  (the hot path)
    for observer in observers:
        observer.started(kernel)
    tensors: list[Tensor] = []
    beside = State.host_scratch(kernel, args, kwargs) if State.host_scratch is not None else None
    given = args
    try:
        if kernel.strict_tensors:
            args = _with_tensors(kernel, args)
        key: list[Any] = [kernel]
        cacheable = _describe(args, key, tensors)
        for name, value in kwargs.items():
            key.append(name)
            cacheable &= _describe((value,), key, tensors)
        if State.calls is not None:
            State.calls.with_arguments(kernel, given, kwargs, key if cacheable else None, tensors)
        if kernel.reads_at_index:
            index_range.refuse_out_of_range(kernel.packet, args)
        if kernel.explicit is None:
            check_devices(kernel, tensors)
        result = _take(kernel, args, kwargs, tensors, key if cacheable else None)
    except BaseException:
        for observer in observers:
            observer.failed()
        raise
    outputs: list[Tensor] = []
    if kernel.written:
        for index, name in kernel.written:
            _collect(args[index] if index < len(args) else kwargs.get(name), outputs)
    else:
        _collect(result, outputs)
    if outputs and real_device_of(outputs[0]).type == NAME and outputs[0].layout is torch.strided:
        State.last_host = entry_of(outputs[0]).host
    follow(kernel, args, kwargs, tensors, outputs)
    del beside
    for observer in observers:
        observer.finished(tensors, outputs)
    return result


def run_alone(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Carry out an op on the virtual device for what it takes alone: nobody observes it, and no values are known."""
    beside = State.host_scratch(kernel, args, kwargs) if State.host_scratch is not None else None
    if kernel.strict_tensors:
        args = _with_tensors(kernel, args)
    tensors: list[Tensor] = []
    key: list[Any] | None = None
    if kernel.explicit is None:
        key = [kernel]
        if not _describe((*args, *kwargs.values()), key, tensors):
            key = None
    else:
        _collect((*args, *kwargs.values()), tensors)
    result = _take(kernel, args, kwargs, tensors, key)
    del beside
    return result


def _take(
    kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], key: list[Any] | None
) -> Any:
    """Open and close all storages that a kernel does; its results. `tensors` are those among its arguments."""
    for t in tensors:
        if real_device_of(t).type == NAME:
            State.last_host = entry_of(t).host
            break
    steps = kernel.temporaries(*args, **kwargs) if kernel.temporaries is not None and _on_gpu(tensors) else None
    if steps is not None:
        next(steps)
    if kernel.explicit is not None:
        result = kernel.explicit(*args, **kwargs)
    elif kernel.in_place and len(tensors) == 1:
        result = tensors[0] if kernel.num_returns else None  # without operands nothing changes shape
    else:
        shapes = _infer(kernel, key, args, kwargs)
        result = _write(kernel, args, kwargs, shapes) if kernel.written else materialize(shapes)
    if steps is not None:
        next(steps, None)
    return result


def _on_gpu(tensors: list[Tensor]) -> bool:
    """Whether a kernel with these operands runs on a simulated GPU."""
    return (
        State.device is not None
        and State.cuda
        and any(real_device_of(t).type == NAME and not entry_of(t).host for t in tensors)
    )


def _with_tensors(kernel: Kernel, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """`args` with Python numbers made tensors of the dtype they promote the first operand to."""
    numbers = [i for i in kernel.strict_tensors if i < len(args) and isinstance(args[i], (int, float))]
    if not numbers:
        return args
    other = next((a for a in args if isinstance(a, Tensor)), None)
    changed = list(args)
    for i in numbers:
        dtype = torch.get_default_dtype() if other is None else torch.result_type(other, args[i])
        changed[i] = real.full((), args[i], dtype=dtype, device="cpu")
    return tuple(changed)


def _describe(args: Sequence[Any], key: list[Any], tensors: list[Tensor]) -> bool:
    """Append the geometry of `args` to `key` and their tensors to `tensors`; say whether the key tells all."""
    cacheable = True
    for a in args:
        if isinstance(a, Tensor):
            tensors.append(a)
            key.append((a.shape, a.stride(), a.dtype))
            if not a.dim() and real.is_cpu(a):
                cacheable = False  # a Python number is a CPU tensor that promotes differently, and does not show it
        elif isinstance(a, (list, tuple)):
            key.append(len(a))
            cacheable &= _describe(a, key, tensors)
        else:
            key.append(a)
            key.append(a.__class__)
    return cacheable


def check_devices(kernel: Kernel, tensors: list[Tensor]) -> None:
    """Fail as a real device does where a host tensor of at least one dimension meets device tensors."""
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
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
            f"(when checking arguments of aten::{kernel.packet})"
        )


_MIXES_DEVICES = (
    "_foreach_",
    "_fused_",
    "index_put",
    "_index_put",
    "copy_",
    "_copy_from",
    "_to_copy",
    "lift",
    "_amp_",
    "set_",
)


def _infer(kernel: Kernel, key: list[Any] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The op's result on meta tensors, as geometries."""
    if key is None:
        return _infer_anew(kernel, args, kwargs)
    remembered: Any = tuple(key)
    try:
        return _memory[remembered]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        return _infer_anew(kernel, args, kwargs)
    shapes = _memory[remembered] = _infer_anew(kernel, args, kwargs)
    return shapes


class Remembered(dict[Any, Any]):
    """Some of what was inferred, by kernel and geometry of the arguments; what it lacks comes from all that was."""

    def __missing__(self, key: Any) -> Any:
        value = self[key] = _results[key]
        return value


@contextlib.contextmanager
def remembering(remembered: Remembered) -> Iterator[None]:
    """Look up in `remembered` meanwhile, and keep there all that is asked for."""
    global _memory  # noqa: PLW0603
    _memory = remembered
    try:
        yield
    finally:
        _memory = _results


def infer(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The geometries `kernel` returns for these arguments, by PyTorch's meta kernel; remembered."""
    key: list[Any] = [kernel]
    cacheable = _describe((*args, *kwargs.values()), key, [])
    return _infer(kernel, key if cacheable else None, args, kwargs)


def _infer_anew(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    places = distinct_places(args, kwargs) if kernel.over_lists else None
    if places is None:
        return _infer_all(kernel, args, kwargs)
    results = _infer_all(kernel, places.args, places.kwargs)
    return [places.spread(written) for written in results] if kernel.written else places.spread(results)


def _infer_all(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    meta_args = tuple(to_meta(a) for a in args)
    meta_kwargs = {k: to_meta(v) for k, v in kwargs.items()}
    with torch._C.DisableTorchFunction():
        try:
            result = kernel.infer(*meta_args, **meta_kwargs)
        except NotImplementedError as error:
            result = _decomposition(kernel, error)(*meta_args, **meta_kwargs)
        if kernel.written:  # what the written tensors have become
            return [
                geometries(meta_args[i] if i < len(meta_args) else meta_kwargs.get(name)) for i, name in kernel.written
            ]
        return geometries(result)


def _decomposition(kernel: Kernel, error: NotImplementedError) -> Callable[..., Any]:
    """What PyTorch composes an op of that has no meta kernel; raises TraceError where it does not."""
    function = decomposition_table.get(kernel.op)
    if function is None:
        name = f"{kernel.op.namespace}::{kernel.packet}"
        raise TraceError(
            f"{name} cannot be traced: nothing says what shapes it returns",
            f'Register a fake implementation of it with @torch.library.register_fake("{name}").',
        ) from error
    return function


def to_meta(value: Any) -> Any:
    """`value` with its tensors and devices replaced by meta ones; Python numbers keep how they promote."""
    if isinstance(value, Tensor):
        if not value.dim() and real.is_cpu(value):
            return value
        return real.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [to_meta(v) for v in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


class Shape:
    """The geometry of a tensor yet to be made: shape, stride in elements, dtype."""

    __slots__ = ("dtype", "shape", "stride")

    def __init__(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> None:
        self.shape = tuple(shape)
        self.stride = tuple(stride)
        self.dtype = dtype


def geometries(value: Any) -> Any:
    """`value` with its tensors replaced by their geometry."""
    if isinstance(value, Tensor):
        return Shape(value.shape, value.stride(), value.dtype)
    if isinstance(value, (list, tuple)):
        return [geometries(v) for v in value]
    return value


def materialize(shapes: Any) -> Any:
    """Allocate every geometry in `shapes`, in order."""
    if isinstance(shapes, Shape):
        return allocate(shapes.shape, shapes.stride, shapes.dtype)
    if isinstance(shapes, list):
        return tuple(materialize(s) for s in shapes)
    return shapes


def _write(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: list[Any]) -> Any:
    """Nothing is computed; out= tensors of another size are resized, as PyTorch does."""
    outputs: list[Any] = [args[i] if i < len(args) else kwargs.get(name) for i, name in kernel.written]
    for output, shape in zip(outputs, shapes, strict=True):
        if isinstance(shape, Shape) and output.shape != shape.shape:
            reshape_storage(output, shape.shape, shape.stride)
    if kernel.num_returns == 0:
        return None
    return outputs[0] if kernel.num_returns == 1 else tuple(outputs)


def _collect(value: Any, tensors: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for v in value:
            _collect(v, tensors)


def explicit(*names: str) -> Callable[[Explicit], Explicit]:
    """Register a hand-written kernel for these overloads, given as `aten.nonzero.default`."""

    def register(function: Explicit) -> Explicit:
        for name in names:
            EXPLICIT[name] = function
        for kernel in _kernels.values():  # some ran before
            if kernel.name in names:
                kernel.explicit = function
        return function

    return register


def temporaries(*packets: str) -> Callable[[Temporaries], Temporaries]:
    """Register what the kernels of these ops, given by name without overload, take for themselves."""

    def register(function: Temporaries) -> Temporaries:
        for packet in packets:
            TEMPORARIES[packet] = function
        for kernel in _kernels.values():
            if kernel.packet in packets:
                kernel.temporaries = function
        return function

    return register
