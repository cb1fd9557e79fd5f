"""Holds other tools that estimate memory beside memlint, on training runs that somebody measured.

Three rows of the page "Efficient Training on a Single GPU" of Transformers 4.21 (fixtures/published/measurements.json):
BERT-large as a classifier, 512 tokens, AdamW, on a V100; measured by NVML after training. Each tool gets what it asks
for, at its best:

* accelerate: `estimate-memory`'s own arithmetic, `calculate_maximum_sizes` of the model times four, its row "training
  using Adam"; batch and checkpoints are no inputs of it.
* torchinfo: `summary` with the input and `depth=8`, its "estimated total size"; it counts a forward's outputs twice.
* MemTracker of torch.distributed: two whole steps under FakeTensorMode, its peak; without the context.
* torch-preflight: `estimate` with batch, length, dtype and checkpoints, for the V100.
* memlint: what docs/published.md has.

`python benchmarks/estimators.py` prints the table that README shows; tools that are not installed are left out.
"""

import json
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from fixtures.published.programs import bert_classifier
from memlint.workloads.loading import prepare_imports

MIB = 2**20
NAMES = ("bert large classifier, batch 4", "BERT-large, float16, batch 4", "BERT-large, checkpoints, batch 1 of 4")


def of_accelerate(arguments: dict[str, Any]) -> float:
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes

    with init_empty_weights():
        total, _largest = calculate_maximum_sizes(bert_classifier(**arguments).make_model())
    return 4 * total / MIB


def of_torchinfo(arguments: dict[str, Any]) -> float:
    from torchinfo import summary

    program = bert_classifier(**arguments)
    with torch.device("meta"):
        model = program.make_model()
        tokens = torch.zeros(arguments["batch"], 512, dtype=torch.int64)
    shown = summary(model, input_data={"input_ids": tokens}, depth=8, verbose=0, device="meta")
    return (shown.total_input + shown.total_output_bytes + shown.total_param_bytes) / MIB


def of_mem_tracker(arguments: dict[str, Any]) -> float:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    program = bert_classifier(**arguments)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model = program.make_model()
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        inputs = {"input_ids": torch.zeros(arguments["batch"], 512, dtype=torch.int64)}
        inputs["labels"] = torch.zeros(arguments["batch"], dtype=torch.int64)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *inputs.values())
        with tracker:
            for _step in range(2):
                tracker.reset_mod_stats()  # it takes one call of each module
                with torch.autocast("cpu", torch.bfloat16, enabled=arguments.get("mixed", False)):
                    loss = model(**inputs).loss
                loss.backward()  # parts of a batch add up in the same gradients
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)  # memlint: ignore[MEM205] as before PyTorch 2.0
        peak = tracker.get_tracker_snapshot("peak")
    return max(sum(value for key, value in each.items() if key == "Total") for each in peak.values()) / MIB


def of_preflight(arguments: dict[str, Any]) -> float:
    command = ["estimate", "--model", "bert-large-uncased", "--batch-size", str(arguments["batch"]), "--seq-len", "512"]
    command += ["--dtype", "amp" if arguments.get("mixed") else "fp32", "--optimizer", "adamw", "--gpu", "v100-16gb"]
    command += ["--checkpointing"] if arguments.get("checkpoints") else []
    script = shutil.which("torch-preflight", path=str(Path(sys.executable).parent)) or "torch-preflight"
    done = subprocess.run([script, *command, "-f", "json"], capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout)["total_bytes"]) / MIB


TOOLS: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "accelerate estimate-memory": ("accelerate", of_accelerate),
    "torchinfo": ("torchinfo", of_torchinfo),
    "MemTracker": ("torch", of_mem_tracker),
    "torch-preflight": ("torch_preflight", of_preflight),
}


def main() -> None:
    warnings.simplefilter("ignore")
    prepare_imports()
    rows = json.loads((ROOT / "fixtures" / "published" / "measurements.json").read_text())
    chosen = [next(row for row in rows if row["name"] == name) for name in NAMES]
    page = (ROOT / "docs" / "published.md").read_text()
    ours = [next(line for line in page.splitlines() if line.startswith(f"| {name} ")).split("|") for name in NAMES]
    table: list[list[str]] = [["measured", *(f"{row['mib']:,} MiB" for row in chosen)]]
    for tool, (package, estimate) in TOOLS.items():
        if find_spec(package) is not None:
            estimates = [estimate(row["arguments"]) for row in chosen]
            table.append([tool, *map(_beside, estimates, (row["mib"] for row in chosen))])
    table.append(["memlint", *(_beside(float(cells[8]), float(cells[6])) for cells in ours)])
    print(tabulate(table, ("", *NAMES), "pipe"))


def _beside(mib: float, measured: float) -> str:
    return f"{mib:,.0f} MiB ({mib / measured - 1:+.0%})"


if __name__ == "__main__":
    main()
