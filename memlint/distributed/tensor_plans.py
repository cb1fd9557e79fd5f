"""Tensor parallelism: cuts the layers of a model by its own plan, or by the names of its layers."""

from collections.abc import Callable, Mapping

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from memlint.base.errors import UsageError

_STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "sequence_parallel": SequenceParallel,
}
"""Styles by their names in `base_model_tp_plan` and `_tp_plan`: transformers/integrations/tensor_parallel.py."""
_LAYERS = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj"), "colwise"),
    **dict.fromkeys(("o_proj", "down_proj"), "rowwise"),
}
"""Styles by the names of layers, from transformers' plans for Llama and its relatives."""


def cut_layers(model: torch.nn.Module, mesh: DeviceMesh) -> str:
    """Cut layers of `model` among the ranks of `mesh`; return a description for people.

    Raises UsageError for a model that has neither a plan nor layers with known names, and for parts of a plan for which
    PyTorch has no style.
    """
    own = getattr(model, "tp_plan", None) or {}
    plan = own or {
        path: _LAYERS[path.rpartition(".")[2]]
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and path.rpartition(".")[2] in _LAYERS
    }
    unknown = sorted(set(plan.values()) - _STYLES.keys())
    if not plan or unknown:
        what = f"wants {', '.join(unknown)}" if unknown else "has no plan for tensor parallel, nor layers as Llama has"
        raise UsageError(
            f"{type(model).__name__} {what}",
            "Let the function that gives the model call parallelize_module, and declare world_size.",
        )
    parallelize_module(model, mesh, {path: _STYLES[style]() for path, style in plan.items()})
    source = "its own plan" if own else "the names of its layers"
    return f"parallelize_module: layers are cut among {mesh.size()} ranks by {source}"
