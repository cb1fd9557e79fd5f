"""Ten workloads whose estimates are kept: the same to the byte on every machine, Python and build of a torch version.

After a change that is meant to move them, `python -m tests.golden.test_estimates` writes them anew; read the diff.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from memlint.workloads.discover import find_workloads
from tests.in_process import analysed

ROOT = Path(__file__).parents[2]
FILE = ROOT / "fixtures" / "golden" / "estimates.json"
TORCH = ".".join(torch.__version__.split("+")[0].split(".")[:2])

SETTINGS = {
    "gpt2": {"batch": 2, "dtype": "bf16-amp"},
    "llama": {"batch": 1, "dtype": "bfloat16", "gpu": "h100-80gb"},
    "bert": {"batch": 3, "dtype": "fp16-amp", "gpu": "rtx4090"},
    "vit": {"batch": 4, "gpu": "v100-32gb"},
    "resnet50": {"batch": 4, "gpu": "t4", "optimizer": "sgd"},
    "convnext": {"batch": 2, "mode": "inference", "gpu": "l4"},
    "unet": {"batch": 2, "dtype": "float16"},
    "lstm_lm": {"batch": 4, "gpu": "b200"},
    "moe": {"batch": 1, "dtype": "bf16-amp"},
    "swin": {"batch": 2, "gpu": "cpu"},
}


def estimates(name: str) -> dict[str, int]:
    (workload,) = find_workloads(str(ROOT / "fixtures" / "models" / f"{name}.py"), ROOT).workloads
    estimate = analysed(replace(workload, **SETTINGS[name]), ROOT).estimate
    peaks = {n: getattr(estimate, n) for n in ("requested", "allocated", "reserved")}
    return {f"{n}.{bound}": getattr(p, bound) for n, p in peaks.items() for bound in ("low", "estimate", "high")}


once = cache(estimates)


@pytest.mark.parametrize("name", SETTINGS)
def test_an_estimate_is_what_it_was(name):
    kept = json.loads(FILE.read_text())
    if TORCH not in kept:
        pytest.skip(f"no estimates are kept for torch {TORCH}")
    assert once(name) == kept[TORCH][name]


def test_the_same_estimate_twice_in_one_process():
    assert once("gpt2") == estimates("gpt2")


if __name__ == "__main__":
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[TORCH] = {name: estimates(name) for name in SETTINGS}
    FILE.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
