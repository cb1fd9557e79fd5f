"""spconv's modules that hold others or take features alone, and tables (modules.py, identity.py, tables.py)."""

import functools
import math
import operator
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Self

import torch

from memlint.libraries.library import assume_once, launch
from memlint_libraries.spconv.tensor import LARGEST, SparseConvTensor, library

Tensor = torch.Tensor
_provides = library.provides("spconv.pytorch")
_in_modules = library.provides("spconv.pytorch", "spconv.pytorch.modules")
_in_tables = library.provides("spconv.pytorch", "spconv.pytorch.tables")
_in_functional = library.provides("spconv.pytorch.functional")


@_in_modules
class SparseModule(torch.nn.Module):
    """A module that takes a sparse tensor."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self.name = name
        self._sparse_unique_name = ""


@_in_modules
class SparseSequential(SparseModule):
    """One after the other; what is no sparse module takes features alone."""

    def __init__(self, *modules: Any, **named: Any) -> None:
        super().__init__()
        is_dict = len(modules) == 1 and isinstance(modules[0], OrderedDict)
        for name, module in modules[0].items() if is_dict else enumerate(modules):
            self.add_module(str(name), module)
        for name, module in named.items():
            if name in self._modules:
                raise ValueError("name exists.")
            self.add_module(name, module)

    def __getitem__(self, place: int) -> Any:
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} is out of range")
        return list(self._modules.values())[place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def add(self, module: torch.nn.Module, name: str | None = None) -> None:
        """One more. Raises KeyError where its number is a name already."""
        if name is None and str(len(self)) in self._modules:
            raise KeyError("name exists")
        self.add_module(name or str(len(self)), module)

    def forward(self, x: Any) -> Any:
        """Run the modules on a sparse tensor, or on a tensor."""
        for module in self:
            if is_spconv_module(module) or not isinstance(x, SparseConvTensor):
                x = module(x)
            elif len(x.indices):
                x = x.replace_feature(module(x.features))
        return x


class _OfFeatures(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        """Run the module on a sparse tensor's features, or on a tensor."""
        return x.replace_feature(super().forward(x.features)) if isinstance(x, SparseConvTensor) else super().forward(x)


def _of_features(name: str, base: type) -> Any:
    return _in_modules(type(name, (_OfFeatures, base), {"__module__": "spconv.pytorch.modules"}))


_batch_norm, _relu = _of_features("SparseBatchNorm", torch.nn.BatchNorm1d), _of_features("SparseReLU", torch.nn.ReLU)
_of_features("SparseSyncBatchNorm", torch.nn.SyncBatchNorm)
_of_features("SparseIdentity", torch.nn.Identity)


@library.provides("spconv.pytorch.modules")
def is_spconv_module(module: Any) -> bool:
    """Return True if the module takes sparse tensors in a `SparseSequential`; others take features alone."""
    return isinstance(module, SparseModule | _batch_norm | _relu)


@_in_modules
def assign_name_for_sparse_modules(module: torch.nn.Module) -> None:
    """Let each know its place."""
    for name, each in module.named_modules():
        if isinstance(each, SparseModule):
            each._sparse_unique_name = name


@_provides
class ToDense(SparseModule):
    """A tensor of all positions."""

    def forward(self, x: SparseConvTensor) -> Tensor:
        """Channels come first."""
        return x.dense()


@_provides
class RemoveGrid(SparseModule):
    """Drop the grid."""

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """Drop the grid of a tensor."""
        x.grid = None
        return x


class _KeepsSize(torch.nn.Module):
    def input_spatial_size(self, out_size: Any) -> Any:
        """The same."""
        return out_size


@library.provides("spconv.pytorch", "spconv.pytorch.identity")
class Identity(_KeepsSize):
    """Nothing."""

    def forward(self, x: Any) -> Any:
        """The same."""
        return x


# --- tables: several tensors of the same positions, or of others


class _Table(_KeepsSize, SparseModule):
    def forward(self, tensors: list[SparseConvTensor]) -> SparseConvTensor:
        """Features put together, which the positions of the first have."""
        first = tensors[0]
        for each in tensors:
            _refuse_other_sizes(first, each)
            if len(each.indices) != len(first.indices):
                raise AssertionError(f"{type(self).__name__} takes tensors of the same positions")
        made = first.replace_feature(self.together([each.features for each in tensors]))
        made.benchmark_record = tensors[1].benchmark_record
        return made

    def together(self, features: list[Tensor]) -> Tensor:
        """Combine the features of all tensors."""
        raise NotImplementedError


@_in_tables
class JoinTable(_Table):
    """Channels after each other (tables.py:25)."""

    def together(self, features: list[Tensor]) -> Tensor:
        """Concatenate the features of all tensors."""
        return torch.cat(features, 1)


@_in_tables
class AddTable(_Table):
    """Sums, begun with zero as Python's (tables.py:48)."""

    def together(self, features: list[Tensor]) -> Tensor:
        """Sum the features of all tensors."""
        total: Tensor = sum(features)  # type: ignore[assignment]
        return total


@library.provides("spconv.pytorch.tables")
class AddTableMisaligned(_KeepsSize, SparseModule):
    """Sums of tensors of other positions."""

    def forward(self, tensors: list[SparseConvTensor]) -> SparseConvTensor:
        """Sum by a table of positions."""
        return sparse_add_hash_based(*tensors)


@_in_tables
class ConcatTable(SparseModule):
    """Runs each module on the same tensor."""

    def forward(self, x: Any) -> list[Any]:
        """Return the output of each module."""
        return [module(x) for module in self._modules.values() if module is not None]

    def add(self, module: torch.nn.Module) -> Self:
        """One more."""
        self._modules[str(len(self._modules))] = module
        return self

    def input_spatial_size(self, out_size: Any) -> Any:
        """Return the size that the first module needs."""
        return self._modules["0"].input_spatial_size(out_size)  # type: ignore[union-attr, operator]


def _refuse_other_sizes(first: SparseConvTensor, other: SparseConvTensor) -> None:
    sizes = [(x.spatial_shape, x.batch_size, x.features.shape[1]) for x in (first, other)]
    if sizes[0] != sizes[1]:
        raise AssertionError(f"sparse tensors of other sizes are put together: {sizes[0]} and {sizes[1]}")


def _summed(tensors: tuple[SparseConvTensor, ...], features: Tensor, indices: Tensor) -> SparseConvTensor:
    """Make the sum, and keep what was looked up if no position is new."""
    first, most = tensors[0], max(tensors, key=lambda each: len(each.features))
    made = SparseConvTensor(features, indices, first.spatial_shape, first.batch_size)
    if len(features) == len(most.features):
        made.indice_dict = most.indice_dict
    made.benchmark_record = first.benchmark_record
    return made


@_in_functional
def sparse_add(*tensors: SparseConvTensor) -> SparseConvTensor:
    """Sum by PyTorch's sparse tensors (functional.py:505)."""
    first = tensors[0]
    shape = [first.batch_size, *first.spatial_shape, first.features.shape[1]]
    for each in tensors:
        _refuse_other_sizes(first, each)
    made = [torch.sparse_coo_tensor(each.indices.T, each.features, shape, requires_grad=True) for each in tensors]
    total = functools.reduce(operator.add, made).coalesce()
    return _summed(tensors, total.values(), total.indices().T.contiguous().int())


@_in_functional
def sparse_add_hash_based(*tensors: SparseConvTensor) -> SparseConvTensor:
    """Sum by a table of twice the positions, all of which are assumed to differ (functional.py:441)."""
    library.assume()
    assume_once("sums of sparse tensors of spconv are taken to meet no position twice")
    first, number = tensors[0], sum(len(each.features) for each in tensors)
    for each in tensors:
        _refuse_other_sizes(first, each)
    shape = [first.batch_size, *first.spatial_shape]
    wide = math.prod(shape) >= LARGEST
    features, indices = first.features, first.indices
    key = torch.int64 if wide else torch.int32
    table = [indices.new_empty(2 * number, dtype=dtype) for dtype in (key, torch.int32)]
    scalars = []
    for each in tensors:
        scalar = _scalars(each.indices.long() if wide else each.indices, shape)
        launch((scalar,), table)
        scalars.append(scalar)
    launch(table, (indices.new_zeros(1, dtype=key), *table))
    out, places = features.new_zeros(number, features.shape[1]), indices.new_zeros(number, indices.shape[1])
    for each, scalar in zip(tensors, scalars, strict=True):
        found, _empty = _found(table, scalar)
        found = found.long()
        out[found] += each.features
        places[found] = each.indices
    return _summed(tensors, out, places)


def _found(table: list[Tensor], keys: Tensor) -> tuple[Tensor, Tensor]:
    """Look up each key in a table: the value, and True if the table has none (hash.py:81)."""
    values, is_empty = (keys.new_empty(len(keys), dtype=dtype) for dtype in (torch.int32, torch.uint8))
    launch((keys, *table), (values, is_empty))
    return values, is_empty > 0


def _scalars(indices: Tensor, shape: list[int]) -> Tensor:
    """One number of each position (functional.py:432)."""
    numbers = indices[:, -1].clone()
    for place in range(len(shape) - 1):
        numbers += math.prod(shape[place + 1 :]) * indices[:, place]
    return numbers
