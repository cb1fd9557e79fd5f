"""torchvision's kernels of detection, whose sizes depend on values or that take memory for themselves.

torchvision 0.29: csrc/ops/cuda/nms_kernel.cu, csrc/ops/cuda/deform_conv2d_kernel.cu. The shapes of all others are those
of its own meta kernels.
"""

import functools
from typing import Any

import torch

from memlint.accelerator.device import contiguous, is_virtual, scratch
from memlint.accelerator.kernel import enter_hand_written
from memlint.accelerator.ranges import largest
from memlint.base.after_import import after_import

Tensor = torch.Tensor
_BITS = 64
"""Boxes that a number of the mask of overlaps stands for."""
_MOST_PARALLEL = 32
"""Most images that a deformable convolution samples at once (`kMaxParallelImgs`)."""


def install() -> None:
    """Enter the kernels, by the names that the operators have once torchvision is imported."""
    after_import("torchvision.ops.boxes", _take_an_equal_share_of_each_class)
    enter_hand_written("torchvision.nms.default", _nms)
    enter_hand_written("torchvision.deform_conv2d.default", _deform_conv2d)
    enter_hand_written("torchvision._deform_conv2d_backward.default", _deform_conv2d_backward)


def _take_an_equal_share_of_each_class(module: Any) -> None:
    """Let one class stand for all where each is looked at by itself, after the others: nobody knows their boxes."""
    by_class = module._batched_nms_vanilla

    @functools.wraps(by_class)
    def shared(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
        if not is_virtual(boxes):
            kept: Tensor = by_class(boxes, scores, idxs, iou_threshold)
            return kept
        most = largest(idxs)
        count = -(-boxes.shape[0] // (most + 1)) if most else boxes.shape[0]
        keep_mask = torch.empty_like(scores, dtype=torch.bool)
        keep_mask[:count][module.nms(boxes[:count], scores[:count], iou_threshold)] = True
        kept = torch.where(keep_mask)[0]
        return kept[scores[kept].sort(descending=True).indices]

    module._batched_nms_vanilla = shared


def _nms(boxes: Tensor, scores: Tensor, _threshold: float) -> Tensor:
    """The numbers of the boxes that are kept: as many as are not known."""
    count = boxes.shape[0]
    if not count:
        return contiguous((0,), torch.int64)
    order = scores.sort(0, descending=True).indices
    ordered = boxes.index_select(0, order)
    overlaps = scratch(count * -(-count // _BITS) * 8)
    kept = order.masked_select(contiguous((count,), torch.bool))
    del ordered, overlaps
    return kept


class _Sampled:
    """The sizes of a deformable convolution: parts of the batch that are sampled at once, and groups of channels."""

    def __init__(self, x: Tensor, weight: Tensor, offset: Tensor, groups: int) -> None:
        batch, channels = x.shape[:2]
        self.side = offset.shape[2:]
        self.together = max(number for number in range(1, _MOST_PARALLEL + 1) if batch % number == 0)
        self.parts, self.groups = batch // self.together, groups
        self._taps, self._pixels = channels * weight[0, 0].numel(), self.together * self.side.numel()

    def columns(self, x: Tensor) -> Tensor:
        """Allocate (groups, taps, pixels): what the kernel reads at each place of a part of the batch."""
        return x.new_empty((self.groups, self._taps // self.groups, self._pixels))

    def by_group(self, x: Tensor, channels: int) -> Tensor:
        """Allocate (parts, groups, channels of each, pixels)."""
        return x.new_empty((self.parts, self.groups, channels // self.groups, self._pixels))

    def weights(self, weight: Tensor) -> Tensor:
        """View weights as (groups, output channels of each, taps)."""
        return weight.reshape(self.groups, weight.shape[0] // self.groups, -1)


def _deform_conv2d(x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *options: Any) -> Tensor:
    dense = [each.contiguous() for each in (x, weight, offset, mask, bias)]
    sampled = _Sampled(x, weight, offset, options[-3])
    out = x.new_empty((x.shape[0], weight.shape[0], *sampled.side))
    made = sampled.by_group(x, weight.shape[0])
    columns, weights = sampled.columns(x), sampled.weights(dense[1])
    for part in range(sampled.parts):
        for group in range(sampled.groups):
            made[part][group].addmm_(weights[group], columns[group])
    return out + bias.view(1, -1, 1, 1)


def _deform_conv2d_backward(
    grad: Tensor, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *options: Any
) -> tuple[Tensor, ...]:
    grad, *dense = (each.contiguous() for each in (grad, x, weight, offset, mask, bias))
    sampled = _Sampled(x, weight, offset, options[-3])
    grads = [torch.empty_like(dense[number]) for number in (0, 2, 3)]
    columns, weights = sampled.columns(x), sampled.weights(dense[1])
    by_group = grad.reshape(sampled.parts, sampled.together, sampled.groups, -1, *sampled.side).transpose(1, 2)
    by_group = by_group.transpose(2, 3)  # (parts, groups, channels, images, height, width)
    for part in range(sampled.parts):
        for group in range(sampled.groups):
            columns[group].addmm_(weights[group].t(), by_group[part][group].flatten(1))
    del columns
    of_weight, by_group = torch.empty_like(dense[1]), by_group.contiguous()
    of_weights, columns = sampled.weights(of_weight), sampled.columns(x)
    for part in range(sampled.parts):
        for group in range(sampled.groups):
            of_weights[group].addmm_(by_group[part][group].flatten(1), columns[group].t())
    del columns, by_group
    total = grad.sum((0, 2, 3))
    return grads[0], of_weight, *grads[1:], torch.empty_like(bias) * total
