"""Operators of torchvision on the simulated GPU, with or without its compiled library."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.libraries.test_installed import START
from tests.script.isolated import needs
from tests.script.running import run_text

pytestmark = [needs("torchvision"), pytest.mark.usefixtures("copied_pythons")]
KERNELS = """
import torchvision.ops as ops

with simulated() as seen:
    boxes, scores = torch.rand(1000, 4, device="cuda"), torch.rand(1000, device="cuda")
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = ops.nms(boxes, scores, 0.5)
    assert kept.shape == (1000,) and kept.dtype == torch.int64
    # The boxes in order, and 16 words of 64 bits for each.
    least = 1000 * 16 + 1000 * 16 * 8
    assert least <= torch.cuda.max_memory_allocated() - before <= least + 64 * 1000

    layer = ops.DeformConv2d(64, 128, 3, padding=1, bias=False).cuda()
    x = torch.rand(4, 64, 56, 56, device="cuda", requires_grad=True)
    offset = torch.rand(4, 18, 56, 56, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = layer(x, offset)
    pixels = 4 * 56 * 56
    columns, out = 64 * 9 * pixels * 4, 128 * pixels * 4
    peak = torch.cuda.max_memory_allocated() - before
    assert columns + 2 * out <= peak <= columns + 3 * out + (20 << 20), peak
    y.sum().backward()
    assert x.grad.shape == x.shape and offset.grad.shape == offset.shape and layer.weight.grad.shape == (128, 64, 3, 3)
"""
DETECTS = """\
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=3).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(2):
    images = [torch.rand(3, 320, 320).cuda() for _ in range(2)]
    targets = [
        {"boxes": torch.tensor([[10.0, 10, 60, 60]]).cuda(), "labels": torch.tensor([1]).cuda()} for _ in range(2)
    ]
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    (found,) = model([torch.rand(3, 320, 320).cuda()])
assert found["boxes"].shape[1] == 4
"""


def test_kernels_take_what_their_sources_say():
    done = subprocess.run([sys.executable, "-c", START + KERNELS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_detector_trains_and_detects(tmp_path):
    (workload,) = run_text(tmp_path, DETECTS, whole=True).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 2)
