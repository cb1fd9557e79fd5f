"""`memlint.estimate`: the memory of a step of a model that is at hand, in this process."""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from memlint.api.handed_over import batch_of, builder
from memlint.api.result import Result
from memlint.base.patching import patched
from memlint.base.version import __version__
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.description import described, fitting_of
from memlint.config import Settings, override
from memlint.memory.devices import device_named
from memlint.report.from_trace import timeline_of
from memlint.report.model import Report
from memlint.session.handed_over import importable, workload_of
from memlint.session.target import Target
from memlint.targets.declare import Declaration
from memlint.worker.protocol import Request
from memlint.worker.session import FileSession
from memlint.workloads.candidates import Discovery

_CELL = re.compile(r"[^\s\"]*ipykernel_\d+[/\\\\]+\d+\.py")
"""The file that stands for a cell in the frames of ipykernel."""


def estimate(model: Any, sample_input: Any, optimizer: Any, loss: Any, options: Mapping[str, Any]) -> Result:
    """Trace two steps and give what they take; the rest is as in `memlint.estimate`."""
    given = {key: value for key, value in options.items() if value is not None}
    if isinstance(optimizer, str):
        given["optimizer"] = optimizer
    checked = override(Settings(), **given)
    given = {key: getattr(checked, key) for key in given}
    own_batch = batch_of(sample_input)
    if own_batch is not None:
        given.setdefault("batch", own_batch)
    build = builder(model, sample_input, optimizer, loss)

    def analysed(gpu: str | None) -> Report:
        return _report(build, given if gpu is None else {**given, "gpu": gpu})

    return Result(analysed(None), analysed)


def _report(build: Callable[..., Declaration], options: Mapping[str, Any]) -> Report:
    if "gpu" in options:
        options = {**options, "gpu": device_named(options["gpu"]).name}
    # While a target is built and run `torch.compile` does nothing.
    with importable(build), patched([(torch, "compile", torch.compile)]):
        workload = workload_of(build, options)
        request = Request(target=workload.name, path=None, root=str(Path.cwd()), settings=Settings())
        capture = Target(request, Discovery((workload,))).trace(0)
    capture = replace(capture, workload=replace(capture.workload, target=workload.name))
    analysis = Analysis.of(capture, FileSession(request))
    shown = {
        "timeline": timeline_of(analysis.timeline, analysis.trace.nodes),
        "fitting": fitting_of(analysis, {}),
    }
    record = Report(
        tool=f"memlint {__version__}",
        torch=torch.__version__,
        workloads=[described(analysis, None).model_copy(update={**shown, "origin": ""})],
    )
    return Report.model_validate_json(_CELL.sub(_cell_name, record.model_dump_json()))


def _cell_name(path: re.Match[str]) -> str:
    """`In[3]` for the file that stands for a cell, where this is a notebook's process."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    named = shell.compile.format_code_name(path[0]) if shell is not None else None
    return path[0] if named is None else str(named[1])
