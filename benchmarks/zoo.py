"""How many published models memlint analyses: Hugging Face architectures from their configs, and timm families.

    python benchmarks/zoo.py --huggingface
    python benchmarks/zoo.py --timm 70 --seed 0

Nothing is downloaded. Prints one line per model, then the count; failures are named.
"""

from __future__ import annotations

import random
import sys
import time
import warnings

import click

HUGGINGFACE = [
    "GPT2",
    "Bert",
    "Llama",
    "Mistral",
    "Qwen2",
    "Gemma2",
    "Mixtral",
    "T5",
    "Bart",
    "ViT",
    "Swin",
    "ConvNext",
    "Segformer",
    "Whisper",
    "Wav2Vec2",
    "CLIP",
    "Detr",
    "Mamba",
    "DebertaV2",
]


@click.command()
@click.option("--huggingface", is_flag=True, help="The Hugging Face architectures.")
@click.option("--timm", "num_families", type=int, default=0, help="One model each of this many random timm families.")
@click.option("--seed", type=int, default=0)
@click.option("--only", default="", help="Only models whose name contains this.")
def main(huggingface: bool, num_families: int, seed: int, only: str) -> None:
    from memlint.workloads import torchvision_schemas
    from memlint.workloads.spec import Workload

    warnings.simplefilter("ignore")
    torchvision_schemas.install()
    workloads = []
    if huggingface:
        workloads += [
            Workload(n, f"transformers::{n}Config", "", f"{n}Config", batch=2, dtype="float32") for n in HUGGINGFACE
        ]
    if num_families:
        workloads += [
            Workload(n, "timm::create_model", "", "create_model", batch=2, arguments={"model_name": n})
            for n in _timm_models(num_families, seed)
        ]
    workloads = [w for w in workloads if only in w.name]
    failed = [w.name for w in workloads if not _analysed(w)]
    print(f"{len(workloads) - len(failed)} of {len(workloads)} models analyse in training mode")
    if failed:
        print("failed:", ", ".join(failed))
        sys.exit(1)


def _timm_models(count: int, seed: int) -> list[str]:
    import timm

    modules = sorted(timm.list_modules())
    chosen = random.Random(seed).sample(modules, min(count, len(modules)))
    models = []
    for module in chosen:
        names = [n for n in timm.list_models(module=module) if not n.startswith("test_")]
        if names:
            models.append(random.Random(seed).choice(names))
    return models


def _analysed(workload) -> bool:
    from pathlib import Path

    from memlint.base.errors import MemlintError
    from memlint.base.units import format_nbytes
    from memlint.commands.analyse.analysis import Analysis

    start = time.perf_counter()
    try:
        analysis = Analysis.of(workload, Path.cwd())
    except MemlintError as error:
        print(f"FAILED {workload.name}: {error.message.splitlines()[0][:300]}", flush=True)
        return False
    seconds = time.perf_counter() - start
    peak = format_nbytes(analysis.estimate.reserved.estimate)
    assumed = sum(a.frame is not None for a in analysis.trace.assumptions)
    print(
        f"{workload.name}: reserved {peak}, {len(analysis.trace.nodes)} kernels, {seconds:.1f} s,"
        f" {assumed} assumed values",
        flush=True,
    )
    return True


if __name__ == "__main__":
    main()
