"""The fast path of PyTorch's encoder layers makes the tensors of its kernels, not the output alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program
from tests.oracles.single_ops import difference

if TYPE_CHECKING:
    from memlint.memory.records import Trace

A100 = device_named("a100-80gb")


class Inference:
    def __init__(self, module: nn.Module, *inputs: Any, **keywords: Any) -> None:
        self.make, self.inputs, self.keywords = module, inputs, keywords

    def setup(self) -> None:
        self.model = self.make().cuda().eval()
        self.x = [x.cuda() for x in self.inputs]

    def step(self) -> None:
        with torch.no_grad():
            self.out = self.model(
                *self.x, **{k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in self.keywords.items()}
            )


def traced(program: Inference) -> Trace:
    return trace_program(program, A100, num_steps=1).trace


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}])
def test_an_encoder_layer_makes_its_inner_tensors(options: dict[str, Any]) -> None:
    program = Inference(
        lambda: nn.TransformerEncoderLayer(64, 4, 512, batch_first=True, **options), torch.rand(2, 16, 64)
    )
    trace = traced(program)
    made = {b.nbytes for b in trace.buffers if b.step == 0}
    assert 4 * 2 * 16 * 512 in made  # between the two layers of the feed-forward part
    assert 4 * 2 * 16 * 3 * 64 in made  # queries, keys and values
    assert program.out.shape == (2, 16, 64)
    assert not [n for n in trace.nodes if "encoder_layer_fwd" in n.op]


def test_attention_with_weights_makes_the_scores() -> None:
    x = torch.rand(2, 16, 64)
    program = Inference(lambda: nn.MultiheadAttention(64, 4, batch_first=True), x, x, x)
    trace = traced(program)
    assert 4 * 2 * 4 * 16 * 16 in {b.nbytes for b in trace.buffers if b.step == 0}
    assert [t.shape for t in program.out] == [(2, 16, 64), (2, 16, 16)]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_results_have_the_shapes_of_a_real_run(need_weights: bool, average: bool) -> None:
    def results(device: str) -> list[Any]:
        model = nn.MultiheadAttention(64, 4, batch_first=True).eval().to(device)
        x = torch.rand(2, 16, 64, device=device)
        with torch.no_grad():
            return [
                t if t is None else t.shape
                for t in model(x, x, x, need_weights=need_weights, average_attn_weights=average)
            ]

    expected = results("cpu")
    with virtual_device(A100):
        assert results("cuda") == expected


class OnHost:
    """Attention as the fast path computes it, with weights or without, for real and as predicted."""

    def __init__(self, *, masked: bool, need_weights: bool, of_itself: bool) -> None:
        self.masked, self.need_weights, self.of_itself, self.made = masked, need_weights, of_itself, None
        self.virtual = False

    def setup(self) -> None:
        self.model = nn.MultiheadAttention(64, 4, batch_first=True).eval()
        self.x, self.y = torch.rand(2, 96, 64), torch.rand(2, 96, 64)
        self.mask = torch.zeros(2, 96, dtype=torch.bool) if self.masked else None

    def step(self) -> None:
        y = self.x if self.of_itself else self.y
        with torch.no_grad():
            self.model(self.x, y, y, need_weights=self.need_weights, key_padding_mask=self.mask)


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("of_itself", [True, False])
def test_the_fast_path_takes_what_it_takes_for_real(masked: bool, need_weights: bool, of_itself: bool) -> None:
    """The softmax is computed in place, and the result where the queries were (attention.cpp, cuda/attention.cu)."""
    answer = difference(OnHost(masked=masked, need_weights=need_weights, of_itself=of_itself))
    assert answer is not None
    assert answer.is_exact, answer


def test_padded_batches_are_taken_as_they_are() -> None:
    padding = torch.zeros(2, 16, dtype=torch.bool)
    padding[0, 9:] = True
    program = Inference(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2),
        torch.rand(2, 16, 64),
        src_key_padding_mask=padding,
    )
    trace = traced(program)
    assert program.out.shape == (2, 16, 64)
    assert any("padded" in a.text for a in trace.assumptions)
