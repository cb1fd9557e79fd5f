"""PyTorch's private names, under plain ones: no other module of memlint or of its rules writes one.

A name is private where a part of its dotted path below `torch` begins with one underscore (`torch._C.DispatchKey`,
`torch.utils._pytree.tree_map`), where an attribute of an object that PyTorch defines does (`op._schema`,
`module._forward_hooks`), and where a string that names either does, such as that of a function to replace. Operators
are not: `aten._softmax` is a name of PyTorch's public list of operators (native_functions.yaml), and its version is
that of the operator's schema. tests/test_private_names.py holds this.

All of it is loaded with `import torch`; what is not stands in `private/distributed.py`. The names were checked with
torch 2.10 to 2.13, and are the same in all four unless a line says otherwise.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter, methodcaller
from typing import Any

import torch
from torch import _lobpcg, _meta_registrations, _ops, _prims_common
from torch._decomp import decomposition_table as decompositions
from torch._functorch import pyfunctorch
from torch._higher_order_ops.cond import cond_op as cond
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op as scan
from torch._higher_order_ops.while_loop import while_loop_op as while_loop
from torch._library import custom_ops
from torch._subclasses import fake_tensor
from torch.autograd import Variable
from torch.jit import _builtins
from torch.nn.modules import batchnorm, conv, instancenorm, loss, module
from torch.nn.parallel import _functions
from torch.utils import _device, _python_dispatch, _pytree, _triton, backend_registration
from torch.utils.data import DataLoader, dataloader
from torch.utils.data._utils import fetch, worker

Attribute = Callable[[Any], Any]
"""A function that reads an attribute, or calls a method without arguments, of an object of PyTorch."""

# --- Containers: torch.utils._pytree

tree_flatten = _pytree.tree_flatten
"""Leaves of nested containers, and the structure they were in."""
tree_leaves = _pytree.tree_leaves
"""Leaves of nested containers."""
tree_map = _pytree.tree_map
"""Containers of the same structure whose leaves a function has made."""
tree_map_only = _pytree.tree_map_only
"""The same, of leaves of one type; others stay."""
tree_unflatten = _pytree.tree_unflatten
"""The reverse of `tree_flatten`."""
register_pytree_node = _pytree.register_pytree_node
"""Makes another type a container."""

# --- Operators and the dispatcher

compiled: Any = torch._C
"""PyTorch's extension module, as the owner of functions that are replaced."""
OpOverload = _ops.OpOverload
"""One overload of an operator."""
OpNamespace = _ops._OpNamespace
"""The type of `torch.ops.aten`; its `__getattr__` finds operators."""
CustomOpDef = custom_ops.CustomOpDef
"""An operator that `torch.library.custom_op` has made."""
DispatchKey = torch._C.DispatchKey
"""Kinds of kernels among which the dispatcher chooses."""
DispatchKeySet = torch._C.DispatchKeySet
"""Several of them."""
ExcludeDispatchKeyGuard: Any = torch._C._ExcludeDispatchKeyGuard
"""A context in which the dispatcher leaves a set of keys out."""
all_op_names: Callable[[], list[str]] = torch._C._dispatch_get_all_op_names
"""Names of all operators with their overloads, such as `aten::add.out`."""
is_op: Callable[[str], bool] = torch._C._dispatch_has_kernel
"""Tells whether an operator of this name is defined."""
has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key
"""Tells whether an operator has a kernel under a key; RuntimeError where there is no such operator."""
ops_with_kernel: Callable[[str], list[str]] = torch._C._dispatch_get_registrations_for_dispatch_key
"""Names of the operators that have a kernel under a key."""
originals: Any = torch._C._VariableFunctions
"""The functions of `torch` that C++ defines, also where `torch` has replacements for them."""
takes_numbers_as_tensors: Callable[[str], bool] = torch._C._should_allow_numbers_as_tensors
"""Tells whether an operator takes a Python number where its schema has a tensor."""
scoped_library: Callable[..., Any] = torch.library._scoped_library
"""A `torch.library.Library` whose registrations end with the block."""
schema_of: Attribute = attrgetter("_schema")
"""The schema of an overload."""
overload_name: Callable[[Any], str] = attrgetter("_overloadname")
"""The name of an overload without that of its operator: `default`, `Tensor`, `out`."""
handle_of: Attribute = attrgetter("_handle")
"""The C++ handle of an overload, which has `redispatch_boxed(keys, ...)`."""
kernel_under: Callable[[Any], Callable[..., Any]] = attrgetter("_op_dk")
"""A function that calls an overload's kernel under a dispatch key, given first."""
fake_of: Attribute = attrgetter("_abstract_fn")
"""The fake implementation of a `CustomOpDef`, or None."""
qualified_name: Callable[[Any], str] = attrgetter("_qualname")
"""The name of a `CustomOpDef` with its namespace."""
cond_op = cond
"""The operator of `torch.cond`."""
map_op = map_impl
"""That of `map` over the rows of tensors."""
scan_op = scan
"""That of `scan`."""
while_loop_op = while_loop
"""That of `while_loop`."""
DISPATCH_CACHE = "_dispatch_cache"
"""Name of the attribute of such an operator with its kernels by dispatch key, once they were looked up."""
DYNAMO = "torch._dynamo"
"""TorchDynamo."""
PRIMITIVES = _prims_common.__name__
"""The module of shape inference in Python, which asks SymPy for its symbols."""
SYMPY_FUNCTIONS = "torch.utils._sympy.functions"
"""PyTorch's own functions of SymPy's symbols."""

# --- Shape inference in Python

decomposition_table = decompositions
"""Functions that compose operators of others, by overload."""
meta_kernels: Any = _meta_registrations
"""The module of meta kernels that are written in Python."""
suggest_memory_format: Callable[..., torch.memory_format] = _prims_common.suggest_memory_format
"""The memory format that a tensor's strides say."""
contiguous_strides: Callable[..., tuple[int, ...]] = _prims_common.make_contiguous_strides_for
"""Strides of a contiguous tensor of a shape."""
output_strides: Callable[..., tuple[int, ...]] = _prims_common.compute_elementwise_output_strides
"""Strides of what an elementwise kernel makes of operands (TensorIterator)."""
output_permutation: Callable[..., Any] = _prims_common.compute_elementwise_output_logical_to_physical_perm
"""The order of dimensions in memory of what it makes, and whether that is contiguous; since 2.10 a pair."""
LOBPCG: Any = _lobpcg.LOBPCG
"""The solver behind `torch.lobpcg`."""

# --- Modes and tensor subclasses

DisableTorchFunction = torch._C.DisableTorchFunction
"""A context without `__torch_function__` of subclasses and modes."""
DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
"""The same of subclasses alone."""
no_torch_function: Any = torch._C._disabled_torch_function_impl
"""The `__torch_function__` of a subclass that wants none."""
num_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""The number of `__torch_function__` modes that are active."""
function_modes: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack
"""The active `__torch_function__` modes, the outermost first."""
dispatch_mode: Callable[..., Any] = torch._C._get_dispatch_mode
"""The active `__torch_dispatch__` mode of a kind, or None."""
FAKE_MODE: Any = torch._C._TorchDispatchModeKey.FAKE
"""The kind of FakeTensorMode."""
disable_dispatch_modes: Callable[[], Any] = _python_dispatch._disable_current_modes
"""A context without `__torch_dispatch__` modes."""
without_python_dispatcher: Callable[[], Any] = torch._C._DisablePythonDispatcher
"""A context without kernels in Python for dispatch keys, which hold on to what they are called with."""
is_wrapper_subclass: Callable[[Any], bool] = _python_dispatch.is_traceable_wrapper_subclass
"""Tells whether a tensor is made of others that it can be taken apart into."""
FakeTensor = fake_tensor.FakeTensor
"""A tensor with a device and no memory, of FakeTensorMode."""
functorch: Any = torch._C._functorch
"""The C++ side of torch.func: tests for its wrappers, and takes them off."""
without_functorch: Callable[[], Any] = pyfunctorch.temporarily_clear_interpreter_stack
"""A context without the transforms of torch.func."""
device_contexts = _device
"""The module of `with torch.device(...)`."""
remember_factories: Callable[[], Any] = _device._device_constructors
"""Remembers the functions that such a context concerns; later calls answer what the first found."""
MAKE_WRAPPER = "_make_wrapper_subclass"
"""Name of the function of `Tensor` that makes a tensor that consists of others."""
make_subclass: Callable[..., Any] = torch.Tensor._make_subclass
"""Makes a tensor of a subclass that shares the memory of another."""

# --- Tensors and storages

TensorBase: Any = torch._C.TensorBase
"""The C++ side of `torch.Tensor`: its properties answer whatever `Tensor` shows."""
use_count: Callable[[Any], int] = methodcaller("_use_count")
"""The number of C++ references to a tensor."""
storage_use_count: Callable[[int], int] = torch._C._storage_Use_Count
"""The number of C++ references to a storage, given its address."""
storage_address: Callable[[Any], int] = attrgetter("_cdata")
"""The address of the C++ object of a storage."""
is_view: Callable[[Any], bool] = methodcaller("_is_view")
"""Tells whether autograd takes a tensor for a view."""
num_specified: Callable[[Any], int] = methodcaller("_nnz")
"""The number of elements that a sparse tensor has."""
indices_of: Callable[[Any], torch.Tensor] = methodcaller("_indices")
"""The indices of a COO tensor, which may not be coalesced."""
values_of: Callable[[Any], torch.Tensor] = methodcaller("_values")
"""The values of such a tensor."""
REDUCE = "_reduce_ex_internal"
"""Name of the function of `Tensor` that takes it apart for pickle."""
SAVE = "_save"
"""Name of the function of `torch.serialization` that writes an archive."""
flatten_tensors: Callable[..., torch.Tensor] = torch._utils._flatten_dense_tensors
"""One tensor that holds others one after another."""
unflatten_tensors: Callable[..., Any] = torch._utils._unflatten_dense_tensors
"""The reverse: views of one tensor in the shapes of others."""
parse_to: Callable[..., Any] = torch._C._nn._parse_to
"""Device, dtype, non_blocking and memory format that arguments of `Tensor.to` say."""


def part_of_rank(tensor: Any, default: Any) -> Any:
    """This rank's part of a DTensor (`_local_tensor`); `default` of any other tensor."""
    return getattr(tensor, "_local_tensor", default)


# --- Autograd

graph_task: Callable[[], int] = torch._C._current_graph_task_id
"""The number of the backward that runs in this thread; -1 where none does."""
autograd_node: Callable[[], Any] = torch._C._current_autograd_node
"""The node that runs, or None."""
next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
"""The number that this thread's next node gets."""
sequence_number: Callable[[Any], int] = methodcaller("_sequence_nr")
"""The number of a node."""
takes_saved_tensor_hooks: Callable[[], bool] = torch._C._autograd._saved_tensors_hooks_is_enabled  # type: ignore[attr-defined]
"""False inside `torch.autograd.graph.disable_saved_tensors_hooks`."""
ENGINE = "_execution_engine"
"""Name of the attribute of `Variable` with autograd's engine."""
Engine: Any = type(Variable._execution_engine)
"""Its type."""
ENGINE_FUNCTION = "_engine_run_backward"
"""The Python function that calls the engine, in the frames of a backward."""
SAVED = "_saved_"
"""The attributes of a node that give what it has saved begin so, and give tensors;"""
SAVED_AS_PACKED = "_saved_tensors"
"""those that begin so give what hooks have packed."""
CHECKPOINTS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
"""Names of the function of `torch.utils.checkpoint` that both sides of a non-reentrant checkpoint run through:
the first from 2.14 on."""

# --- Devices: PrivateUse1 and CUDA

register_device: Callable[..., None] = backend_registration._setup_privateuseone_for_python_backend
"""Registers a device whose kernels are written in Python, under a name; since 2.10."""
registered_device: Callable[[], str] = torch._C._get_privateuse1_backend_name
"""The name under which PrivateUse1 is registered; `privateuseone` where it is not."""
create_empty_tensor: Callable[..., torch.Tensor] = torch._C._acc.create_empty_tensor
"""Makes a tensor of such a device, without a storage of its own."""
DeviceGuard: Any = torch._C._acc.DeviceGuard
"""The class of what PyTorch asks about such a device."""
DEVICE_TYPE: Any = torch._C._autograd.DeviceType.PrivateUse1
"""The type of such a device in C++."""
GET_ACCELERATOR = "_get_accelerator"
"""Name of the function of `compiled` that gives the device of this process's accelerator."""
parallel_functions: Any = _functions
"""Module of what `DataParallel` does between GPUs."""
BROADCAST_COALESCED = "_broadcast_coalesced"
"""Name of the function of `compiled` that copies tensors to several GPUs in large buffers."""
GET_STREAM = "_get_stream"
"""Name of the function of `parallel_functions` that gives the stream in which `DataParallel` copies its inputs."""
SCATTER = "_scatter"
"""Name of the function of `compiled` that copies parts of a tensor to several GPUs."""
GATHER = "_gather"
"""Name of the function of `compiled` that copies tensors of several GPUs into one."""
CUDA_INITIALIZED = "_initialized"
"""Name of the attribute of `torch.cuda` that is True once CUDA is initialized."""
CUDART = "_cudart"
"""Name of the attribute of `torch.cuda` with the CUDA runtime."""
COMPILE_KERNEL = "_compile_kernel"
"""Name of the function of `torch.cuda` that compiles a kernel from its source, since torch 2.9."""
NVTX = "_nvtx"
"""Name of the attribute of `torch.cuda.nvtx` with NVIDIA's annotations."""
USES_CUDNN_FOR_WEIGHTS = "_use_cudnn_rnn_flatten_weight"
"""Name of the function of `torch` that tells whether recurrent layers keep their weights in one buffer for cuDNN."""
RAW_STREAM = "_cuda_getCurrentRawStream"
"""Name of the function of `compiled`, only in builds with CUDA, that gives the address of the current stream."""
attention_backends: Callable[[], list[int]] = torch._C._get_sdp_priority_order
"""Backends of scaled dot product attention in the order in which PyTorch tries them."""


def record_history(*args: Any, **options: Any) -> None:
    """Begin or end the recording of what the caching allocator does."""
    torch.cuda.memory._record_memory_history(*args, **options)


def snapshot() -> Any:
    """Return the recorded history."""
    return torch.cuda.memory._snapshot()


def is_history_recorded() -> bool:
    """Return True if what the caching allocator does is being recorded; builds without CUDA record nothing."""
    return bool(getattr(torch._C, "_cuda_isHistoryEnabled", bool)())


def dump_snapshot(file: str) -> None:
    """Write the recorded history into a file."""
    torch.cuda.memory._dump_snapshot(file)


def nvml_index(device: int) -> int:
    """The number that NVML gives a GPU of PyTorch's."""
    return torch.cuda._get_nvml_device_index(device)


def cuda_functions(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Functions of `compiled` that `torch.cuda` calls (`_cuda_memoryStats` of `memoryStats`)."""
    return {f"_cuda_{name}": function for name, function in functions.items()}


def accelerator_functions(functions: Mapping[str, Any]) -> dict[str, Any]:
    """Functions of `compiled` that `torch.accelerator` calls (`_accelerator_emptyCache` of `emptyCache`)."""
    return {f"_accelerator_{name}": function for name, function in functions.items()}


# --- Profiler

ProfilerEvent = torch._C._profiler._ProfilerEvent
"""An event of `torch.profiler`, with those it contains."""
AllocationFields: Any = torch._C._profiler._ExtraFields_Allocation
"""The part of an event that describes an allocation."""

# --- Modules

Convolution = conv._ConvNd
"""The base class of convolutions."""
BatchNorm = batchnorm._BatchNorm
"""The base class of batch normalisations."""
InstanceNorm = instancenorm._InstanceNorm
"""The base class of instance normalisations."""
call_module: Callable[..., Any] = torch.nn.Module._wrapped_call_impl
"""A module's `__call__` as PyTorch defines it."""
init_module: Callable[..., None] = torch.nn.Module.__init__
"""Its constructor."""
CALL_COMPILED = "_compiled_call_impl"
"""Name of the attribute of a module with what takes the place of `call_uncompiled`."""
INLINED = "_torchdynamo_inline"
"""Name of the attribute of a function with the one that TorchDynamo traces where compiled code calls it."""
call_uncompiled: Attribute = attrgetter("_call_impl")
"""The function that a module's call runs if it is not compiled."""
LoadedKeys: Any = module._IncompatibleKeys
"""The type that `load_state_dict` returns: missing and unexpected keys."""
forward_hooks: Callable[[Any], dict[int, Any]] = attrgetter("_forward_hooks")
"""A module's hooks after `forward`, by number."""
forward_pre_hooks: Callable[[Any], dict[int, Any]] = attrgetter("_forward_pre_hooks")
"""A module's hooks before `forward`, by number."""
hook_tables: Callable[[Any], tuple[dict[int, Any], ...]] = attrgetter(
    *("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_forward_hooks", "_forward_hooks_with_kwargs"),
    "_forward_hooks_always_called",
)
"""Both, and what else a module keeps of them by number."""


# --- Triton

TRITON_CHECKS: Any = _triton
"""The module that asks what of Triton is there, and remembers it."""

# --- Loading of data

GET_ITERATOR = "_get_iterator"
"""Name of the function of `DataLoader` that makes the iterator that fits its workers."""
get_iterator: Callable[[Any], Any] = DataLoader._get_iterator
"""The function of that name."""
LoaderIterator: Any = dataloader._BaseDataLoaderIter
"""The base class of iterators of `DataLoader`."""
num_yielded: Callable[[Any], int] = attrgetter("_num_yielded")
"""The number of batches that an iterator has given."""
SampleFetcher: Any = fetch._MapDatasetFetcher
"""Takes the samples of a batch out of a dataset by their numbers, and collates them."""
WorkerInfo = worker.WorkerInfo
"""The type that `get_worker_info()` returns inside a worker."""


def exchange_worker_info(info: Any) -> Any:
    """Let `get_worker_info()` give `info` in this process; what it has given until now."""
    before, worker._worker_info = worker._worker_info, info
    return before


class OneProcessIterator(dataloader._SingleProcessDataLoaderIter):
    """The iterator of a `DataLoader` that loads in this process."""

    @property
    def fetcher(self) -> Any:
        """The object that takes samples out of the dataset, with its `collate_fn`."""
        return self._dataset_fetcher

    def next_batch(self) -> Any:
        """Load the next batch; StopIteration after the last."""
        return super()._next_data()  # type: ignore[no-untyped-call]

    def _next_data(self) -> Any:
        return self.next_batch()


# --- What a training loop makes

Loss = loss._Loss
"""The base class of the losses in torch.nn."""
autocast_is_enabled: Attribute = attrgetter("_enabled")
"""The switch of an autocast."""


def stand_in_script(function: Callable[..., Any], original: Callable[..., Any]) -> None:
    """Let TorchScript take `function` for the operator that it takes `original` for, if it knows operators already."""
    if _builtins._builtin_table is not None and (name := _builtins._find_builtin(original)) is not None:
        _builtins._register_builtin(function, name)


@contextmanager
def standing_in_script(pairs: Iterable[tuple[Any, Any]]) -> Iterator[None]:
    """Let TorchScript take functions for the operators of their originals, second of each pair, inside the block."""
    operators = _builtins._get_builtin_table()
    known = {id(function): operators[id(original)] for function, original in pairs if id(original) in operators}
    operators.update(known)
    try:
        yield
    finally:
        for number in known:
            operators.pop(number, None)


def keep_script_executor() -> None:
    """Keep the executor of TorchScript: the older one, which programs may choose, refuses the virtual device."""
    for name in ("_jit_set_profiling_mode", "_jit_set_profiling_executor"):
        setattr(torch._C, name, lambda _is_on: True)


def let_lazy_parameters_be_asked() -> None:
    """Let parameters of lazy modules, which are empty before the first call, be asked for their size and storage."""
    asked = (torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.untyped_storage, torch.Tensor.element_size)
    lazies: tuple[Any, ...] = (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)
    for lazy in lazies:
        lazy._allowed_methods = [*lazy._allowed_methods, *asked, torch.Tensor.detach, torch.Tensor.stride]
