"""Sparse tensors on the virtual device: only their parts are stored, as virtual tensors with entries in the ledger.

A COO tensor is int64 indices (sparse dimensions x elements) and values; CSR, CSC, BSR and BSC tensors are compressed
indices, plain indices and values. Most of PyTorch's sparse kernels are one C++ function for CPU and CUDA that composes
dense kernels, and run here as they are; the others are in `sparse_kernels`.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import torch

from memlint.accelerator import state
from memlint.accelerator.device import DEVICE, NAME, entry_of, on_host, real_device_of
from memlint.accelerator.dispatch import refuse_mixed_devices, run
from memlint.accelerator.kernel import Kernel, kernel_of, tensors_in
from memlint.accelerator.private import (
    DisableTorchFunction,
    DispatchKey,
    DispatchKeySet,
    OpOverload,
    handle_of,
    kernel_under,
    ops_with_kernel,
    schema_of,
)
from memlint.accelerator.registration import KEY, F, Function, everything, implement, overload

Tensor = torch.Tensor
aten = torch.ops.aten

ROW_COMPRESSED = (torch.sparse_csr, torch.sparse_bsr)
COLUMN_COMPRESSED = (torch.sparse_csc, torch.sparse_bsc)


class Family(NamedTuple):
    """A kind of sparse tensor that has dispatch keys of its own in PyTorch."""

    key: str
    like: DispatchKey
    title: str


COO = Family("SparsePrivateUse1", DispatchKey.SparseCPU, "sparse COO")
COMPRESSED = Family("SparseCsrPrivateUse1", DispatchKey.SparseCsrCPU, "sparse CSR, CSC, BSR or BSC")

_NAMES = """
    _coalesced_ _conj_physical _dimI _dimV _indices _nnz _sparse_broadcast_to _sparse_coo_tensor_with_dims
    _sparse_coo_tensor_with_dims_and_tensors _to_dense _to_sparse _to_sparse_csc _to_sparse_csr _values abs add
    addmm angle any asin asinh atan atanh cat ccol_indices ceil clone col_indices conj_physical copy_
    copy_sparse_to_sparse_ crow_indices deg2rad dense_dim div empty empty_like erf erfinv expm1 fill_ floor
    floor_divide frac indices is_coalesced isinf isnan isneginf isposinf log1p mm mul mv nan_to_num narrow_copy
    native_norm neg norm normal_ permute pow rad2deg relu resize_ resize_as_sparse_ round row_indices select
    select_copy sgn sign signbit sin sinh sparse_dim sparse_mask sparse_resize_ sparse_resize_and_clear_ sqrt sub
    sum tan tanh threshold_backward trunc unsqueeze values view_as_complex view_as_real zero_ zeros
"""
COMPOSED = frozenset(_NAMES.split())
"""Ops whose sparse kernels for CPU and CUDA are one function in aten/src/ATen/native/native_functions.yaml (torch 2.13)
that reads no values itself. An in-place op goes with its functional form."""

_FROM_DENSE = "_to_sparse _to_sparse.sparse_dim _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc"
FROM_DENSE = _FROM_DENSE.split()
"""Ops on dense tensors that are composed of others in the same way."""

HAND_WRITTEN: dict[tuple[str, str], Function] = {}
"""Kernels by dispatch key and name of the op."""


def sparse_kernel(family: Family, *names: str) -> Callable[[F], F]:
    """Decorator: run these ops on tensors of `family` by the decorated function; see `registration.kernel`."""

    def register(function: F) -> F:
        for name in names:
            HAND_WRITTEN[family.key, name] = function
        return function

    return register


def _getter(op: OpOverload, key: DispatchKey) -> Callable[[Tensor], Tensor]:
    keys = DispatchKeySet(key)
    get = handle_of(op).redispatch_boxed
    return lambda tensor: get(keys, tensor)


_indices = _getter(aten._indices.default, DispatchKey.SparseMeta)
_values = _getter(aten._values.default, DispatchKey.SparseMeta)
_crow = _getter(aten.crow_indices.default, DispatchKey.SparseCsrMeta)
_col = _getter(aten.col_indices.default, DispatchKey.SparseCsrMeta)
_ccol = _getter(aten.ccol_indices.default, DispatchKey.SparseCsrMeta)
_row = _getter(aten.row_indices.default, DispatchKey.SparseCsrMeta)
_compressed_values = _getter(aten.values.default, DispatchKey.SparseCsrMeta)


_NO_DISPATCH = Tensor.__torch_dispatch__


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the strided tensors that `tensor` consists of, its values last; `tensor` itself if it is strided.

    The inner tensors of a subclass, such as a quantized one, are found as torch.compile finds them; it also names
    attributes that are no tensors, such as the mesh of a DTensor.
    """
    if type(tensor).__torch_dispatch__ is not _NO_DISPATCH and hasattr(tensor, "__tensor_flatten__"):
        wrapped = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return tuple(part for each in wrapped if isinstance(each, Tensor) for part in parts_of(each))
    layout = tensor.layout
    if layout is torch.strided:
        return (tensor,)
    if layout is torch.sparse_coo:
        return _indices(tensor), _values(tensor)
    if layout in ROW_COMPRESSED:
        return _crow(tensor), _col(tensor), _compressed_values(tensor)
    if layout in COLUMN_COMPRESSED:
        return _ccol(tensor), _row(tensor), _compressed_values(tensor)
    raise NotImplementedError(f"tensors of layout {layout} are not modelled; convert the tensor with .to_dense() first")


def is_host(tensor: Tensor) -> bool:
    """Return True if a virtual tensor of any layout is the host's."""
    return entry_of(parts_of(tensor)[-1]).host


def coo(indices: Tensor, values: Tensor, size: Sequence[int], *, coalesced: bool) -> Tensor:
    """Make a COO tensor of these very parts."""
    sparse_dim = indices.shape[0]
    options = {"dtype": values.dtype, "layout": torch.sparse_coo, "device": DEVICE, "is_coalesced": coalesced}
    make: Callable[..., Tensor] = aten._sparse_coo_tensor_with_dims_and_tensors.default
    return make(sparse_dim, len(size) - sparse_dim, size, indices, values, **options)


def compressed(layout: torch.layout, parts: Sequence[Tensor], size: Sequence[int]) -> Tensor:
    """Make a compressed tensor of these very parts: compressed indices, plain indices, values."""
    make: Callable[..., Tensor] = aten._sparse_compressed_tensor_unsafe.default
    return make(*parts, size, dtype=parts[2].dtype, layout=layout, device=DEVICE)


_set_data = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # the facade replaces the attribute


def become(tensor: Tensor, other: Tensor) -> Tensor:
    """Give `tensor` the parts and shape of `other`, as kernels that write into a sparse tensor do."""
    if tensor.layout is torch.sparse_coo:
        _set_data(tensor, other)
        return tensor
    aten.resize_as_sparse_.default(tensor, other)
    return aten.copy_.default(tensor, other)  # type: ignore[no-any-return]


@contextlib.contextmanager
def launched(op: OpOverload, *inputs: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
    """Report the block to the observers as one kernel that reads `inputs`; the parts stand for a sparse tensor.

    The block receives a function, which it calls with its result and which returns that result.
    """
    kernel, observers = _kernel_of(op), state.current.observers
    outputs: list[Tensor] = []

    def finish(result: Tensor) -> Tensor:
        outputs.extend(parts_of(result))
        return result

    with state.turn:
        for observer in observers:
            observer.started(kernel)
        try:
            yield finish
        except BaseException:
            for observer in observers:
                observer.failed()
            raise
        read = [part for t in inputs for part in parts_of(t)]
        for observer in observers:
            observer.finished(read, outputs)


@functools.cache
def _kernel_of(op: OpOverload) -> Kernel:
    kernel = Kernel(op)
    kernel.packet = f"sparse {kernel.packet}"  # it is not a kernel of cuBLAS
    return kernel


_MIXES_DEVICES = ("copy_", "copy_sparse_to_sparse_", "_sparse_coo_tensor_with_dims_and_tensors", "resize_as_sparse_")


def _enter(op: OpOverload, args: Sequence[Any]) -> None:
    """Place results where the operands are; operands of host and device must not meet."""
    first: bool | None = None
    mixed = False
    for t in tensors_in(args):
        is_virtual = real_device_of(t).type == NAME
        if is_virtual or (t.dim() and state.current.cuda):
            host = not is_virtual or is_host(t)
            mixed = mixed or (first is not None and host != first and t.dim() > 0)
            first = host if first is None else first
    packet = schema_of(op).name.split("::")[-1]
    if mixed and packet not in _MIXES_DEVICES:
        refuse_mixed_devices(packet)
    if first is not None:
        state.current.of_thread.last_host = first


def _composed(op: OpOverload, key: DispatchKey, *args: Any, **kwargs: Any) -> Any:
    _enter(op, args)
    return kernel_under(op)(key, *args, **kwargs)


def _hand_written(op: OpOverload, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _enter(op, args)
    with DisableTorchFunction():
        return function(*args, **kwargs)


def _refuse(family: Family, op: OpOverload, *_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        f"{op.name()} on {family.title} tensors cannot be traced: its memory on CUDA is not modelled. "
        "Convert the tensor with .to_dense() before this call, or report the operator."
    )


def register() -> None:
    """Register every sparse kernel in PyTorch's dispatcher."""
    for family in (COO, COMPRESSED):
        everything.fallback(functools.partial(_refuse, family), family.key)
        names = ops_with_kernel(family.like.name)
        for name in (n.removeprefix("aten::") for n in names if n.startswith("aten::")):
            op, packet = overload(name), name.partition(".")[0]
            function = HAND_WRITTEN.get((family.key, name))
            if function is not None:
                implement(op, family.key, functools.partial(_hand_written, op, function))
            elif packet in COMPOSED or packet.rstrip("_") in COMPOSED:
                implement(op, family.key, functools.partial(_composed, op, family.like))
            else:
                implement(op, family.key, functools.partial(_refuse, family, op))
    for name in FROM_DENSE:
        op = overload(name)
        implement(op, KEY, functools.partial(_composed, op, DispatchKey.CPU))
    implement(_BAG.op, KEY, _embedding_bag_backward)


_BAG = kernel_of(aten._embedding_bag_backward.default)


def _embedding_bag_backward(*args: Any) -> Any:
    """The sparse gradient, composed as in the kernel for devices: PyTorch's meta kernel does not support it.

    Its indices are those of the call, which on the host may be real ones: they have to be beside its values.
    """
    sparse = args[9]
    if not sparse:
        return run(_BAG, args, {})
    _enter(_BAG.op, args)
    return kernel_under(_BAG.op)(DispatchKey.CPU, *map(on_host, args))
