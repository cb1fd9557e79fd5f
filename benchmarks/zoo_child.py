"""One model of `benchmarks/zoo.py`, in a child; what it needs is imported here, once for all of them."""

from __future__ import annotations

import inspect
import re
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from memlint.base.units import format_nbytes
from memlint.commands.analyse.analysis import Analysis
from memlint.targets.workload import Workload
from memlint.worker.protocol import Request, Result
from memlint.workloads.discover import complete
from memlint.workloads.loading import prepare_imports

warnings.simplefilter("ignore")
prepare_imports()
for _name in ("torch", "torchvision", "transformers.generation", "timm", "diffusers.models", "scipy.optimize"):
    with suppress(ImportError):
        import_module(_name)


LAYERS = re.compile(r"(n|num|encoder|decoder)_?([a-z]+_)*(layers?|blocks)|depth")
FEW = 2


def analyse(request: Request) -> Result:
    """To its estimate, or only to its inputs; with few layers if that is asked for and goes."""
    library, name, mode = (str(request.detail[key]) for key in ("library", "name", "mode"))
    target = Workload(name, f"{library}::{name}", "", name, batch=2, mode="train" if mode == "train" else "inference")
    if library == "timm":
        target = replace(target, target="timm::create_model", qualname="create_model", arguments={"model_name": name})
    start = time.perf_counter()
    if library != "timm" and request.detail["shallow"]:
        kind = getattr(import_module(library), name)
        with suppress(Exception):
            arguments = _few_layers(kind()) if library == "transformers" else _few_of_defaults(kind)
            answer = _answer(replace(target, arguments=arguments), request, start)
            if "left out: with" not in str(answer.detail["text"]):  # else it may be for want of layers
                return answer
    return _answer(target, request, start)


def _answer(workload: Workload, request: Request, start: float) -> Result:
    root = Path(request.root)
    if request.detail["inputs"]:
        _, assumptions = complete(workload, root)
        text = "; ".join(each.text for each in assumptions)
    else:
        analysis = Analysis.of(workload, root)
        texts = "; ".join(each.text for each in analysis.program.assumptions)
        peak = format_nbytes(analysis.estimate.reserved.estimate)
        text = f"reserved {peak}, {len(analysis.trace.nodes)} kernels; {texts}"
    return Result(detail={"text": text, "seconds": time.perf_counter() - start})


def _few_of_defaults(kind: type) -> dict[str, Any]:
    """Arguments with which a model class has `FEW` layers."""
    defaults = {name: each.default for name, each in inspect.signature(kind).parameters.items()}
    return {key: FEW for key, value in defaults.items() if LAYERS.fullmatch(key) and type(value) is int and value > FEW}


def _few_layers(config: Any) -> dict[str, Any]:
    """Arguments with which a config has `FEW` layers, and its sub-configs."""
    arguments: dict[str, Any] = {}
    counts = {key: value for key, value in vars(config).items() if LAYERS.fullmatch(key) and type(value) is int}
    arguments |= {key: FEW for key, value in counts.items() if value > FEW}
    for key, value in vars(config).items():
        if hasattr(value, "model_type"):
            if few := _few_layers(value):
                arguments[key] = {**value.to_dict(), **few}
        elif isinstance(value, list) and len(value) in counts.values() and len(value) > FEW:
            arguments[key] = value[:FEW]
    return arguments
