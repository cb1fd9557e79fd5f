"""fbgemm_gpu 1.8.0 runs its own Python, with its build for the CPU; what its tables take on a GPU is known.

codegen/training/forward/embedding_forward_split_template.cu:534, backward/embedding_backward_split_template.cu:660 and
src/split_embeddings_utils/transpose_embedding_input.cu:237. A step of a table's optimizer is part of its backward.
"""

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.accelerator.private import all_op_names, schema_of
from memlint.cuda.hidden import cub
from memlint.libraries.library import Library, UnknownFunctionError, launch, temporary

Tensor = torch.Tensor
library = Library("fbgemm_gpu", distribution="fbgemm-gpu", version="1.8.0")
_LOOKUP = re.compile(r"fbgemm::split_embedding_codegen_lookup_(?!none)\w+_function_pt2")
_DENSE = "fbgemm::dense_embedding_codegen_lookup_function"
_OUTPUT = {0: torch.float32, 1: torch.float16, 5: torch.bfloat16}
"""Dtypes of outputs by their numbers (`SparseType`)."""
_MEAN, _NOT_POOLED = 1, 2
"""Poolings by their numbers (`PoolingMode`)."""
_LONG = 1024
"""Rows of one index that a block adds up; longer ones are added up in a place of their own."""


@library.patch("fbgemm_gpu.split_embedding_codegen_lookup_invokers")
def _replace(_: ModuleType) -> None:
    """Let tables on the simulated GPU take what those of a GPU do."""
    for name in all_op_names():
        if _LOOKUP.fullmatch(name) or name == _DENSE:
            packet = getattr(torch.ops.fbgemm, name.partition("::")[2])
            setattr(torch.ops.fbgemm, name.partition("::")[2], _looking_up(packet))


def _looking_up(op: Any) -> Callable[..., Any]:
    names = [argument.name for argument in schema_of(op.default).arguments]

    def look_up(*args: Any, **kwargs: Any) -> Any:
        options = {**dict(zip(names, args, strict=False)), **kwargs}
        if not is_virtual(options["indices"]):
            return op(*args, **kwargs)
        if options.get("max_B", -1) != -1:
            text = "Tables of fbgemm-gpu with a batch of each feature are used, and it is not known what they take"
            raise UnknownFunctionError("fbgemm_gpu.split_table_batched_embeddings_ops_training", text)
        library.assume()
        dense = options.get("dev_weights")
        placeholder, weights = options.get("placeholder_autograd_tensor"), options.get("weights", [dense])[0]
        return _Looked.apply(  # type: ignore[no-untyped-call]
            dense if placeholder is None else placeholder, options["indice_weights"], weights, options
        )

    return look_up


class _Looked(torch.autograd.Function):
    """Saves indices, offsets and weights of entries; backward sorts the indices and adds up rows of each."""

    @staticmethod
    def forward(ctx: Any, _: Tensor, factors: Tensor | None, weights: Tensor, options: dict[str, Any]) -> Tensor:
        indices, offsets = options["indices"], options["offsets"]
        pooling, width = options["pooling_mode"], options["total_D"]
        if pooling == _NOT_POOLED:
            shape = (len(indices), options["max_D"])
        else:
            shape = ((len(offsets) - 1) // (len(options["D_offsets"]) - 1), width)
        out: Tensor = weights.new_empty(shape, dtype=_OUTPUT[options["output_dtype"]])
        launch((weights, indices, offsets, factors), (out,))
        ctx.save_for_backward(indices, offsets, factors)
        ctx.weights, ctx.pooling = weights, pooling  # weights are the module's
        ctx.max_width, ctx.bits = options["max_D"], options["total_hash_size_bits"]
        ctx.placements = options["weights"][2] if "weights" in options else None
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        indices, offsets, factors = ctx.saved_tensors
        grad = grad.contiguous()
        of_factors = torch.empty_like(factors) if ctx.needs_input_grad[1] else None
        launch((grad, ctx.weights, indices, offsets), (of_factors,))
        made = torch.zeros_like(ctx.weights) if ctx.placements is None else None
        number, key = len(indices), indices.element_size()
        info = torch.int64 if ctx.pooling == _NOT_POOLED else torch.int32

        def integers(count: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.empty(count, dtype=dtype, device=indices.device)

        infos, infos_sorted = integers(number, info), integers(number, info)
        places, places_sorted = torch.empty_like(indices), torch.empty_like(indices)
        temporary(cub.radix_sort(number, key, info.itemsize, ctx.bits))
        runs, lengths, num_runs = torch.empty_like(indices), integers(number), integers(1)
        temporary(cub.scan(number, key))
        ends = integers(number + 1)
        temporary(cub.scan(number, 4))
        del infos
        table_ends = None if ctx.placements is None else torch.zeros_like(ctx.placements)
        factors_sorted = None
        if factors is not None:
            factors_sorted = torch.empty_like(factors)
            temporary(cub.radix_sort(number, key, factors.element_size(), ctx.bits))
        launch((indices, offsets, factors), (places, infos_sorted, runs, lengths, num_runs, ends, factors_sorted))
        del places, places_sorted
        mean = torch.empty_like(grad) if ctx.pooling == _MEAN else None
        is_deterministic = torch.are_deterministic_algorithms_enabled()
        long, num_long = integers(number), integers(1)
        longest, num_longest = integers(0 if is_deterministic else number), integers(1)
        blocks = 0 if is_deterministic else number // _LONG
        counter, sums = integers(blocks), grad.new_zeros((blocks, ctx.max_width), dtype=torch.float32)
        launch((grad, mean, runs, ends, infos_sorted, long, longest, counter), (ctx.weights, made, sums))
        del table_ends, num_long, num_longest
        return made, of_factors, None, None
