"""Scaled-dot-product attention: which kernel CUDA takes, and what it allocates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from memlint.cuda.kernels.attention import accumulators
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.memory.records import Phase, Trace
from memlint.tracing.recorder import trace_program

NAMES = {
    "aten._scaled_dot_product_flash_attention.default": "flash",
    "aten._scaled_dot_product_efficient_attention.default": "efficient",
    "aten._scaled_dot_product_cudnn_attention.default": "cudnn",
}


class Attention:
    """Attention over random operands, with its backward."""

    def __init__(
        self,
        dtype: torch.dtype = torch.bfloat16,
        head: int = 64,
        *,
        mask: Any = None,
        dropout: float = 0.0,
        causal: bool = False,
        kv_heads: int = 8,
        keys: int = 32,
        grad: bool = True,
        batch: int = 2,
        heads: int = 8,
        queries: int = 32,
    ) -> None:
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})

    def setup(self) -> None:
        s: Any = self
        self.q = torch.rand(s.batch, s.heads, s.queries, s.head, device="cuda", dtype=s.dtype, requires_grad=s.grad)
        self.k, self.v = (
            torch.rand(s.batch, s.kv_heads, s.keys, s.head, device="cuda", dtype=s.dtype, requires_grad=s.grad)
            for _ in "kv"
        )
        self.attn_mask = s.mask() if s.mask is not None else None

    def step(self) -> None:
        s: Any = self
        out = F.scaled_dot_product_attention(
            self.q, self.k, self.v, self.attn_mask, s.dropout, s.causal, enable_gqa=s.kv_heads != s.heads
        )
        assert out.shape == self.q.shape
        assert out.dtype is self.q.dtype
        if s.grad:
            grads = torch.autograd.grad(out, [self.q, self.k, self.v], torch.ones_like(out))
            assert [g.shape for g in grads] == [self.q.shape, self.k.shape, self.v.shape]
            assert {g.dtype for g in grads} == {s.dtype}


def traced(program: Attention, gpu: str = "a100-80gb") -> Trace:
    return trace_program(program, device_named(gpu), num_steps=1).trace


def backend(program: Attention, gpu: str = "a100-80gb") -> str:
    names = [NAMES[n.op] for n in traced(program, gpu).nodes if n.op in NAMES]
    assert len(names) <= 1
    return names[0] if names else "math"


def bool_mask() -> torch.Tensor:
    return torch.ones(32, 32, dtype=torch.bool, device="cuda")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_take_flash_from_ampere_on(dtype: torch.dtype) -> None:
    assert backend(Attention(dtype)) == "flash"
    assert backend(Attention(dtype, causal=True)) == "flash"
    assert backend(Attention(dtype, dropout=0.1)) == "flash"
    assert backend(Attention(dtype, grad=False)) == "flash"


def test_older_gpus_take_efficient_attention() -> None:
    assert backend(Attention(torch.float16), "t4") == "efficient"
    assert backend(Attention(torch.float16), "v100-16gb") == "efficient"
    assert backend(Attention(torch.bfloat16), "t4") == "math"


def test_float32_takes_efficient_and_float64_math() -> None:
    assert backend(Attention(torch.float32)) == "efficient"
    assert backend(Attention(torch.float64)) == "math"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_mask_takes_efficient_attention(dtype: torch.dtype) -> None:
    assert backend(Attention(dtype, mask=bool_mask)) == "efficient"
    assert backend(Attention(dtype, mask=lambda: torch.zeros(2, 1, 32, 32, device="cuda", dtype=dtype))) == "efficient"


@pytest.mark.parametrize(
    ("head", "expected"),
    [(8, "flash"), (40, "flash"), (60, "flash"), (256, "flash"), (264, "efficient"), (300, "math")],
)
def test_the_head_size_decides(head: int, expected: str) -> None:
    assert backend(Attention(head=head)) == expected


def test_consumer_gpus_refuse_large_heads_in_training() -> None:
    assert backend(Attention(head=200), "rtx4090") == "efficient"
    assert backend(Attention(head=200, grad=False), "rtx4090") == "flash"
    assert backend(Attention(head=256, dropout=0.1), "rtx4090") == "efficient"
    assert backend(Attention(head=256), "rtx4090") == "flash"
    assert backend(Attention(head=200), "a100-80gb") == "flash"


def test_grouped_queries() -> None:
    assert backend(Attention(kv_heads=2)) == "flash"
    assert backend(Attention(torch.float32, kv_heads=2)) == "math"


def test_causal_attention_of_unequal_lengths_is_not_flash() -> None:
    assert backend(Attention(causal=True, keys=48)) == "efficient"
    assert backend(Attention(keys=48)) == "flash"


def test_the_program_chooses_by_context() -> None:

    class Chosen(Attention):
        def __init__(self, backend: Any) -> None:
            super().__init__()
            self.backend = backend

        def step(self) -> None:
            with sdpa_kernel(self.backend):
                super().step()

    assert backend(Chosen(SDPBackend.EFFICIENT_ATTENTION)) == "efficient"
    assert backend(Chosen(SDPBackend.MATH)) == "math"
    assert backend(Chosen(SDPBackend.FLASH_ATTENTION)) == "flash"


def _made_in(trace: Trace, phase: Phase) -> list[int]:
    return [
        trace.buffers[e].nbytes
        for e in trace.events
        if e >= 0
        and trace.buffers[e].phase is phase
        and trace.buffers[e].node >= 0
        and "attention" in trace.nodes[trace.buffers[e].node].op
    ]


def test_flash_keeps_its_output_and_one_number_per_row() -> None:
    trace = traced(Attention())
    out, lse, *state = _made_in(trace, Phase.FORWARD)
    assert out == 2 * 8 * 32 * 64 * 2
    assert lse == 4 * 2 * 8 * 32
    assert sum(state) <= 24


def test_flash_splits_keys_where_rows_do_not_fill_the_gpu() -> None:
    few = {"batch": 1, "queries": 512, "keys": 512}
    parts, rows = 2, 8 * 512
    _out, _lse, *sums, _seed, _unused = _made_in(traced(Attention(**few)), Phase.FORWARD)
    assert sums == [4 * parts * rows, 4 * parts * rows * 64]
    assert len(_made_in(traced(Attention(**few, dropout=0.1)), Phase.FORWARD)) == 4
    assert len(_made_in(traced(Attention(**(few | {"batch": 4}))), Phase.FORWARD)) == 4
    # One query of 8 heads, two of them with keys of their own, is four queries of two heads.
    decoded = Attention(batch=1, queries=1, keys=4096, kv_heads=2, grad=False)
    _out, _lse, lse, out, *_ = _made_in(traced(decoded), Phase.FORWARD)
    assert (lse, out) == (4 * 16 * 8, 4 * 16 * 8 * 64)


def test_deterministic_flash_backward_adds_in_rounds_of_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, *_ = sorted(_made_in(traced(Attention()), Phase.BACKWARD), reverse=True)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    rounds = -(-108 // (2 * 8))
    most, *_ = sorted(_made_in(traced(Attention()), Phase.BACKWARD), reverse=True)
    assert (usual, most) == (4 * 2 * 8 * 128 * 64, rounds * usual)


def test_efficient_forward_as_recorded() -> None:
    """PyTorch 2.1, batch 1, 32 heads, 1000 tokens, head size 64, float32."""
    recorded = Attention(torch.float32, batch=1, heads=32, kv_heads=32, queries=1000, keys=1000)
    trace = traced(recorded)
    assert _made_in(trace, Phase.FORWARD) == [8_192_000, 131_072]
    backward = _made_in(trace, Phase.BACKWARD)
    assert backward[:3] == [8_192_000] * 3
    assert sorted(backward[3:]) == [128_000, 128_000, 8_192_000, 8_396_800]
    no_grad = Attention(torch.float32, batch=1, heads=32, kv_heads=32, queries=1000, keys=1000, grad=False)
    assert _made_in(traced(no_grad), Phase.FORWARD) == [8_192_000]


def test_the_workspace_of_efficient_backward_as_recorded() -> None:
    with virtual_device(device_named("rtx3090")):
        assert accumulators(1, 32, 1000, 1000, 64, 64, half=False) == 8_396_800


def test_math_keeps_the_scores() -> None:
    trace = traced(Attention(torch.float64))
    assert 2 * 8 * 32 * 32 * 8 in [b.nbytes for b in trace.buffers]


def test_a_boolean_mask_becomes_one_of_the_queries_type() -> None:
    trace = traced(Attention(mask=bool_mask))
    assert any(b.nbytes == 32 * 32 * 2 and b.dtype == "bfloat16" for b in trace.buffers)


# --- layouts of FlashAttention: mha_fwd and mha_bwd of aten's flash_api.cpp, _flash_attention_backward


@pytest.mark.parametrize("is_transposed", [True, False])
def test_flash_lays_its_output_and_gradients_out_as_the_operands(is_transposed: bool) -> None:
    def operand() -> torch.Tensor:
        made = torch.empty(2, 32, 8, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        return made.transpose(1, 2) if is_transposed else made.view(2, 8, 32, 64)

    with virtual_device(device_named("a100-80gb")):
        q, k, v = operand(), operand(), operand()
        out = F.scaled_dot_product_attention(q, k, v)
        assert out.stride() == q.stride()
        grads = torch.autograd.grad(out, [q, k, v], torch.empty_like(out))
        assert [grad.stride() for grad in grads] == [q.stride()] * 3


def test_flash_copies_what_is_not_contiguous_for_its_backward() -> None:
    def taken(is_transposed: bool) -> int:
        with virtual_device(device_named("a100-80gb")) as ledger:
            shape = (2, 32, 8, 64) if is_transposed else (2, 8, 32, 64)
            q = torch.empty(shape, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            q = q.transpose(1, 2) if is_transposed else q
            out = F.scaled_dot_product_attention(q, q, q)
            grad = torch.empty_like(out)
            first = len(ledger.events)
            torch.autograd.grad(out, q, grad)
            return sum(ledger.births[event].nbytes for event in ledger.events[first:] if event >= 0)

    output = 2 * 32 * 8 * 64 * 2
    assert taken(is_transposed=False) - taken(is_transposed=True) == 2 * output  # the gradient and the output


# --- memory-efficient attention: attention.cu, attention_backward.cu


def _taken_in_backward(
    gpu: str, dtype: torch.dtype, shape: tuple[int, ...] = (2, 8, 32, 64), *, transposed: bool = True
) -> list[int]:
    """What backward of memory-efficient attention takes, for a gradient that lies as the output or as its shape."""
    with virtual_device(device_named(gpu)) as ledger, sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        q, k, v = (torch.empty(shape, dtype=dtype, device="cuda", requires_grad=True) for _ in range(3))
        out = F.scaled_dot_product_attention(q, k, v)
        grad = torch.empty_like(out) if transposed else torch.empty(shape, dtype=dtype, device="cuda")
        first = len(ledger.events)
        grads = torch.autograd.grad(out, [q, k, v], grad)
        made = [ledger.births[event].nbytes for event in ledger.events[first:] if event >= 0]
        del grads
    return made


def test_efficient_backward_copies_a_gradient_that_does_not_lie_as_the_output() -> None:
    size = 2 * 8 * 32 * 64 * 4
    as_output = _taken_in_backward("a100-80gb", torch.float32)
    assert _taken_in_backward("a100-80gb", torch.float32, transposed=False) == [size, *as_output]


def test_volta_casts_gradient_and_output_of_large_heads() -> None:
    shape = (1, 2, 32, 256)
    operand, sums = 2 * 32 * 256, 4 * 2 * 32
    on_volta = _taken_in_backward("v100-16gb", torch.float16, shape)
    assert on_volta[3:8] == [4 * operand, 4 * operand, 4 * operand, sums, sums]
    assert _taken_in_backward("a100-80gb", torch.float16, shape)[3] == sums
    assert _taken_in_backward("v100-16gb", torch.float16, (1, 2, 32, 64))[3] == sums


def test_the_parts_of_the_row_sums_live_until_they_are_summed() -> None:
    with virtual_device(device_named("a100-80gb")) as ledger, sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        x = torch.empty(2, 8, 32, 64, device="cuda", requires_grad=True)
        out = F.scaled_dot_product_attention(x, x, x)
        grad, first = torch.empty_like(out), len(ledger.events)
        torch.autograd.grad(out, x, grad)
        events = list(ledger.events[first:])
    product, row_sums, delta = events[3:6]
    assert ledger.births[product].nbytes == 2 * 8 * 32 * 64 * 4
    assert events.index(~product) > events.index(delta)
    assert events.index(~row_sums) > events.index(delta)


def test_batches_that_a_grid_cannot_hold_are_cut() -> None:
    batch, parts = 65_536 + 64, (65_535, 65)
    item = 2 * 4 * 16
    with virtual_device(device_named("a100-80gb")) as ledger, sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        q, k, v = (torch.empty(batch, 2, 4, 16, device="cuda", requires_grad=True) for _ in range(3))
        first = len(ledger.events)
        out = F.scaled_dot_product_attention(q, k, v)
        forward = [ledger.births[event].nbytes for event in ledger.events[first:] if event >= 0]
        assert out.shape == q.shape
        grads = torch.autograd.grad(out, [q, k, v], torch.empty_like(out))
        assert [grad.shape for grad in grads] == [q.shape] * 3
    lse = 2 * 32
    assert forward == [4 * n for n in (parts[0] * item, parts[0] * lse, batch * item, batch * lse)] + [
        4 * n for n in (parts[1] * item, parts[1] * lse)
    ]
