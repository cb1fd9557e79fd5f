"""Static analyser and GPU-memory estimator for PyTorch model code. Importing it does not import torch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from memlint.base.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    import torch
    from torch.fx import GraphModule

    from memlint.api.fit import FitResult
    from memlint.api.result import Result
    from memlint.capture.capture import Capture
    from memlint.explain.watch.watch import Watch
    from memlint.targets.declare import Declaration, workload

__all__ = ["Declaration", "__version__", "check", "estimate", "fit", "op", "open", "run", "trace", "watch", "workload"]


def estimate(
    model: torch.nn.Module | Callable[[], torch.nn.Module],
    sample_input: Any = None,
    optimizer: str | Callable[..., Any] | torch.optim.Optimizer | None = None,
    *,
    loss: Callable[[Any, Mapping[str, Any]], Any] | None = None,
    batch: int | None = None,
    dtype: str | torch.dtype | None = None,
    mode: Literal["train", "inference"] | None = None,
    gpu: str | None = None,
) -> Result:
    """Estimate the GPU memory of a training step of a model that is at hand; no GPU is needed.

    `sample_input` is a tensor, a sequence (positional inputs) or a mapping (named inputs) on the host; without it the
    inputs are inferred. `optimizer` is a name, such as `"adamw"`, the class, a function of the parameters, or the
    optimizer itself, whose groups and settings then count. `loss` is called as `loss(output, inputs)`; by default it is
    the model's own, or the mean of the output. With another `batch` than that of the sample, its tensors are made as
    long. The rest is as on the command line.

    >>> model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024))
    >>> step = memlint.estimate(model, torch.zeros(512, 1024), torch.optim.AdamW(model.parameters(), foreach=True))
    >>> step
    <memlint: Sequential takes 716.0 MiB, fits NVIDIA A100 80 GB>
    >>> step.peak, step.fits("rtx4090")
    (750780416, True)
    >>> print(step.report().splitlines()[0])
    Sequential needs 716.0 MiB on NVIDIA A100 80 GB (79.3 GiB): fits

    `peak` is in bytes, as nvidia-smi shows it; `workload.estimate.peak` has the four peaks with their bounds. A
    notebook shows the result as a page. The model stays as it is: each trace is of a copy of it on the simulated GPU. A
    function or class that makes the model, in place of the model, needs no host memory for its weights.

    Raises memlint.base.errors.MemlintError: UsageError for settings that make no sense, WorkloadError for what the code
    raises, TraceError for what cannot be simulated.
    """
    from memlint.api.estimate import estimate as estimate_model  # noqa: PLC0415 -- it imports torch

    options = {"batch": batch, "dtype": _dtype_name(dtype), "mode": mode, "gpu": gpu}
    return estimate_model(model, sample_input, optimizer, loss, options)


def check(
    target: str | PathLike[str] | torch.nn.Module | Callable[[], torch.nn.Module],
    sample_input: Any = None,
    optimizer: str | Callable[..., Any] | torch.optim.Optimizer | None = None,
    *,
    loss: Callable[[Any, Mapping[str, Any]], Any] | None = None,
    batch: int | None = None,
    dtype: str | torch.dtype | None = None,
    mode: Literal["train", "inference"] | None = None,
    gpu: str | None = None,
) -> Result:
    """Check what one types after `memlint check`, in a child process, or estimate a model that is at hand.

    >>> step = memlint.check("fixtures/models/mlp.py")
    >>> step, [finding.code for finding in step.record.findings]
    (<memlint: MLP takes 1.29 GiB, fits NVIDIA A100 80 GB>, ['MEM203'])

    A file, a class or a function is checked as on the command line, rules included. For a model the answer is that of
    `memlint.estimate`, which has no findings. A notebook shows either as a page, with the peaks and the timeline.

    Raises what `memlint.estimate` raises, and UsageError for targets with several workloads; where the code of a target
    fails, `peak` raises WorkloadError, and `report()` says why.
    """
    from memlint.api.check import check as check_target  # noqa: PLC0415

    options = {"batch": batch, "dtype": _dtype_name(dtype), "mode": mode, "gpu": gpu}
    return check_target(target, sample_input, optimizer, loss, options)


def run(
    command: str | PathLike[str] | Sequence[str],
    *,
    steps: int | None = None,
    ranks: int | None = None,
    rank: int | None = None,
    fake_data: bool | None = None,
    gpu: str | None = None,
    timeout: float | None = None,
) -> Result:
    """Run a training script for a few steps without a GPU, in a child process, and estimate its memory.

    `command` is what one types after `memlint run`, as text or as words; the rest is as there.

    >>> step = memlint.run("fixtures/scripts/train_lm.py --layers 2")
    >>> step.workload.script.happened, step.workload.script.steps
    ('trained', 2)

    Raises memlint.base.errors.MemlintError for what is not there; where the script fails, `peak` raises WorkloadError,
    and `report()` says why.
    """
    from memlint.api.run import run as run_script  # noqa: PLC0415

    of_script = {"steps": steps, "ranks": ranks, "rank": rank, "fake_data": fake_data}
    return run_script(command, of_script, {"gpu": gpu, "timeout": timeout})


def fit(
    target: str | PathLike[str] | torch.nn.Module | Callable[..., Any] | Declaration,
    sample_input: Any = None,
    optimizer: str | Callable[..., Any] | torch.optim.Optimizer | None = None,
    *,
    loss: Callable[[Any, Mapping[str, Any]], Any] | None = None,
    batch: int | None = None,
    dtype: str | torch.dtype | None = None,
    mode: Literal["train", "inference"] | None = None,
    gpu: str | None = None,
) -> FitResult:
    """Find the largest batch of a model that fits into a GPU, as it is and with changes that keep what is trained.

    `target` is what one types after `memlint fit`, such as `"model.py::GPT2"`, which runs in a child process, or a
    model with the arguments of `memlint.estimate`.

    >>> model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024))
    >>> memlint.fit(model, torch.zeros(8, 1024), "sgd", gpu="rtx4090")
    <memlint: batch 353536 of Sequential fits NVIDIA GeForce RTX 4090>

    Raises what `memlint.estimate` raises, and UsageError for targets with several workloads.
    """
    from memlint.api.fit import fit as fit_target  # noqa: PLC0415 -- it imports torch

    options = {"batch": batch, "dtype": _dtype_name(dtype), "mode": mode, "gpu": gpu}
    return fit_target(target, sample_input, optimizer, loss, options)


def _dtype_name(dtype: str | torch.dtype | None) -> str | None:
    """`bfloat16` for `torch.bfloat16`."""
    return None if dtype is None else str(dtype).removeprefix("torch.")


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


def watch(
    folder: str | PathLike[str] = "memlint-oom",
    *,
    estimate: Capture | str | PathLike[str] | None = None,
    steps: int | None = 20,
    max_entries: int = 100_000,
) -> Watch:
    """Watch a training run beside it, in its own process, and explain it if the GPU's memory runs out.

    >>> model = torch.nn.Linear(4, 4)
    >>> with memlint.watch() as watch:
    ...     for batch in torch.ones(3, 2, 4):
    ...         model(batch).sum().backward()
    ...         watch.step()
    >>> watch.num_steps
    3

    While it is on, PyTorch records the last `max_entries` allocations with their lines, until `steps` steps are over
    (None: to the end); a program that records them itself goes on to. If an exception for want of memory comes through,
    the snapshot, its explanation, and the command that takes the same step without a GPU are written into `folder`.
    The exception goes on. `estimate` is a Capture, its file, or a report written with `--format json`: the first step
    whose peak leaves its interval is logged. Without a GPU nothing is recorded.

    `watch.for_trainer()`, `for_lightning()` and `for_accelerate()` give the same as a callback or tracker. Raises
    memlint.base.errors.MemlintError for an estimate that cannot be read.
    """
    from memlint.explain.watch.watch import Watch  # noqa: PLC0415

    return Watch(folder, estimate, steps, max_entries)


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the magic `%%memlint`, which estimates a cell that trains: `%load_ext memlint`."""
    from memlint.api.magic import register  # noqa: PLC0415 -- it needs IPython

    register(shell)


def __dir__() -> list[str]:
    """Give what is public, and none of what this module imports."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import what declares workloads when it is asked for: a command does without at first."""
    if name not in ("Declaration", "workload"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from memlint.targets import declare  # noqa: PLC0415

    return globals().setdefault(name, getattr(declare, name))
