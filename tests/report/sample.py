"""A Report made by hand, with everything a renderer can meet."""

from __future__ import annotations

from memlint.report.model import (
    AliveBuffer,
    Assumption,
    Course,
    Error,
    Estimate,
    Finding,
    Interval,
    LineBytes,
    ModuleBytes,
    Peak,
    Report,
    Skipped,
    Verdict,
    Workload,
)

GIB, MIB = 2**30, 2**20


def exactly(nbytes: int) -> Interval:
    return Interval(low=nbytes, estimate=nbytes, high=nbytes)


ESTIMATE = Estimate(
    peak=Peak(
        requested=exactly(4 * GIB + 128 * MIB),
        allocated=exactly(4 * GIB + 136 * MIB),
        reserved=Interval(low=4800 * MIB, estimate=4900 * MIB, high=5200 * MIB),
        device=Interval(low=5300 * MIB, estimate=5436 * MIB, high=5744 * MIB),
    ),
    phase="backward",
    op="aten._softmax_backward_data.default",
    path="models/gpt2.py",
    line=61,
    module="transformer.h.11.attn",
    phase_peaks={"other": 471 * MIB, "forward": 4064 * MIB, "backward": 4 * GIB + 128 * MIB, "optimizer": 2100 * MIB},
    categories={
        "activation": 2437 * MIB,
        "optimizer_state": 952 * MIB,
        "parameter": 471 * MIB,
        "temporary": 205 * MIB,
        "gradient": 112 * MIB,
        "workspace": 20 * MIB,
        "buffer": 12 * MIB,
        "input": 128 * 1024,
        "other": 0,
    },
    at_peak=[
        AliveBuffer(
            nbytes=384 * MIB,
            dtype="float32",
            shape=(8, 1024, 12288),
            category="activation",
            op="aten._log_softmax.default",
            path="models/gpt2.py",
            line=118,
            why="saved for backward",
        ),
        AliveBuffer(
            nbytes=147 * MIB,
            dtype="float32",
            shape=(50257, 768),
            category="parameter",
            op="aten.empty.memory_format",
            path="models/gpt2.py",
            line=88,
            module="transformer.wte",
            name="transformer.wte.weight",
            why="parameter of the model",
        ),
    ],
    num_at_peak=812,
    course=Course(
        nbytes=[
            *(n * 157 * MIB for n in (1, 2, 3)),
            *(471 * MIB + n * 500 * MIB for n in range(8)),
            *(4 * GIB + 128 * MIB - n * 250 * MIB for n in range(16)),
            *(2100 * MIB for _ in range(12)),
        ],
        phases=[*["other"] * 3, *["forward"] * 8, *["backward"] * 16, *["optimizer"] * 12],
        steps=[*[-1] * 3, *[0] * 36],
    ),
    by_module=[
        ModuleBytes(module="transformer.h.0.attn", type="Attention", nbytes=200 * MIB, num_buffers=9),
        ModuleBytes(module="", nbytes=600 * MIB, num_buffers=300),
    ],
    by_line=[
        LineBytes(
            path="models/gpt2.py",
            line=61,
            source="att = F.softmax(att, dim=-1)",
            nbytes=1152 * MIB,
            num_buffers=12,
            dtype="bfloat16",
            shape=(8, 12, 1024, 1024),
            module="transformer.h.*.attn",
            why="saved for backward",
        ),
        LineBytes(
            path="train.py",
            line=40,
            source="optimizer.step()",
            nbytes=952 * MIB,
            num_buffers=296,
            dtype="float32",
            shape=(50257, 768),
            why="optimizer state",
        ),
        LineBytes(
            path=None,
            line=None,
            nbytes=471 * MIB,
            num_buffers=148,
            categories={"parameter": 471 * MIB},
            why="parameters",
        ),
        *(
            LineBytes(
                path="models/gpt2.py",
                line=70 + i,
                source="loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)",
                nbytes=(90 - i) * MIB,
                num_buffers=1,
            )
            for i in range(8)
        ),
    ],
)

REPORT = Report(
    tool="memlint 0.1.0",
    torch="2.13.0",
    workloads=[
        Workload(
            name="GPT2",
            target="models/gpt2.py::GPT2",
            mode="train",
            batch=8,
            dtype="bf16-amp",
            optimizer="adamw",
            gpu="a100-80gb",
            origin="discovered",
            assumptions=[
                Assumption(text="idx is int64 [8, 1024] below 50257, from wte", path="models/gpt2.py", line=90),
                Assumption(text="the loss is output.mean()"),
            ],
            estimate=ESTIMATE,
            verdict=Verdict(outcome="fits", limit=79 * GIB, limit_name="NVIDIA A100 80GB"),
            budget=Verdict(outcome="does not fit", limit=5 * GIB, limit_name="budget"),
        ),
        Workload(
            name="models/unet.py",
            target="models/unet.py",
            error=Error(
                kind="workload",
                message="UNet cannot be built: ValueError: channels must be divisible by 32",
                hint="Declare its arguments.",
                traceback=["models/unet.py:14 in __init__", "models/blocks.py:40 in make_block"],
            ),
        ),
    ],
    findings=[
        Finding(
            code="MEM107",
            path="models/gpt2.py",
            line=61,
            column=15,
            message="attention keeps its weights for backward",
            severity="warning",
            confidence="exact-retrace",
            nbytes=1152 * MIB,
            peak_change=-1024 * MIB,
            fix="call F.scaled_dot_product_attention",
            workload="GPT2",
        ),
        Finding(
            code="MEM402",
            path="train.py",
            line=52,
            column=9,
            message="the running loss keeps every step's graph alive",
            severity="note",
            confidence="heuristic",
        ),
    ],
    skipped=[
        Skipped(path="models/vit.py", name="ViT", reason="image_size has no default", hint="Declare it."),
        Skipped(path="models/gpt2.py", name="Block", reason="it is a part of GPT2"),
        Skipped(path="models/gpt2.py", name="Attention", reason="it is a part of Block"),
    ],
)
