"""Kernels: the schema of one overload of an op, and the tables of hand-written kernels."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

Function = Callable[..., Any]
HAND_WRITTEN: dict[str, Function] = {}
"""Kernels by qualified overload name. They take the op's arguments and allocate what it returns."""

Temporaries = Callable[..., Iterator[None]]
TEMPORARIES: dict[str, Temporaries] = {}
"""Hidden memory of kernels on a GPU: by op name without overload, a generator function of the op's arguments that
allocates and frees memory in the kernel's order and yields once, where the kernel makes its outputs."""
HOST_TEMPORARIES: dict[str, Temporaries] = {}
"""Hidden memory of the host's kernels."""

READS_AT_INDEX = frozenset({"index_select", "gather", "index"})
"""Kernels that read where an index says: embeddings, `x[index]`."""

OF_PYTORCH = frozenset(
    {"aten", "prim", "prims", "profiler", "quantized", "c10d", "_c10d_functional", "symm_mem", "fsdp", "inductor",
     "rngprims", "streams", "torchvision"}
)  # fmt: skip
"""Namespaces whose ops are known: the table has their hidden memory, or they take none."""

_STRUCTURED = torch._C.DispatchKey.CompositeExplicitAutogradNonFunctional


class Kernel:
    """The schema of one overload, in the form that kernels need."""

    def __init__(self, op: OpOverload) -> None:
        schema = op._schema
        self.op = op
        self.packet = schema.name.split("::")[-1]
        self.name = f"{op.namespace}.{self.packet}.{op._overloadname}"
        self.written = tuple(
            (i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        )
        """Positions and names of the arguments that are written."""
        self.results = frozenset(
            a.name for a in schema.arguments if a.kwarg_only and a.alias_info is not None and a.alias_info.is_write
        )
        """Names of the arguments that receive its results, such as `out`."""
        self.num_returns = len(schema.returns)
        self.returns_written = bool(self.written) and all(r.alias_info is not None for r in schema.returns)
        """True if it returns what it writes or nothing; False if it has results of its own, as rrelu_with_noise does.
        """
        self.is_view = not self.written and any(r.alias_info is not None for r in schema.returns)
        self.is_random = torch.Tag.nondeterministic_seeded in op.tags
        self.in_place = self.packet.endswith("_") and bool(self.written)
        # Structured kernels infer shapes in C++; the Meta key may lead to a slow Python reference instead.
        structured = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), _STRUCTURED.name)
        self.infer = functools.partial(op._op_dk, _STRUCTURED) if structured else op
        self.pointwise = torch.Tag.pointwise in op.tags
        self.over_lists = self.packet.startswith("_foreach_")
        self.hand_written = HAND_WRITTEN.get(self.name)
        self.temporaries = TEMPORARIES.get(self.packet)
        self.host_temporaries = HOST_TEMPORARIES.get(self.packet)
        self.tensor_positions = tuple(i for i, a in enumerate(schema.arguments) if isinstance(a.type, torch.TensorType))
        self.strict_tensors = () if torch._C._should_allow_numbers_as_tensors(self.packet) else self.tensor_positions
        """Positions of tensor arguments for which PyTorch passes a Python number although the kernel takes none."""
        self.is_foreign = op.namespace not in OF_PYTORCH
        self.reads_at_index = op.namespace == "aten" and self.packet in READS_AT_INDEX

    def written_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return those of its arguments that it writes."""
        return [args[i] if i < len(args) else kwargs.get(name) for i, name in self.written]


_kernels: dict[OpOverload, Kernel] = {}


def kernel_of(op: OpOverload) -> Kernel:
    """Return the description of `op`, made at its first use."""
    kernel = _kernels.get(op)
    if kernel is None:
        kernel = _kernels[op] = Kernel(op)
    return kernel


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results, including those in lists."""
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def enter_hand_written(name: str, function: Function) -> None:
    """Let `function` run the overload called `aten.nonzero.default`."""
    HAND_WRITTEN[name] = function
    for kernel in _kernels.values():  # some ran before
        if kernel.name == name:
            kernel.hand_written = function


def enter_temporaries(packet: str, function: Temporaries, *, host: bool) -> None:
    """Let the kernels of an op, named without overload, take the memory of `function`, on the GPU or on the host."""
    (HOST_TEMPORARIES if host else TEMPORARIES)[packet] = function
    for kernel in _kernels.values():
        if kernel.packet == packet:
            kernel.temporaries = TEMPORARIES.get(packet)
            kernel.host_temporaries = HOST_TEMPORARIES.get(packet)
