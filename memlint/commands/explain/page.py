"""The page of recordings: the one that `memlint report` makes, with the verdict and the moment of the failure."""

from collections.abc import Sequence
from pathlib import Path

from memlint.base.errors import UsageError
from memlint.base.units import format_count
from memlint.base.version import __version__
from memlint.commands.analyse.analyse import look_at_capture
from memlint.commands.analyse.look import Look
from memlint.commands.explain.recordings import RecordingOptions, recordings_of
from memlint.config import find_settings
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.explanation import explain
from memlint.explain.recordings.traced import MOST_TRACED, failures_in, traced
from memlint.memory.devices import DEFAULT_DEVICE, device_named
from memlint.report.model import Finding, Report
from memlint.worker.protocol import Request


def report_of_recordings(sources: Sequence[Path], options: RecordingOptions) -> Report:
    """Make a Report of recordings, one Workload for each GPU, with what the rules find.

    The arguments are those of `explain_recordings`; `settings` and `against` are not looked at. Raises MemlintError, as
    well for a recording too long for a page.
    """
    settings, root = find_settings(Path())
    workloads, findings = [], []
    for source, recording in recordings_of(sources, options.device):
        evidence = Evidence.of(recording)
        if len(evidence.alive) > MOST_TRACED:
            raise UsageError(
                f"{source} has {format_count(len(evidence.alive), 'allocation')}, too many for a page",
                "Write text, json or markdown, or record less with max_entries.",
            )
        explanation = explain(evidence, str(source), devices=[device_named(name) for name in options.gpus])
        capture = traced(evidence, str(source), options.gpus[0] if options.gpus else DEFAULT_DEVICE)
        request = Request(target=str(source), path=str(source), root=str(root), settings=settings)
        result = look_at_capture(capture, request, Look(timeline=True))
        for each in result.workloads:
            timeline = each.timeline and each.timeline.model_copy(update={"failures": failures_in(evidence)})
            update = {"timeline": timeline, "explanation": explanation.verdict, "verdict": None, "fitting": None}
            update |= dict.fromkeys(("mode", "batch", "dtype", "optimizer"))
            workloads.append(each.model_copy(update=update))
        position = len(workloads) - 1
        findings += [
            Finding.model_validate(each.model_dump(exclude={"subject"}) | {"workload_position": position})
            for each in result.findings
        ]
    return Report(tool=f"memlint {__version__}", workloads=workloads, findings=findings)
