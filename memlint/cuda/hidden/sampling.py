"""Rows of kernels that draw and choose: the largest elements, draws by weight, permutations."""

import math
from typing import Any

import torch

from memlint.accelerator.device import scratch
from memlint.cuda.hidden import cub
from memlint.cuda.hidden.table import Steps, contiguous, copy_of, hidden, sorting_storage
from memlint.cuda.simulated import simulated

Tensor = torch.Tensor
INDEX = 8
"""Bytes of an int64."""
THREADS, REGISTERS_PER_THREAD, REGISTERS = 256, 40, 65_536
LEAST_ITEMS, MOST_ITEMS = 4, 64
SHORT_KEY_BITS = 32


@hidden("topk", source="TensorTopK.cu: mbtopk; measured on H200")
def _topk(x: Tensor, k: int, dim: int = -1, *_: Any, **__: Any) -> Steps:
    """A copy of an input that is not contiguous; for long rows what several blocks share, that work on one."""
    yield
    dense = contiguous(x)
    if x.numel():
        take_to_choose(x.numel() // x.shape[dim] if x.dim() else 1, x.shape[dim] if x.dim() else 1, x.element_size())
    del dense


def take_to_choose(num_rows: int, length: int, item: int) -> None:
    """Allocate and free the memory of finding the largest elements of each row."""
    if not _takes_several_blocks(num_rows, length):
        return
    blocks = num_rows * -(-length // (THREADS * _items_per_thread(num_rows * length)))
    rows = [scratch(num_rows * nbytes) for nbytes in (item, INDEX, INDEX)]  # the element, what is sought, its bits
    counts = [scratch(2 * THREADS * blocks), scratch(4 * THREADS * num_rows), scratch(4 * blocks), scratch(4 * blocks)]
    scratch(cub.scan(blocks, INDEX) + cub.ALIGNMENT)
    del counts, rows


def _items_per_thread(numel: int) -> int:
    """Return the number of elements that a thread reads, so that the blocks fill the GPU once."""
    threads = simulated().device.num_sms * (REGISTERS // (REGISTERS_PER_THREAD * THREADS)) * THREADS
    return min(max(-(-numel // threads), LEAST_ITEMS), MOST_ITEMS)


def _takes_several_blocks(num_rows: int, length: int) -> bool:
    """Return True if PyTorch lets several blocks work on a row: the more rows, the shorter they may be."""
    limits = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4_000, 800), (math.inf, 400))
    return length >= next(shortest for most_rows, shortest in limits if num_rows <= most_rows)


@hidden("multinomial", source="Distributions.cpp, MultinomialKernel.cu")
def _multinomial(x: Tensor, num_samples: int, replacement: bool = False, **_: Any) -> Steps:
    """Random numbers like the input; of several samples without replacement the largest, else cumulated weights."""
    several = num_samples > 1
    noise = [copy_of(x)]
    if replacement and several:
        noise.append(copy_of(x))
    yield
    if several and not replacement:
        noise.append(scratch(x.numel() // x.shape[-1] * num_samples * x.element_size()))
        take_to_choose(x.numel() // x.shape[-1], x.shape[-1], x.element_size())
    del noise


@hidden("randperm", source="Randperm.cu: randperm_out_cuda; measured on H200")
def _permutation(n: int, *_: Any, **__: Any) -> Steps:
    """A range, random keys with as many bits as make repetitions rare, the keys in order, and CUB's storage."""
    yield
    if n < 2:
        return
    bits = min(64, math.ceil(math.log2(n - (6 * n * n + 1) / (math.log(0.9) * 12))))
    key = 4 if bits <= SHORT_KEY_BITS else 8
    numbers = [scratch(nbytes * n) for nbytes in (INDEX, key, key)]
    scratch(sorting_storage(n, key, INDEX, bits))
    del numbers
