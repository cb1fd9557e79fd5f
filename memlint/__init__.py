"""Static analyser and GPU-memory estimator for PyTorch model code. Importing it does not import torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from memlint.base.version import __version__
from memlint.targets.declare import Declaration, workload

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    import torch
    from torch.fx import GraphModule

    from memlint.capture.capture import Capture

__all__ = ["Declaration", "__version__", "op", "open", "trace", "workload"]


def open(file: str | PathLike[str], *, gpu: str | None = None) -> Capture:  # noqa: A001 -- as in memlint.open
    """Read a Capture that `memlint capture` wrote, or a recording of a real GPU; imports no torch.

    A recording is what `torch.cuda.memory._dump_snapshot` writes (`.pickle`), or a history of `memlint validate`
    (`.json.gz`); `gpu` names the GPU that it is of, which it does not say.

    >>> step = memlint.open("fixtures/captures/mlp.memlint")
    >>> step.workload.name, step.workload.batch
    ('MLP', 8)
    >>> sum(buffer.nbytes for buffer in step.trace.buffers if buffer.category == "parameter")
    163499936

    Its `trace` has nodes, Buffers and events (records of `memlint.memory.records`), `workload` what was analysed;
    `memlint.capture.looks.estimate_of` gives the peaks. Raises memlint.base.errors.TargetError.
    """
    from memlint.capture.files import open_file  # noqa: PLC0415

    return open_file(str(file), gpu)


def trace(
    target: str | PathLike[str] | Callable[..., Any] | Declaration,
    *,
    batch: int | None = None,
    dimensions: Mapping[str, int] | None = None,
    dtype: str | torch.dtype | None = None,
    mode: Literal["train", "inference", "generate"] | None = None,
    optimizer: str | None = None,
    gpu: str | None = None,
) -> GraphModule:
    """Run one step of a model on the simulated GPU, and give it as a graph of ATen kernels.

    `target` is what one types after `memlint check`, such as `"model.py::GPT2"`, or the object itself: a model, its
    class, a function that makes a model with or without its inputs, or a Declaration. The rest is as on the command
    line, and wins over what the target declares. The step is the second, in which the optimizer has its state; the code
    runs in this process, without a GPU.

    >>> step = memlint.trace("fixtures/models/mlp.py", batch=2)
    >>> for kernel in step.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default):
    ...     print(kernel.meta["memlint"].module, kernel.meta["memlint_buffers"][0].nbytes)
    layers.0 32768
    layers.3 32768
    layers.6 32768
    layers.9 8000

    There is a `call_function` for each kernel, whose arguments are those that wrote what it uses last, and a
    placeholder for each tensor that the step finds: parameters, optimizer state, inputs. Views and numbers are left
    out, so the module is there to be read and searched (`graph`, `code`, `print_readable()`), not to be called. Of each
    node `meta["memlint"]` is the Node (line, phase, module, shapes) and `meta["memlint_buffers"]` the Buffers that it
    opens (bytes, dtype, category, lifetime), of a placeholder the one it stands for; `meta["memlint"]` of the module is
    the Trace of both steps. They are records of `memlint.memory.records`.

    Raises memlint.base.errors.MemlintError: TargetError for what is not there, UsageError for settings that make no
    sense and for targets with several workloads, WorkloadError for what the code raises, TraceError for what cannot be
    simulated.
    """
    from memlint.commands.targets import requests_of  # noqa: PLC0415
    from memlint.session.step_module import step_module  # noqa: PLC0415 -- it imports torch

    options = {"batch": batch, "dtype": dtype, "mode": mode, "optimizer": optimizer, "gpu": gpu}
    return step_module(target, {**options, "dimensions": dimensions}, requests_of)


def op(
    name: str,
    *,
    shapes: Callable[..., Any],
    saves: Sequence[str] = (),
    workspace: int | Callable[..., int] = 0,
    backward_workspace: int | Callable[..., int] = 0,
) -> None:
    """Say what an op of a compiled extension takes, which does not load where there is no GPU.

    `name` is `"mylib::fused"` for `torch.ops.mylib.fused`, or the dotted name of a function, such as
    `"mylib_cuda.fused"`. `shapes` takes the op's arguments and gives the shape of its output, whose dtype is that of
    the first tensor, or a tensor like it, or a list of these. `saves` names the arguments that backward needs, and
    `"output"`. `workspace` and `backward_workspace` are bytes that its kernels need while they run, or functions of the
    arguments. Backward gives a gradient for each argument that wants one.

    >>> memlint.op(
    ...     "mylib::fused",
    ...     shapes=lambda x, weight: (*x.shape[:-1], weight.shape[0]),
    ...     saves=["x", "weight"],
    ...     workspace=lambda x, weight: 4 * x.numel(),
    ... )

    Write it before the extension is imported. Outside of `memlint check` and `memlint run` it does nothing. Raises
    UsageError where `saves` names no argument.
    """
    if "torch" in sys.modules:
        from memlint.libraries.own_ops import declare  # noqa: PLC0415 -- it imports torch

        declare(name, shapes, saves, workspace, backward_workspace)


def __dir__() -> list[str]:
    """Give what is public, and none of what this module imports."""
    return sorted(__all__)
