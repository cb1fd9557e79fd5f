"""The peak as a flame graph for https://www.speedscope.app, by module and by line.

The format is described by https://www.speedscope.app/file-format-schema.json.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from memlint.base.version import __version__
from memlint.report.exports.lifetimes import Lifetimes
from memlint.report.model import Site
from memlint.report.phrases import NO_MODULE, place_text, tensor_text


def render_speedscope(workloads: Sequence[Lifetimes]) -> bytes:
    """Return one profile for each Workload: a sample for each Buffer alive at the peak, weighted by its bytes."""
    frames: dict[tuple[tuple[str, str | int], ...], int] = {}
    profiles = [_profile(each, frames) for each in workloads]
    document = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": f"memlint@{__version__}",
        "name": ", ".join(profile["name"] for profile in profiles),
        "activeProfileIndex": 0,
        "shared": {"frames": [dict(frame) for frame in frames]},
        "profiles": profiles,
    }
    return json.dumps(document).encode("ascii")


def _profile(lifetimes: Lifetimes, frames: dict[tuple[tuple[str, str | int], ...], int]) -> dict[str, Any]:
    alive = lifetimes.alive_at_peak()
    weights = [lifetimes.timeline.nbytes[buffer] for buffer in alive]
    samples = [[frames.setdefault(frame, len(frames)) for frame in _stack(lifetimes.site(buffer))] for buffer in alive]
    return {
        "type": "sampled",
        "name": f"{lifetimes.workload.name}: requested bytes at the peak",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _stack(site: Site) -> Iterator[tuple[tuple[str, str | int], ...]]:
    """Yield frames from the outside in: the modules, the line, and the tensor or kernel."""
    for module in _modules(site) or [NO_MODULE]:
        yield (("name", module),)
    if site.path is not None:
        yield _line(site.path, site.line, site.function)
    if site.library is not None:
        yield _line(site.library.path, site.library.line, site.library.function)
    what = site.name or site.op
    yield (("name", f"{site.category.replace('_', ' ')} {what} {tensor_text(site.dtype, site.shape)}"),)


def _line(path: str, line: int | None, function: str) -> tuple[tuple[str, str | int], ...]:
    name = f"{place_text(path, line)} {function}".rstrip()
    return (("name", name), ("file", path), *((("line", line),) if line is not None else ()))


def _modules(site: Site) -> list[str]:
    """Return `["blocks", "blocks.0", "attention"]`: numbers in a list of modules say nothing by themselves."""
    owner = site.name.rpartition(" of ")[2].rpartition(".")[0]  # as in `exp_avg of blocks.0.attention.weight`
    path = owner or site.module
    parts: list[str] = []
    for part in path.split(".") if path else []:
        parts.append(f"{parts[-1]}.{part}" if part.isdigit() and parts else part)
    return parts
