"""The logs of serving engines beside the predictions of memlint.

    python -m benchmarks.serving
    python -m benchmarks.serving fitted

Logs are in fixtures/engine_logs. Constants of memlint/serving/engines were fitted to `fitted.csv`; `held_out.csv` was
compared once, after that. Prints a row for each log, and the errors of each file. A row whose set-up the log does not
state is named, and not compared.
"""

from __future__ import annotations

import csv
import functools
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from tabulate import tabulate

from memlint.memory.devices import device_named
from memlint.serving.engines import ENGINES
from memlint.serving.options import GIB, ServeOptions, version_of
from memlint.targets.known_configs import known_config

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from memlint.serving.model import Profile, ProfileOrder, ServedModel
    from memlint.serving.served import Served

LOGS = Path(__file__).resolve().parents[1] / "fixtures/engine_logs"
HALVES = ("fitted", "held_out")
NAMES = {"weights": "weights_gib", "activations": "activation_gib", "cache": "kv_gib", "tokens": "kv_tokens"}
"""Columns of the table, and those of the file."""
_INTERVALS = {"non_torch": "non_torch_gib", "cuda_graphs": "graph_gib"}
"""The same of what is no more than an interval."""
_QUANTIZED = {"w8a8": "w8a8", "w4a16": "w4a16", "fp8": "fp8"}
"""Methods by the end of a model's name: the engine names the format of the checkpoint, not the bits."""
_NEEDED = ("tp", "util", "max_model_len", "kv_gib", "max_num_batched_tokens", "max_num_seqs")


class Compared(NamedTuple):
    """A log and what memlint says."""

    row: Mapping[str, str]
    served: Served

    def values(self, name: str) -> tuple[float, float] | None:
        """Return what is predicted, and what was logged; None where nothing was."""
        text = self.row[NAMES[name]]
        if not text:
            return None
        stage = self.served.stages[0]
        predicted = self.served.num_tokens.estimate if name == "tokens" else getattr(stage, name).estimate / GIB
        return predicted, float(text)

    def error(self, name: str) -> float | None:
        """Return the relative error."""
        values = self.values(name)
        return None if values is None else values[0] / values[1] - 1

    def is_inside(self, name: str) -> bool:
        """Return True if what was logged, to a hundredth of a GiB, lies within the interval."""
        interval = getattr(self.served.stages[0], name)
        return interval.low / GIB - 0.005 <= float(self.row[_INTERVALS[name]]) <= interval.high / GIB + 0.005


def rows_of(half: str) -> list[dict[str, str]]:
    """Read one file of logs."""
    with (LOGS / f"{half}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def compared(half: str, only: Collection[str] = ()) -> Iterator[Compared | str]:
    """Yield each log of a file with its prediction, or its name and why there is none; `only` those ids, if any."""
    for row in rows_of(half):
        if only and row["id"] not in only:
            continue
        reason = _reason(row)
        yield f"{row['id']} ({row['model']}): {reason}" if reason else Compared(row, _served(row))


def _reason(row: Mapping[str, str]) -> str:
    missing = [name for name in _NEEDED if not row[name]]
    if missing:
        return f"the log does not state {', '.join(missing)}"
    return "" if known_config(_base(row["model"])) is not None else "the config of the model is not known"


def _base(name: str) -> str:
    """The model without what says how it was quantized."""
    for text in ("-quantized.w8a8", "-quantized.w4a16", "-FP8-dynamic", "-FP8"):
        name = name.replace(text, "")
    return name


def _served(row: Mapping[str, str]) -> Served:
    engine = ENGINES[row["engine"]]
    ending = next((method for end, method in _QUANTIZED.items() if row["model"].lower().endswith(end)), None)
    method = ending or (None if row["quantization"] in ("", "None") else row["quantization"])
    options = ServeOptions(
        engine=row["engine"],
        version=version_of(row["version"]),
        tensor_parallel=int(row["tp"]),
        pipeline_parallel=int(row["pp"] or 1),
        dtype=(row["dtype"] or "bfloat16").removeprefix("torch."),
        max_model_len=int(row["max_model_len"]),
        utilization=float(row["util"]),
        kv_cache_dtype=row["kv_dtype"] or "auto",
        max_num_seqs=int(row["max_num_seqs"]),
        max_num_batched_tokens=int(row["max_num_batched_tokens"]),
        quantization=method,
    )
    name = _base(row["model"])
    return engine.plan(model_of(name), options, device_named(row["gpu"]), functools.partial(profile_of, name))


@functools.cache
def _config(name: str) -> object:
    from memlint.workloads import torchvision_schemas

    torchvision_schemas.install()
    import transformers

    from memlint.workloads.huggingface.configs import with_arguments

    kind, values = known_config(name) or ("", {})
    return with_arguments(getattr(transformers, kind), values)


@functools.cache
def model_of(name: str) -> ServedModel:
    """Describe a well-known model."""
    from memlint.session.serving.describe import describe

    return describe(_config(name), name, "bfloat16")


@functools.cache
def _profile_as(name: str, text: str) -> Profile:
    from memlint.serving.model import ProfileOrder
    from memlint.session.serving.profile_run import profile

    return profile(_config(name), ProfileOrder.model_validate_json(text))


def profile_of(name: str, order: ProfileOrder) -> Profile:
    """Run a profile run of a well-known model, each once."""
    return _profile_as(name, order.model_dump_json())


def table(half: str) -> str:
    """Return the comparison of one file as Markdown."""
    all_of_it = list(compared(half))
    logs = [each for each in all_of_it if isinstance(each, Compared)]
    head = ("log", "model", "tp x pp", *NAMES)
    lines = [
        (
            each.row["id"],
            each.row["model"].rpartition("/")[2],
            f"{each.row['tp']} x {each.row['pp']}",
            *(_cell(each, name) for name in NAMES),
        )
        for each in logs
    ]
    sums = ("", "median, largest error", "", *(_summary(logs, name) for name in NAMES))
    skipped = [f"- not compared: {each}" for each in all_of_it if isinstance(each, str)]
    return "\n".join([tabulate([*lines, sums], head, tablefmt="github"), "", *skipped])


def _cell(each: Compared, name: str) -> str:
    values = each.values(name)
    if values is None:
        return ""
    number = ".2f" if name != "tokens" else ",.0f"
    return f"{values[0]:{number}} / {values[1]:{number}} ({100 * (values[0] / values[1] - 1):+.1f} %)"


def _summary(logs: list[Compared], name: str) -> str:
    errors = [abs(error) for each in logs if (error := each.error(name)) is not None]
    return f"{100 * statistics.median(errors):.2f} %, {100 * max(errors):.1f} %" if errors else ""


@click.command()
@click.argument("halves", nargs=-1, type=click.Choice(HALVES))
def main(halves: tuple[str, ...]) -> None:
    """Print predicted / logged figures of the files of logs."""
    for half in halves or HALVES:
        click.echo(f"### {half}\n\n{table(half)}\n")


if __name__ == "__main__":
    main()
