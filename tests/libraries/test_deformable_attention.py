"""The compiled module of Deformable DETR on a simulated GPU, in bytes worked out by hand."""

from __future__ import annotations

import torch
from memlint_libraries.deformable_attention import library

from tests.libraries.events import on_gpu, simulated
from tests.script.running import run_text

module = library.modules["MultiScaleDeformableAttention"]
BATCH, QUERIES, HEADS, CHANNELS, POINTS = 2, 300, 8, 32, 4
SIZES = ((100, 134), (50, 67))
PLACES = sum(height * width for height, width in SIZES)


def test_it_takes_its_output_and_then_a_gradient_of_each_operand():
    with simulated() as seen:
        value = on_gpu(BATCH, PLACES, HEADS, CHANNELS, dtype=torch.float32, grad=False)
        shapes = torch.tensor(SIZES, device="cuda")
        starts = torch.tensor((0, SIZES[0][0] * SIZES[0][1]), device="cuda")
        weights = on_gpu(BATCH, QUERIES, HEADS, len(SIZES), POINTS, dtype=torch.float32, grad=False)
        places = on_gpu(*weights.shape, 2, dtype=torch.float32, grad=False)
        seen.begin()
        out = module["ms_deform_attn_forward"](value, shapes, starts, places, weights, 64)
        assert out.shape == (BATCH, QUERIES, HEADS * CHANNELS)
        assert seen.held == seen.peak == 4 * out.numel()
        grad = torch.empty_like(out)
        seen.begin()
        grads = module["ms_deform_attn_backward"](value, shapes, starts, places, weights, grad, 64)
        assert [each.shape for each in grads] == [value.shape, places.shape, weights.shape]
        assert seen.held == seen.peak == 4 * (value.numel() + places.numel() + weights.numel())
        assert any("MultiScaleDeformableAttention" in text for text in seen.assumptions)


DETECTOR = """
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
import MultiScaleDeformableAttention as MSDA

class Attend(Function):
    @staticmethod
    def forward(ctx, value, shapes, starts, places, weights):
        ctx.save_for_backward(value, shapes, starts, places, weights)
        return MSDA.ms_deform_attn_forward(value, shapes, starts, places, weights, 64)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        value, places, weights = MSDA.ms_deform_attn_backward(*ctx.saved_tensors, grad, 64)
        return value, None, None, places, weights

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.value, self.places, self.weights = nn.Linear(64, 64), nn.Linear(64, 8 * 4 * 2), nn.Linear(64, 8 * 4)

    def forward(self, x, shapes, starts):
        batch, queries, _ = x.shape
        places = self.places(x).view(batch, queries, 8, 1, 4, 2)
        weights = self.weights(x).view(batch, queries, 8, 4).softmax(-1).view(batch, queries, 8, 1, 4)
        return Attend.apply(self.value(x).view(batch, queries, 8, 8), shapes, starts, places, weights)

model = Layer().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
shapes, starts = torch.tensor([[20, 30]]).cuda(), torch.tensor([0]).cuda()
for _ in range(2):
    model(torch.rand(2, 600, 64, device="cuda"), shapes, starts).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_detector_trains_where_nobody_has_compiled_it(tmp_path):
    (workload,) = run_text(tmp_path, DETECTOR).report.workloads
    assert workload.error is None, workload.error
    assert (workload.script.happened, workload.batch) == ("trained", 2)
