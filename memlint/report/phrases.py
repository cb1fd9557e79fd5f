"""The phrases that several renderers use, each in one place: of places, tensors, sizes, steps, limits and counts."""

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from memlint.base.units import Measure, Outcome, format_count, format_nbytes
from memlint.lint.severity import Severity
from memlint.report.model import (
    Change,
    Estimate,
    FittingGpu,
    Generation,
    Interval,
    LineBytes,
    Place,
    Program,
    Ranks,
    Script,
    StreamPeak,
    Sweep,
    Traffic,
    Workload,
)

MEASURES: dict[Measure, str] = {
    "requested": "what tensors ask for",
    "allocated": "torch.cuda.max_memory_allocated",
    "reserved": "torch.cuda.max_memory_reserved",
    "device": "nvidia-smi: reserved and the CUDA context",
}
"""The four peaks, and what to compare each with."""
BUDGET_OUTCOMES: dict[Outcome, str] = {"fits": "kept", "does not fit": "exceeded", "uncertain": "may be exceeded"}
"""The words for the outcome of a budget."""
_OF_OWN_STEP: dict[Outcome, str] = {
    "fits": "would fit",
    "does not fit": "would not fit",
    "uncertain": "uncertain",
}
"""The words for the outcome of a step that a script did not take itself."""
_HAPPENED = {
    "evaluated": "inference without training",
    "generated": "generation without training",
    "computed": "operations alone: no model was called",
}
"""Descriptions of scripts that took no step."""
CAUSES = {"context": "CUDA context", "cache": "cache", "workspaces": "workspaces"}
"""Why the peak of `device` is an interval, in words."""
_WIDE = 0.1
"""The share of the estimate from which on the reasons of an interval are worth a line."""

NO_MODULE = "(no submodule)"
"""Stands for what belongs to the model itself, or lies outside of it."""

_ORIGINS = {
    "target": "named on the command line",
    "declared": "declared in its file",
    "config": "declared in the project's configuration",
    "discovered": "found in the file",
    "script": "a script that was run",
}
_MOST_STEPS = 6
_ENVIRONMENT = re.compile(r".*[/\\](?:site|dist)-packages[/\\]")
"""The path of installed packages: long, and of no interest to readers of a table."""


def place_text(path: str | None, line: int | None = None, library: Place | None = None) -> str:
    """`path:line`, or `path:line (in package/file.py:line)`; empty for what no line of the program made.

    Installed packages begin with their own name.
    """
    if path is None:
        return ""
    short = _ENVIRONMENT.sub("", path)
    return (short if line is None else f"{short}:{line}") + beside(library)


def beside(library: Place | None) -> str:
    """` (in package/file.py:line)`, to stand behind the place in the project; empty without a `library`."""
    return f" (in {place_text(library.path, library.line)})" if library else ""


def tensor_text(dtype: str, shape: Sequence[int]) -> str:
    """`bfloat16[8, 1024, 768]`; empty where the dtype is not known."""
    return f"{dtype}[{', '.join(map(str, shape))}]" if dtype else ""


def outcome_text(workload: Workload, outcome: Outcome) -> str:
    """`fits`; `would fit` for a step that is memlint's own, and `fits so far` for a script that failed after a step."""
    if is_own_step(workload.script):
        return _OF_OWN_STEP[outcome]
    return f"{outcome} so far" if workload.error is not None and outcome != "does not fit" else outcome


def is_own_step(script: Script | None) -> bool:
    """Say whether memlint took the step, because the script ended before its first one."""
    return script is not None and script.stop is not None


def own_step_words(script: Script | None) -> str:
    """Say behind a verdict that the step is memlint's, and which package or model it lacks; empty for any other."""
    if script is None or not is_own_step(script):
        return ""
    return f", by a step of memlint's own{_without(script)}"


def _without(script: Script) -> str:
    return f" without {script.lacks}" if script.lacks else ""


def own_step_text(script: Script) -> str:
    """Say where a script stopped before its first step, and what of the step is memlint's; empty for any other."""
    if script.stop is None:
        return ""
    lines = [each.partition(" in ")[0] for each in script.stop.traceback]
    at = f" at {place_text(lines[-1])}" if lines else ""
    *others, last = [each for each in script.own if each != "data"] or ["inputs"]
    parts = f"{', '.join(others)} and {last}" if others else last
    own = f"the step is memlint's own{_without(script)}, and so are its {parts}"
    return f"{script.stop.message}{at}, before its first step: {own}"


def script_text(script: Script) -> str:
    """Why the run of a script was over, what it did if it took no step, and the peak of its first steps."""
    peaks = ", ".join(map(format_nbytes, script.step_peaks[:_MOST_STEPS]))
    more = ", ..." if len(script.step_peaks) > _MOST_STEPS else ""
    did = own_step_text(script) or listed(script.ending, _HAPPENED.get(script.happened or ""))
    did += ", with data that memlint made up" * ("data" in script.own)
    return f"{did}; highest by step: {peaks}{more}" if peaks else did


def program_name(script: Script) -> str:
    """The script, or `-m` and the module, without its arguments."""
    try:
        words = shlex.split(script.command)
    except ValueError:  # in a report that memlint did not write
        return script.command
    return shlex.join(words[: 1 + (words[:1] == ["-m"])])


def program_text(program: Program) -> str:
    """Describe a program that a script started, and whether it could reach other machines."""
    reach = "which reached no other machine" if program.is_offline else "which nothing held back from the network"
    return f"program: {program.command}, {reach}"


def not_guarded_text(script: Script) -> str:
    """Give what nothing but Python kept the script from; empty if nothing."""
    names = "; ".join(script.not_guarded)
    return f"not guarded by this system, but in Python's own calls: {names}" if names else ""


def not_reached_text(script: Script) -> str:
    """Name the steps and phases that the run ended before, or may have; empty if none."""
    phases = " and ".join(script.not_reached)
    later = "not reached: steps that take more, as the script then frees what is frozen in these"
    others = f"not reached, if the script has it: {phases}; memlint run --whole goes on to the end" if phases else ""
    return "; ".join(filter(None, (later * script.frees_later, others)))


def spaced(category: str) -> str:
    """A category as people write it: `optimizer state`; `other` is what lives since before the first step."""
    return "made before the steps" if category == "other" else category.replace("_", " ")


def fitting_text(gpus: Sequence[FittingGpu], most: int) -> str:
    """GPUs that a step fits into, the first `most` of them, with their prices where there are any."""
    if not gpus:
        return "no GPU that memlint knows"
    names = [f"{gpu.name} ({gpu.price:g})" if gpu.price is not None else gpu.name for gpu in gpus[:most]]
    rest = f" and {len(gpus) - most} more" if len(gpus) > most else ""
    return f"{', '.join(names)}{rest}"


def origin_text(workload: Workload) -> str:
    """How memlint came to the Workload; empty where nobody says."""
    return _ORIGINS.get(workload.origin, "")


def line_detail(line: LineBytes) -> str:
    """Return what says most about a line beside its place: its text, or else the module or the categories."""
    return line.source or line.module or ", ".join(map(spaced, line.categories))


def listed(*parts: str | None) -> str:
    """The parts that say something, by comma."""
    return ", ".join(part for part in parts if part)


def cache_text(generation: Generation) -> str:
    """`kv cache after 32 tokens 34.0 MiB, 64.0 KiB a token`."""
    per_token = f"{format_nbytes(generation.cache_per_token)} a token" if generation.cache_per_token else "a fixed size"
    copies = (
        f"; at the peak {format_nbytes(generation.copies_nbytes)} more, in copies" if generation.copies_nbytes else ""
    )
    tokens = format_count(generation.new_tokens, "token")
    return f"kv cache after {tokens}: {format_nbytes(generation.cache_nbytes)}, {per_token}{copies}"


def tokens_text(estimate: Estimate | None) -> str:
    """`prompt 900, 32 new tokens`; empty where nothing is generated, or nothing is known of it."""
    generation = estimate.generation if estimate is not None else None
    if generation is None or not generation.new_tokens:
        return ""
    prompt = f"prompt {generation.prompt:,}" if generation.prompt else ""
    return listed(prompt, format_count(generation.new_tokens, "new token"))


def step_text(mode: str | None, batch: int | None, dtype: str | None, *others: str | None) -> str:
    """Describe the simulated step, in the order in which one would type it: `train step, batch 8, float32, adamw`."""
    return listed(f"{mode} step" if mode else "", f"batch {batch}" if batch else "", dtype, *others)


def ranks_text(ranks: Ranks | None) -> str:
    """`rank 0 of 8`, `fsdp, rank 0 of 8`; empty for a program that joins no process group."""
    return listed(ranks.strategy, f"rank {ranks.rank} of {ranks.world_size}") if ranks else ""


def stream_text(peak: StreamPeak) -> str:
    """`default stream`, `stream 35 (reduce_scatter)`."""
    kinds = f" ({', '.join(peak.collectives)})" if peak.collectives else ""
    return f"stream {peak.stream}{kinds}" if peak.stream else f"default stream{kinds}"


def traffic_text(traffic: Traffic) -> str:
    """`33 x all_gather of 8 ranks within a machine`."""
    where = "within a machine" if traffic.within_node else "between machines"
    return f"{traffic.calls} x {traffic.kind} of {format_count(traffic.ranks, 'rank')} {where}"


def torch_text(workload: Workload) -> str:
    """`torch 2.10` where another than the installed version was asked for."""
    return f"torch {workload.torch}" if workload.torch else ""


def signed(nbytes: int, minus: str = "-") -> str:
    """A difference with its sign: `+1.41 GiB`."""
    return (minus if nbytes < 0 else "+") + format_nbytes(abs(nbytes))


def bounds(interval: Interval) -> str:
    """`4.10 GiB to 4.52 GiB`; empty where nothing is uncertain, or nothing that shows."""
    low, high = format_nbytes(interval.low), format_nbytes(interval.high)
    return "" if low == high else f"{low} to {high}"


def is_wide(interval: Interval) -> bool:
    """Say whether one would ask why it is that wide."""
    return interval.high - interval.low >= _WIDE * interval.estimate > 0


def way(nbytes: int, sign: str) -> str:
    """`-102 MiB`, `+178 MiB`: how far an estimate may be off for one reason; empty if not at all."""
    return f"{sign}{format_nbytes(nbytes)}" if nbytes else ""


def share(part: int, whole: int) -> str:
    """`part` of `whole` in percent."""
    return "" if whole <= 0 else "<1%" if 0 < part / whole < 0.01 else f"{part / whole:.0%}"


def cost(change: Change, effect: str = "") -> str:
    """Describe the effect of a Change on training and the longer time of a step; `effect` may be coloured."""
    more = f", {change.recompute_share:.0%} more FLOPs" if change.recompute_share >= 0.005 else ""
    return (effect or change.effect) + more


def largest_batch(sweep: Sweep, if_partial: str) -> str:
    """The largest batch that fits, as far as it is known."""
    if sweep.is_partial:
        return if_partial
    if sweep.largest is None:
        return "none"
    return str(sweep.largest.batch) if sweep.is_limit else f"{sweep.largest.batch} or more"


def by_severity(severities: Iterable[Severity]) -> str:
    """`1 error, 2 warnings, 3 info`."""
    counts: Counter[str] = Counter(severities)
    names = [name for name in ("error", "warning", "info", "note") if counts[name]]
    return listed(*(f"{counts[name]} info" if name == "info" else format_count(counts[name], name) for name in names))


def saving(peak_change: int | None) -> str:
    """`300 MiB`: what a fix saves; empty if it saves nothing."""
    return format_nbytes(-peak_change) if peak_change is not None and peak_change < 0 else ""


def of_peak(measure: Measure) -> str:
    """Give what a fix saves something of, by the measure of its Finding."""
    return "of the peak" if measure == "requested" else f"of {measure} memory"
