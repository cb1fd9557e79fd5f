"""spconv's pooling (spconv/pytorch/pool.py, functional.py and ops.py)."""

from typing import Any

import torch
from torch.amp import custom_bwd, custom_fwd

from memlint.accelerator.device import is_virtual
from memlint.accelerator.values import content
from memlint.libraries.library import assume_once, launch
from memlint_libraries.spconv.convolution import Layer
from memlint_libraries.spconv.modules import SparseModule
from memlint_libraries.spconv.pairs import Pairs
from memlint_libraries.spconv.tensor import ConvAlgo, SparseConvTensor, library

Tensor = torch.Tensor
_in_pool = library.provides("spconv.pytorch", "spconv.pytorch.pool")


class _Largest(torch.autograd.Function):
    """Saves both sides, and the way back (functional.py:380)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, features: Tensor, pairs: Pairs) -> Tensor:
        out = features.new_empty(pairs.out_indices.shape[0], features.shape[1])
        launch((features, pairs.forward), (out,))
        ctx.save_for_backward(pairs.backward, features, out)
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        back, features, out = ctx.saved_tensors
        made = torch.zeros_like(features)
        launch((grad, back, features, out), (made,))
        return made, None


class _NativeLargest(torch.autograd.Function):
    """Saves pairs, their numbers and both sides (functional.py:360)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, features: Tensor, pairs: Pairs) -> Tensor:
        out = features.new_zeros(pairs.out_indices.shape[0], features.shape[1])
        pairs.backward.cpu()
        launch((features.contiguous(), pairs.forward), (out,))
        ctx.save_for_backward(pairs.forward, pairs.backward, features, out)
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        pairs, counts, features, out = ctx.saved_tensors
        made = torch.zeros_like(features)
        counts.cpu()
        launch((grad.contiguous(), pairs, features, out), (made,))
        return made, None


class _Mean(torch.autograd.Function):
    """Saves both sides, the way back, and in training how many each position meets in int32 (functional.py:400)."""

    @staticmethod
    @custom_fwd(device_type="cuda", cast_inputs=torch.float16)  # type: ignore[untyped-decorator]
    def forward(ctx: Any, features: Tensor, pairs: Pairs, training: bool) -> Tensor:
        features_ = features.contiguous()
        number = pairs.out_indices.shape[0]
        out = features.new_empty(number, features.shape[1])
        counts = features.new_zeros(number, dtype=torch.int32) if training else torch.Tensor()
        launch((features_, pairs.forward), (out, counts))
        ctx.save_for_backward(pairs.backward, features, out, counts)
        return out

    @staticmethod
    @custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        back, _features, _out, counts = ctx.saved_tensors
        made = grad.new_zeros(back.shape[1], grad.shape[1])
        launch((grad.contiguous(), back, counts), (made,))
        return made, None, None


class _Pool(Layer):
    most = 128
    """Places of a kernel for implicit products (pool.py:69)."""

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, indice_key: str | None = None,
        algo: ConvAlgo | None = None, record_voxel_count: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        strided = kernel_size if stride is None else stride
        super().__init__(kernel_size, strided, padding, dilation, 0, indice_key, algo, name, self.most)

    def forward(self, x: SparseConvTensor) -> SparseConvTensor:
        """Pool the rows that meet at a place (pool.py:99); no earlier layer may have looked up pairs by this name."""
        if self.indice_key is not None and self.indice_key in x.indice_dict:
            raise AssertionError(f"your indice key {self.indice_key} already exists in this sparse tensor.")
        pairs, known = self.pairs_of(x)
        return x.replaced(self.pooled(x.features, pairs), pairs.out_indices, pairs.out_sizes, known)

    def pooled(self, features: Tensor, pairs: Pairs) -> Tensor:
        """The largest."""
        largest = _NativeLargest if self.algo is ConvAlgo.Native else _Largest
        return largest.apply(features, pairs)  # type: ignore[no-any-return, no-untyped-call]


class _AveragePool(_Pool):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"algo": ConvAlgo.MaskImplicitGemm})
        if self.shape.places > 32:
            raise AssertionError("avg pool only support implicit-gemm style indice gen with kv <= 32 limit")

    def pooled(self, features: Tensor, pairs: Pairs) -> Tensor:
        """The mean of those that there are."""
        return _Mean.apply(features, pairs, self.training)  # type: ignore[no-any-return, no-untyped-call]


class _GlobalPool(SparseModule):
    def forward(self, x: SparseConvTensor) -> Tensor:
        """Pool each example [examples, channels], by a list of its rows (pool.py:260, ops.py:2108)."""
        if not is_virtual(x.indices):
            chosen = [x.indices[:, 0] == each for each in range(x.batch_size)]
            return torch.stack([self.pooled(x.features[rows]) for rows in chosen])
        library.assume()
        lists = x.indices.new_empty(x.batch_size, len(x.indices))
        counts = x.indices.new_zeros(x.batch_size)
        launch((x.indices,), (lists, counts))
        counts.cpu()
        numbers = _rows_of_examples(x)
        return torch.stack([self.pooled(x.features[lists[each, :number]]) for each, number in enumerate(numbers)])

    def pooled(self, rows: Tensor) -> Tensor:
        """Pool the rows of an example."""
        raise NotImplementedError


def _rows_of_examples(x: SparseConvTensor) -> list[int]:
    known = content(x.indices)
    if known is not None:
        return known[:, 0].long().bincount(minlength=x.batch_size).tolist()
    assume_once("positions of sparse tensors of spconv are taken to be spread evenly over the examples")
    return [len(x.indices) * (each + 1) // x.batch_size - len(x.indices) * each // x.batch_size
            for each in range(x.batch_size)]  # fmt: skip


@_in_pool
class SparseGlobalMaxPool(_GlobalPool):
    """The largest of each channel."""

    def pooled(self, rows: Tensor) -> Tensor:
        """Take the maximum over the rows of an example."""
        return rows.max(0)[0]


@_in_pool
class SparseGlobalAvgPool(_GlobalPool):
    """The mean of the first channel alone, as there (pool.py:273)."""

    def pooled(self, rows: Tensor) -> Tensor:
        """Take the mean over the rows of an example."""
        return rows.mean(0)[0]


for _name, _base, _most in (("SparseMaxPool", _Pool, 4), ("SparseAvgPool", _AveragePool, 3)):
    for _ndim in range(1, _most + 1):
        _in_pool(type(f"{_name}{_ndim}d", (_base,), {"ndim": _ndim, "__module__": "spconv.pytorch.pool"}))
