"""Measurements and Predictions made by hand."""

from __future__ import annotations

from typing import Any

from memlint.memory.estimate import Interval
from memlint.validate.comparison import Comparison, Prediction
from memlint.validate.measurement import Flags, Machine, Measurement, Peaks, Subject

MACHINE = Machine(gpu="cpu", title="x86_64", torch="2.13.0+cpu", python="3.11.7")
GPU = Machine(gpu="h200", title="NVIDIA H200", torch="2.13.0+cu130", python="3.11.7")
FLAGS = Flags(
    matmul_precision="highest",
    cudnn_enabled=True,
    cudnn_benchmark=False,
    cudnn_deterministic=False,
    cudnn_allow_tf32=True,
    deterministic_algorithms=False,
)


def subject(name: str = "net", **changes: Any) -> Subject:
    table = {"target": "net.py::Net", "mode": "train", "batch": 8, "dtype": "float32", "optimizer": "adamw"}
    return Subject(name=name, table=table).model_copy(update=changes)


def measurement(name: str = "net", requested: int = 1000, *, gpu: bool = False, **changes: Any) -> Measurement:
    peaks = Peaks(requested=requested)
    if gpu:
        peaks = Peaks(requested=requested, allocated=requested, active=requested, reserved=2 * requested)
    return Measurement(
        subject=subject(name, **{key: changes.pop(key) for key in ("family", "holdout") if key in changes}),
        machine=GPU if gpu else MACHINE,
        flags=FLAGS,
        num_warmup=0,
        num_steps=2,
        peaks=peaks,
        phase_peaks={"forward": Peaks(requested=requested // 2), "backward": Peaks(requested=requested)},
        steps=[peaks, peaks],
        categories={"parameter": 100},
        peak_phase="backward",
        peak_op="aten::mm",
    ).model_copy(update=changes)


def prediction(name: str = "net", requested: int = 1000, **changes: Any) -> Prediction:
    peaks = {
        "requested": Interval(requested, requested, requested),
        "allocated": Interval(requested, requested, requested + 100),
        "reserved": Interval(2 * requested, 2 * requested, 3 * requested),
        "device": Interval(3 * requested, 3 * requested, 3 * requested),
    }
    return Prediction(
        name=name,
        peaks=peaks,
        phase_peaks={"forward": requested // 2, "backward": requested, "optimizer": 1},
        categories={"parameter": 100, "activation": 5},
        peak_phase="backward",
        peak_op="aten.mm.default",
    ).model_copy(update=changes)


def comparison(measured: int, predicted: int, name: str = "net", **changes: Any) -> Comparison:
    return Comparison(measurement=measurement(name, measured, **changes), prediction=prediction(name, predicted))
