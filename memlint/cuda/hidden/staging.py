"""Memory of a CUDA reduction that splits an output over several blocks: staging for partial results, semaphores.

The launch configuration is that of aten/src/ATen/native/cuda/Reduce.cuh (`setReduceConfig`, `gpu_reduce_kernel`).
Holds for torch 2.1 to 2.13: equal to every size recorded on H100, A100, AD102 and Turing.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

from memlint.cuda.hidden.iteration import Walk, walk

WARP = 32
MAX_THREADS = 512
MIN_VALUES_PER_THREAD = 16
MAX_VALUES_PER_THREAD = 256


class Staging(NamedTuple):
    """Two allocations, in bytes, that live together while the kernel runs; empty if no output is split."""

    partials: int
    semaphores: int


@dataclass(frozen=True, slots=True)
class Reduction:
    """Properties of a reduction kernel: bytes of an element, and number of values that a thread keeps."""

    accumulator: int
    """Bytes of an accumulator: 16 for a value with its int64 index and for Welford's mean and variance."""
    item: int
    """Bytes of an element of the input."""
    vector: int = 4
    """Number of values loaded at once if the reduced dimension is the fastest."""
    max_threads: int = MAX_THREADS


def staging(walk: Walk, reduction: Reduction, num_sms: int, threads_per_sm: int) -> Staging | None:
    """Compute the bytes taken for one launch over `walk` on a GPU of `num_sms` x `threads_per_sm` threads."""
    num_outputs = walk.num_outputs
    num_inputs = walk.numel // num_outputs
    strides = walk.strides[-1]
    num_reduced = walk.num_reduced
    along_input = num_reduced == len(walk.shape) or strides[0] < strides[num_reduced]
    contiguous = not walk.shape or strides[0 if along_input else num_reduced] == reduction.item
    across, down = (num_inputs, num_outputs) if along_input else (num_outputs, num_inputs)
    output_vector = 1
    if contiguous and along_input:
        if across >= 128 and num_reduced == 1:
            across //= reduction.vector
    elif contiguous:
        output_vector = _output_vector(walk, reduction.item)
        across //= output_vector
    width, height = _block(across, down, reduction.max_threads // output_vector)
    step_input, step_output = (width, 1) if along_input else (1, width)
    over_warps = -(-num_inputs // step_input) >= min(height * MIN_VALUES_PER_THREAD, MAX_VALUES_PER_THREAD)
    if over_warps:
        step_input *= height
    else:
        step_output *= height
    values_per_thread = -(-num_inputs // step_input)
    grid = -(-(num_outputs // output_vector) // step_output)
    target = num_sms * (threads_per_sm // (width * height))
    if not over_warps or values_per_thread < MAX_VALUES_PER_THREAD or grid > target:
        return None
    blocks_per_output = max(
        min(-(-target // grid), -(-values_per_thread // MIN_VALUES_PER_THREAD)),
        -(-values_per_thread // MAX_VALUES_PER_THREAD),
    )
    if blocks_per_output <= 1:
        return None
    partials = reduction.accumulator * num_outputs * blocks_per_output
    if not along_input:
        partials *= width * output_vector
    return Staging(partials, 4 * grid)


def _block(across: int, down: int, max_threads: int) -> tuple[int, int]:
    """Return width and height of a thread block."""
    x = power_of_two(across) if across < max_threads else max_threads
    y = power_of_two(down) if down < max_threads else max_threads
    height = min(y, max_threads // min(x, WARP))
    return min(x, max_threads // height), height


def power_of_two(n: int) -> int:
    """Return the largest power of two that is not above `n`."""
    return 1 << max(n.bit_length() - 1, 0)


def _output_vector(walk: Walk, item: int) -> int:
    """Return the number of neighbouring outputs that a thread computes: 4, 2 or 1, a divisor of all it steps over."""
    fastest = walk.num_reduced
    numbers = [walk.offset // item, walk.shape[fastest]]
    numbers += [s // item for d, s in enumerate(walk.strides[-1]) if d != fastest]
    return next(vector for vector in (4, 2, 1) if not any(n % vector for n in numbers))


@functools.lru_cache(maxsize=4096)
def launches(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    offset: int,
    reduced: tuple[int, ...],
    outputs: tuple[int, ...],
    reduction: Reduction,
    num_sms: int,
    threads_per_sm: int,
) -> tuple[int, tuple[Staging, ...]]:
    """Find every launch that splits, for an input of this shape and stride, and the bytes that live across all of them.

    `outputs` are the bytes of an element of each output. Inputs beyond 32-bit offsets are reduced in parts; their
    accumulator is allocated if the output cannot hold it.
    """
    whole = walk(shape, stride, reduced, (*outputs, reduction.item), offset)
    across = 0
    if not whole.indexed_by_32_bits and outputs[0] < reduction.accumulator:
        across = whole.num_outputs * reduction.accumulator
    taken = (staging(part, reduction, num_sms, threads_per_sm) for part in whole.parts())
    return across, tuple(s for s in taken if s is not None)
