"""Attention of cuDNN: when CUDA prefers it, and the bytes that an H200 took with torch 2.11 and cuDNN 9.19."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from tests.cuda.versions import simulated_torch


def taken(
    shape: tuple[int, ...] = (2, 4, 333, 40),
    *,
    gpu: str = "h200",
    kv_heads: int | None = None,
    keys: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    **options: Any,
) -> tuple[list[int], list[int]]:
    """Bytes that attention takes in forward and in backward, one after another."""
    batch, heads, rows, size = shape
    with virtual_device(device_named(gpu)) as ledger:
        q = torch.empty(shape, dtype=dtype, device="cuda", requires_grad=True)
        of_keys = (batch, kv_heads or heads, keys or rows, size)
        k, v = (torch.empty(of_keys, dtype=dtype, device="cuda", requires_grad=True) for _ in "kv")
        if "attn_mask" in options:
            options["attn_mask"] = torch.empty(options["attn_mask"], dtype=dtype, device="cuda")
        first = len(ledger.events)
        out = F.scaled_dot_product_attention(q, k, v, enable_gqa=kv_heads is not None, **options)
        forward = [ledger.births[e].nbytes for e in ledger.events[first:] if e >= 0]
        grad = torch.empty_like(out)
        first = len(ledger.events)
        grads = torch.autograd.grad(out, [q, k, v], grad)
        backward = [ledger.births[e].nbytes for e in ledger.events[first:] if e >= 0]
        del grads
    return forward, backward


@pytest.fixture(autouse=True)
def _torch_2_11() -> Any:
    with simulated_torch((2, 11)):
        yield


def takes_cudnn(**options: Any) -> bool:
    return taken(**options)[0][:2] == [8, 8]


def test_bytes_are_those_measured() -> None:
    assert taken() == ([8, 8, 213_120, 10_656, 256], [213_120] * 3 + [437_152])
    assert taken((2, 8, 512, 256))[1] == [4_194_304] * 3 + [8_421_632]
    assert taken((2, 8, 1000, 80), dropout_p=0.1, is_causal=True)[1][-1] == 5_184_256
    assert taken((4, 32, 1024, 128), kv_heads=8)[1] == [33_554_432, 8_388_608, 8_388_608, 134_742_272]


def test_one_query_is_computed_in_parts_where_groups_do_not_fill_the_gpu() -> None:
    assert taken((4, 32, 1, 128), kv_heads=8, keys=2049)[0][-1] == 532_608
    assert taken((4, 32, 1, 128), keys=2049)[0] == [8, 8, 32_768, 512]


def test_a_mask_needs_no_padding() -> None:
    assert taken(attn_mask=(2, 1, 333, 333))[0] == [8, 8, 213_120, 10_656, 256]


@pytest.mark.parametrize("version", [(2, 9), (2, 11), (2, 13)])
def test_it_is_preferred_from_cudnn_9_15_1_on_and_in_torch_2_9(version: tuple[int, int]) -> None:
    with simulated_torch(version):
        assert takes_cudnn()
        assert not takes_cudnn(gpu="a100-80gb")


@pytest.mark.parametrize("version", [(2, 8), (2, 10)])
def test_older_versions_prefer_flash(version: tuple[int, int]) -> None:
    with simulated_torch(version):
        assert not takes_cudnn()


def test_what_it_does_not_accept_goes_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not takes_cudnn(dtype=torch.float32)
    assert not takes_cudnn(shape=(2, 4, 333, 36))
    assert not takes_cudnn(keys=1)
    assert not takes_cudnn(attn_mask=(4, 333, 333))
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    assert not takes_cudnn()


def test_the_program_chooses() -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert not takes_cudnn()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), simulated_torch((2, 10)):
        assert takes_cudnn()
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION], set_priority=True):
        assert not takes_cudnn()
