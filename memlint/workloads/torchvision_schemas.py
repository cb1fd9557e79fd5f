"""The operator schemas of torchvision's C++ library, declared without it.

`import torchvision` registers Python kernels for its operators and fails if the compiled library that declares them
does not load, as with a wheel built for another PyTorch. With the schemas declared torchvision works: on the simulated
GPU, which needs no compiled kernel, the operators too.

Source of the schemas: the operator registrations of torchvision 0.15 to 0.29.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import torch

from memlint.accelerator.private import is_op
from memlint.base.after_import import after_import

_POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_GRAD = "Tensor grad, Tensor rois"
_SCALES = "float input_scale, int input_zero_point, float rois_scale, int rois_zero_point"
_DEFORMED = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align(Tensor input, Tensor rois, {_SCALES}, {_POOLED}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward({_GRAD}, {_POOLED}, {_SIZE}, int sampling_ratio, bool aligned) -> Tensor",
    f"ps_roi_align(Tensor input, Tensor rois, {_POOLED}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({_GRAD}, Tensor channel_mapping, {_POOLED}, int sampling_ratio, {_SIZE}) -> Tensor",
    f"roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_roi_pool_backward({_GRAD}, Tensor argmax, {_POOLED}, {_SIZE}) -> Tensor",
    f"ps_roi_pool(Tensor input, Tensor rois, {_POOLED}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({_GRAD}, Tensor channel_mapping, {_POOLED}, {_SIZE}) -> Tensor",
    f"deform_conv2d({_DEFORMED}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_DEFORMED}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)

_declared: list[torch.library.Library] = []


class _BeforeTorchvision(MetaPathFinder):
    """Import hook that declares the schemas when torchvision is imported; finds nothing itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision" and not _declared:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec is not None and spec.origin is not None and not _extension_loads(Path(spec.origin).parent):
                declare()
        return None


def install() -> None:
    """Have the schemas declared when, and only when, torchvision is imported without its library."""
    if "torchvision" not in sys.modules and not any(isinstance(finder, _BeforeTorchvision) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeTorchvision())


def declare() -> None:
    """Declare every schema that does not exist yet."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        name = schema.partition("(")[0]
        if not is_op(f"torchvision::{name}"):
            library.define(schema)
    if not is_op("torchvision::_cuda_version"):
        library.define("_cuda_version() -> int")
        library.impl("_cuda_version", lambda: -1, "CompositeExplicitAutograd")
    after_import("torchvision.extension", _have_ops)
    # A Library removes its operators when it is garbage-collected.
    _declared.append(library)


def _have_ops(module: ModuleType) -> None:
    """Let torchvision register what it has for its operators in Python: shapes, and from 0.28 on gradients."""
    module._has_ops = lambda: True  # type: ignore[attr-defined]


def _extension_loads(package: Path) -> bool:
    """Return True if the compiled operators are in torchvision's folder and fit this PyTorch."""
    for library in sorted(package.glob("_C*")):
        try:
            torch.ops.load_library(str(library))
        except (OSError, ImportError):
            continue
        return True
    return False
