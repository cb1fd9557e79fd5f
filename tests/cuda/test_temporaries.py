"""Memory that kernels take inside themselves, one allocation after another, as an H200 took it with torch 2.11."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from memlint.cuda.hidden import cub
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.cuda.versions import simulated_torch

if TYPE_CHECKING:
    from collections.abc import Callable

CUBLAS = 32 << 20


def floats(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="cuda")


def by_channels(*shape: int) -> torch.Tensor:
    return floats(*shape).to(memory_format=torch.channels_last)


def taken(run: Callable[..., object], *operands: Callable[[], object]) -> list[int]:
    """Bytes that `run` takes and gives back before it ends, or keeps for a library."""
    with simulated_torch((2, 11)), virtual_device(device_named("h200")) as ledger:
        made = [make() for make in operands]
        first = len(ledger.events)
        result = run(*made)
        events, births = ledger.events[first:], ledger.births
        del result
    closed = {~event for event in events if event < 0}
    return [births[e].nbytes for e in events if e >= 0 and (e in closed or births[e].nbytes == CUBLAS)]


def matrix() -> torch.Tensor:
    return floats(5, 5)


def two_matrices() -> torch.Tensor:
    return floats(2, 5, 5)


MEASURED: dict[str, tuple[Callable[..., object], tuple[Callable[[], object], ...], list[int]]] = {
    "randperm of short keys": (lambda: torch.randperm(1000, device="cuda"), (), [8000, 4000, 4000, 1]),
    "randperm of long keys": (
        lambda: torch.randperm(1_000_000, device="cuda"),
        (),
        [8_000_000, 8_000_000, 8_000_000, 16_236_031],
    ),
    "multinomial": (lambda x: torch.multinomial(x, 8), (lambda: floats(512, 1000),), [2_048_000, 16_384]),
    "product of integers": (
        lambda a, b: torch._int_mm(a, b),
        (lambda: floats(512, 1024).to(torch.int8), lambda: floats(1024, 512).to(torch.int8)),
        [CUBLAS],
    ),
    "product of nothing": (lambda a, b: a @ b, (lambda: floats(4, 0), lambda: floats(0, 4)), []),
    "sum of products": (
        torch.addbmm,
        (lambda: floats(16, 24), lambda: floats(16, 16, 16), lambda: floats(16, 16, 24)),
        [CUBLAS],
    ),
    "factors of one": (torch.linalg.lu_factor_ex, (matrix,), [768]),
    "factors of two": (torch.linalg.lu_factor_ex, (two_matrices,), [16, CUBLAS]),
    "sign and logarithm of determinant": (
        torch.ops.aten._linalg_slogdet,
        (lambda: floats(3, 5, 5),),
        [12, 24, CUBLAS, 20, 15, 24, 120],
    ),
    "inverse": (torch.linalg.inv_ex, (two_matrices,), [200, 40, 16, CUBLAS, 16, 16]),
    "solution by Cholesky": (
        torch.cholesky_solve,
        (lambda: floats(2, 16, 16), lambda: floats(2, 16, 16)),
        [2048, CUBLAS],
    ),
    "inverse by Cholesky": (torch.cholesky_inverse, (lambda: floats(2, 16, 16),), [2048, CUBLAS]),
    "inverse of one": (torch.linalg.inv_ex, (lambda: floats(12, 12),), [576, 48, 768, 8, 8, CUBLAS]),
    "solution for one column": (torch.linalg.solve_ex, (lambda: floats(12, 12), lambda: floats(12, 1)), [576, 48, 768]),
    "solution by a triangle": (
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=True),
        (matrix, matrix),
        [8, 8, CUBLAS],
    ),
    "QR of one": (torch.linalg.qr, (matrix,), [20, 4, 3_145_856, 4, 132_224]),
    "QR of two": (torch.linalg.qr, (two_matrices,), [40, 16, 16, CUBLAS, 4, 132_224]),
    "reflections": (torch.linalg.householder_product, (lambda: floats(17, 16), lambda: floats(16)), [4, 133_248]),
    "singular values": (torch.linalg.svd, (matrix,), [4, 100, 3968]),
    "largest of a pool by channels": (
        lambda x: F.adaptive_max_pool2d(x, 7, return_indices=True),
        (lambda: by_channels(16, 64, 112, 112),),
        [200_704, 401_408, 51_380_224],
    ),
    "unique": (torch.unique, (lambda: floats(100_000),), [400_000, 424_191, 8, 1023]),
    "lengths of CTC": (
        lambda x: torch.ops.aten._ctc_loss(
            x, torch.ones(16, 40, dtype=torch.int64, device="cuda"), [200] * 16, [40] * 16
        ),
        (lambda: floats(200, 16, 30),),
        [5120, 128, 128, 128],
    ),
    "membership of many": (
        torch.isin,
        (lambda: floats(100_000).long(), lambda: floats(100).long()),
        [800_000, 800_000, 800_000, 1_639_423],
    ),
    "membership of few": (torch.isin, (lambda: floats(40), lambda: floats(16)), [640, 40]),
    "unique neighbours": (torch.unique_consecutive, (lambda: floats(4_000_000),), [8, 5887]),
    "histogram": (lambda x: torch.histc(x, 100), (lambda: floats(4_000_000),), [4, 1956, 4]),
    "distances of pairs": (
        torch.ops.aten._pdist_backward,
        (lambda: floats(124_750), lambda: floats(500, 64), lambda: 2.0, lambda: floats(124_750)),
        [63_872_000],
    ),
    "transform of a long signal": (
        lambda x: torch.ops.aten._fft_c2c(x, [0], 0, True),
        (lambda: torch.empty(1_000_000, device="cuda", dtype=torch.complex64),),
        [8_000_000],
    ),
    "transform of a prime length": (
        lambda x: torch.fft.rfft(x),
        (lambda: floats(1000, 1009),),
        [8_072_000],
    ),
    "transform of frames that overlap": (
        lambda x: torch.fft.rfft(x.as_strided((10, 22, 16), (100, 4, 1))),
        (lambda: floats(10, 100),),
        [14_080],
    ),
    "transform to real numbers": (
        lambda x: torch.fft.irfft(x, 18),
        (lambda: torch.empty(16, 10, device="cuda", dtype=torch.complex64),),
        [16 * 10 * 8],
    ),
    "transform of the first two dimensions": (torch.fft.rfft2, (lambda: floats(1000, 1024),), [4_104_000]),
}


@pytest.mark.parametrize("name", MEASURED)
def test_temporaries_are_those_measured(name: str) -> None:
    run, operands, expected = MEASURED[name]
    assert taken(run, *operands) == expected


def test_several_blocks_find_the_largest_of_long_rows() -> None:
    *shared, _storage = taken(lambda x: x.topk(50), lambda: floats(64, 30_000))
    assert shared == [256, 512, 512, 393_216, 65_536, 3072, 3072]
    assert taken(lambda x: x.topk(50), lambda: floats(512, 1000)) == []


def test_batch_norm_by_channels_sums_in_blocks() -> None:
    with simulated_torch((2, 11)), virtual_device(device_named("h200")) as ledger:
        x = by_channels(32, 64, 56, 56).to(torch.bfloat16).requires_grad_()
        first = len(ledger.births)
        out = F.batch_norm(x, floats(64), floats(64), floats(64), floats(64), True)
        out.backward(torch.empty_like(out))
        made = [birth.nbytes for birth in ledger.births[first:]]
    assert made.count(131_072) == made.count(65_536) == 1
    assert made.count(8) == 2


def test_the_batch_decides_if_cudnn_normalises() -> None:
    with virtual_device(device_named("h200")) as ledger:
        statistics = [floats(64) for _ in range(4)]
        first = len(ledger.births)
        F.batch_norm(floats(32, 64, 56, 56), *statistics[:2], *statistics[2:], False)
        made = [birth.nbytes for birth in ledger.births[first:] if birth.nbytes]
    assert made == [4 * 32 * 64 * 56 * 56] * 2  # no statistics are saved


@pytest.mark.parametrize(
    ("key", "value", "count", "nbytes"),
    [(8, 8, 1_000_000, 16_240_127), (4, 0, 100_000, 424_191), (8, 8, 8192, 150_015), (4, 8, 100_000, 1_228_287)],
)
def test_tiles_of_a_sort_on_hopper(key: int, value: int, count: int, nbytes: int) -> None:
    assert cub.radix_sort(count, key, value, hopper=True) == nbytes
