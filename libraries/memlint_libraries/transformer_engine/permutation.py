"""Transformer Engine 2.9: tokens in the order of experts: pytorch/permutation.py and triton/permutation.py.

Maps are int32. Where a mask says which experts a token goes to, kernels are Triton's, which are tuned once for each
width (triton/permutation.py:372); where indices do, they are sorted (csrc/extensions/permutation.cpp).
"""

from typing import Any

import torch

from memlint.cuda.hidden import cub
from memlint.libraries.library import launch
from memlint.libraries.persistent_tensors import persistent_tensors
from memlint.libraries.triton import tune_once
from memlint_libraries.transformer_engine.recipes import library

Tensor = torch.Tensor
_provides = library.provides("transformer_engine.pytorch", "transformer_engine.pytorch.permutation")
_BLOCK = 1024
"""Tokens that a block of the kernel sums up that makes a map (triton/permutation.py:222)."""


def _made(x: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(shape, dtype=dtype or x.dtype, device=x.device)


def _moved(kernel: str, x: Tensor, rows: int, *read: Tensor | None) -> Tensor:
    """Rows of tokens in another order, by a kernel that is tuned."""
    library.assume()
    out = _made(x, rows, x.shape[1])
    tune_once(("transformer_engine", kernel, x.shape[1]), [x])
    launch((x, *read), (out,))
    return out


# --- by a mask


def _map_of(mask: Tensor) -> Tensor:
    """Make the map of each token: the rows that it goes to, the experts, and their number (`make_row_id_map`)."""
    tokens, experts = mask.shape
    made = _made(mask, tokens, 2 * experts + 1, dtype=torch.int32)
    sums = _made(mask, experts, -(-tokens // _BLOCK), dtype=torch.int32)
    launch((mask, sums), (made,))
    return made


class _PermutedByMask(torch.autograd.Function):
    """Saves the map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, rows: int, probs: Tensor | None) -> Any:
        ctx.is_empty = not x.numel()
        if ctx.is_empty:  # permutation.py:196, :309: of nothing the probabilities are their own gradient
            ctx.probs = probs
            return x.view_as(x), x.new_empty(0), x.new_empty(0)
        ids = _map_of(mask)
        out = _moved("permute", x, rows, ids, probs)
        moved = None if probs is None else _made(probs, rows)
        ctx.save_for_backward(ids)
        ctx.shape = x.shape[0], mask.shape[1]
        ctx.mark_non_differentiable(ids)
        return out, ids, moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any, grad_of_probs: Tensor | None) -> Any:
        if ctx.is_empty:
            return grad, None, None, ctx.probs
        (ids,) = ctx.saved_tensors
        tokens, experts = ctx.shape
        dx = _moved("unpermute", grad, tokens, ids, grad_of_probs)
        of_probs = None
        if ctx.needs_input_grad[3]:
            assert grad_of_probs is not None
            of_probs = _made(grad_of_probs, tokens, experts)
        return dx, None, None, of_probs


class _UnpermutedByMask(torch.autograd.Function):
    """Saves the map, and with probabilities these and its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor, probs: Tensor | None, tokens: int) -> Any:
        ctx.is_empty = not x.numel()
        if ctx.is_empty:
            ctx.probs = probs
            return x.view_as(x)
        ctx.save_for_backward(ids, probs, None if probs is None else x)
        ctx.rows = x.shape[0]
        return _moved("unpermute", x, tokens, ids, probs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if ctx.is_empty:
            return grad, None, ctx.probs, None
        ids, probs, x = ctx.saved_tensors
        if probs is None:
            return _moved("permute", grad, ctx.rows, ids), None, None, None
        dx = _moved("unpermute backward", grad, ctx.rows, ids, probs, x)
        return dx, None, torch.empty_like(probs), None


# --- by indices


def _workspace(x: Tensor, size: int) -> None:
    """Keep the workspace that sorts indices; replace it for more indices (csrc/extensions/permutation.cpp:20)."""

    def make() -> tuple[Tensor, ...]:
        numbers = [_made(x, size, dtype=torch.int32) for _ in range(3)]
        return *numbers, _made(x, cub.radix_sort(size, 4, 4), dtype=torch.int8)

    persistent_tensors("transformer_engine permutation", make, size)


class _PermutedByIndex(torch.autograd.Function):
    """Saves the map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, rows: int, most: int) -> Any:
        library.assume()
        index = index.to(torch.int32)
        number = index.numel()
        _workspace(x, max(most, x.shape[0]) * index.shape[1])
        out = _made(x, rows if rows > 0 else number, x.shape[1])
        ids = _made(x, number, dtype=torch.int32)
        launch((x, index), (out, ids))
        ctx.save_for_backward(ids)
        ctx.tokens = x.shape[0]
        ctx.mark_non_differentiable(ids)
        return out, ids

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        grad = grad.contiguous()
        dx = _made(grad, ctx.tokens, grad.shape[1])
        launch((grad, *ctx.saved_tensors), (dx,))
        return dx, None, None, None


class _UnpermutedByIndex(torch.autograd.Function):
    """Saves its input, the map and float32 probabilities."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ids: Tensor, probs: Tensor | None) -> Any:
        library.assume()
        probs = None if probs is None else probs.to(torch.float32)
        tokens = ids.shape[0] if probs is None else probs.shape[0]
        out = _made(x, tokens, x.shape[1])
        launch((x, ids, probs), (out,))
        ctx.save_for_backward(x, ids, probs)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, ids, probs = ctx.saved_tensors
        grad = grad.contiguous()
        dx = _made(grad, x.shape[0], grad.shape[1])
        shape = (ids.shape[0], 1) if probs is None else tuple(probs.shape)
        of_probs = _made(grad, *shape, dtype=torch.float32)
        launch((grad, x, ids, probs), (dx, of_probs))
        return dx, None, of_probs if ctx.needs_input_grad[2] else None


# --- chunks


class _SortedChunks(torch.autograd.Function):
    """Saves the map."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Tensor, order: Tensor, probs: Tensor | None) -> Any:
        ids = _made(x, x.shape[0], dtype=torch.int32)
        launch((sizes, order), (ids,))
        out = _moved("sort chunks", x, x.shape[0], ids, probs)
        ctx.save_for_backward(ids)
        return out, None if probs is None else _made(probs, x.shape[0])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_of_probs: Tensor | None) -> Any:
        dx = _moved("sort chunks", grad, grad.shape[0], *ctx.saved_tensors, grad_of_probs)
        of_probs = None
        if grad_of_probs is not None and ctx.needs_input_grad[3]:
            of_probs = torch.empty_like(grad_of_probs)
        return dx, None, None, of_probs


# --- what programs call


@_provides
def moe_permute(
    inp: Tensor, routing_map: Tensor, num_out_tokens: int = -1, max_token_num: int = -1, map_type: str = "mask"
) -> Any:
    """Rows [num_out_tokens, width] in the order of experts, and the map.

    `routing_map` is a mask of [tokens, experts], or indices of [tokens, experts that each goes to].
    """
    if map_type == "index":
        return _PermutedByIndex.apply(inp, routing_map, num_out_tokens, max_token_num)  # type: ignore[no-untyped-call]
    if map_type != "mask":
        raise ValueError("map_type should be one of 'mask' or 'index'")
    out, ids, _ = _PermutedByMask.apply(inp, routing_map, num_out_tokens, None)  # type: ignore[no-untyped-call]
    return out, ids


@_provides
def moe_permute_with_probs(inp: Tensor, probs: Tensor, routing_map: Tensor, num_out_tokens: int = -1) -> Any:
    """The same of a mask, with the probability of each row."""
    out, ids, moved = _PermutedByMask.apply(inp, routing_map, num_out_tokens, probs)  # type: ignore[no-untyped-call]
    return out, moved, ids


@_provides
def moe_unpermute(
    inp: Tensor, row_id_map: Tensor, merging_probs: Tensor | None = None, restore_shape: Any = None,
    map_type: str = "mask", probs: Tensor | None = None,
) -> Any:  # fmt: skip
    """The tokens, each the sum of its rows, times their probabilities if there are any."""
    if merging_probs is not None and probs is not None:
        raise ValueError("Both merging_probs and probs kwarg are provided. probs is deprecated.")
    merging_probs = probs if merging_probs is None else merging_probs
    if map_type == "index":
        return _UnpermutedByIndex.apply(inp, row_id_map, merging_probs)  # type: ignore[no-untyped-call]
    if map_type != "mask":
        raise ValueError("map_type should be one of 'mask' or 'index'")
    tokens = (inp.shape if restore_shape is None else restore_shape)[0]
    return _UnpermutedByMask.apply(inp, row_id_map, merging_probs, tokens)  # type: ignore[no-untyped-call]


@_provides
def moe_sort_chunks_by_index(inp: Tensor, split_sizes: Tensor, sorted_index: Tensor) -> Any:
    """Chunks of rows in another order."""
    return _SortedChunks.apply(inp, split_sizes, sorted_index, None)[0]  # type: ignore[no-untyped-call]


@_provides
def moe_sort_chunks_by_index_with_probs(inp: Tensor, probs: Tensor, split_sizes: Tensor, sorted_index: Tensor) -> Any:
    """The same, with the probability of each row."""
    return _SortedChunks.apply(inp, split_sizes, sorted_index, probs)  # type: ignore[no-untyped-call]
