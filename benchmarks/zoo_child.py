"""One model of `benchmarks/zoo.py`, in a child; what it needs is imported here, once for all of them."""

from __future__ import annotations

import inspect
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from memlint.base.errors import MemlintError
from memlint.base.units import format_nbytes
from memlint.compile import requests
from memlint.memory.estimate import estimate
from memlint.memory.timeline import Timeline
from memlint.session.target import Traced
from memlint.targets.workload import Workload
from memlint.workloads.construction.construct import complete
from memlint.workloads.huggingface.configs import FEW, NUMBERS_OF_LAYERS, few_layers
from memlint.workloads.loading import prepare_imports

warnings.simplefilter("ignore")
prepare_imports()
_NAMES = ("torchvision", "transformers.generation", "timm", "diffusers.models", "scipy.optimize")
for _name in ("torch", *_NAMES, "torch._inductor.compile_fx"):
    with suppress(ImportError):
        import_module(_name)


ROOT = Path.cwd()
ANALYSED = "analysed"
COMPILED, IN_PARTS, EAGER = "compiled", "compiled in parts", "run eagerly"
NO_KERNELS = "compiled without a kernel of Inductor"
"""Outcomes of a model that is analysed: plainly, or with `--compile`."""


def analyse(
    library: str, name: str, *, inputs: bool, shallow: bool, compiles: bool, seconds: float, mode: Any
) -> tuple[str, float, str]:
    """To its estimate, or only to its inputs; with few layers if that is asked for and goes.

    Returns the outcome, the seconds of processor time, and what was assumed or the reason.
    """
    target = Workload(name, f"{library}::{name}", "", name, batch=2, mode=mode)
    if compiles:
        requests.install(seconds / 2)
        target = replace(target, compile="on")
    if library == "timm":
        target = replace(target, target="timm::create_model", qualname="create_model", arguments={"model_name": name})
    if library != "timm" and shallow:
        kind = getattr(import_module(library), name)
        with suppress(Exception):
            arguments = few_layers(kind()) if library == "transformers" else _few_of_defaults(kind)
            outcome = _outcome(replace(target, arguments=arguments), inputs=inputs)
            if "left out: with" not in outcome[-1]:  # else it may be for want of layers
                return outcome
    try:
        return _outcome(target, inputs=inputs)
    except MemlintError as error:
        return type(error).__name__, time.process_time(), error.message


def _outcome(workload: Workload, *, inputs: bool) -> tuple[str, float, str]:
    if inputs:
        _, assumptions = complete(workload, ROOT)
        return ANALYSED, time.process_time(), "; ".join(each.text for each in assumptions)
    traced = Traced.of(workload, ROOT)
    texts = "; ".join(each.text for each in traced.capture.assumptions)
    peak = estimate(Timeline.of(traced.trace), traced.device, traced.trace.nodes).reserved.estimate
    text = f"reserved {format_nbytes(peak)}, {len(traced.trace.nodes)} kernels; {texts}"
    return _compiled(traced) if workload.compile == "on" else ANALYSED, time.process_time(), text


def _compiled(traced: Traced) -> str:
    """Say what became of the compilation."""
    if traced.workload.compile == "off":
        return EAGER
    if not any(node.op.startswith("inductor.") for node in traced.trace.nodes):
        return NO_KERNELS
    return IN_PARTS if traced.trace.graph_breaks else COMPILED


def _few_of_defaults(kind: type) -> dict[str, Any]:
    """Arguments with which a model class has `FEW` layers."""
    defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()}
    return {
        key: FEW
        for key, value in defaults.items()
        if NUMBERS_OF_LAYERS.fullmatch(key) and type(value) is int and value > FEW
    }
