"""`memlint validate --history snapshot.pickle --of TARGET`: a run that was recorded elsewhere as a Measurement.

What is kept has sizes, addresses, operators and phases: no stacks, and so no path and no line of anybody's code.
"""

from pathlib import Path
from typing import Any, Final

from memlint.base.errors import UsageError
from memlint.base.version import installed_torch
from memlint.capture.recorded import ACTIONS, ALLOC, FREE, FREE_REQUESTED, GROWS, RELEASES, Recording
from memlint.capture.recording import read_recordings
from memlint.explain.recordings.evidence import Evidence
from memlint.memory.devices import device_named
from memlint.memory.records import Phase
from memlint.validate.history import write_history
from memlint.validate.measurement import Flags, Machine, Measurement, Peaks, Subject
from memlint.validate.store import Store

_PHASES: Final = tuple(Phase)


def machine_of(gpu: str | None, driver: str, torch: str | None) -> Machine:
    """Make the record of the machine as the user names it. Raises UsageError without a GPU that is known."""
    if gpu is None:
        raise UsageError("a recording does not say which GPU it was", "Name it: --gpu h100-80gb.")
    device = device_named(gpu)
    return Machine(
        gpu=device.name,
        title=device.title,
        total_nbytes=device.total_nbytes,
        capability=device.capability,
        driver=driver,
        torch=torch or ".".join(map(str, installed_torch())),
        python="",
    )


def read_run(file: Path) -> Evidence:
    """Read a recording of one GPU from its first allocation on. Raises TargetError or UsageError."""
    recordings = [each for each in read_recordings(file) if len(each.events)]
    if len(recordings) != 1:
        raise UsageError(f"{file} has the history of {len(recordings)} GPUs", "Record the run of one.")
    return Evidence.of(recordings[0])


def measurement_of(evidence: Evidence, subject: Subject, machine: Machine) -> Measurement:
    """Make the Measurement of a recorded run.

    PyTorch's flags are not recorded: they are those of the Subject's conditions, and else PyTorch's defaults.
    """
    recording = evidence.recording
    replayed = evidence.program.recorded
    at_peak = next((n for n, born in enumerate(evidence.alive.born) if born == evidence.course.peak >= 0), None)
    conditions = subject.conditions
    table = {**subject.table, "allocator": recording.settings} if recording.settings else subject.table
    return Measurement(
        subject=subject.model_copy(update={"table": table}),
        machine=machine,
        flags=Flags(
            matmul_precision=conditions.matmul_precision,
            cudnn_enabled=True,
            cudnn_benchmark=conditions.cudnn_benchmark,
            cudnn_deterministic=False,
            cudnn_allow_tf32=True,
            deterministic_algorithms=False,
        ),
        num_warmup=0,
        num_steps=max(len(evidence.steps.ends), 1),
        peaks=Peaks(
            requested=evidence.course.nbytes_at_peak,
            allocated=replayed.allocated,
            reserved=recording.peaks.get("reserved") or recording.most_reserved(),
        ),
        phase_peaks={},
        steps=[],
        categories={},
        peak_phase=Phase.OTHER if at_peak is None else evidence.kinds.phase(at_peak),
        num_retries=len(evidence.program.released),
    )


def keep(evidence: Evidence, measurement: Measurement, folder: Path) -> Measurement:
    """Write a Measurement and its history below `folder`; return it with the history's name. Raises UsageError."""
    store = Store(folder, measurement.machine)
    file = store.history_file(measurement.subject.name)
    write_history(_history(evidence, measurement), file)
    kept = measurement.model_copy(update={"history": file.name})
    store.put(kept)
    return kept


def _history(evidence: Evidence, measurement: Measurement) -> dict[str, Any]:
    """The fields that fixtures/histories describes."""
    recording = evidence.recording
    return {
        "name": measurement.subject.name,
        "torch": measurement.machine.torch,
        "gpu": measurement.machine.gpu,
        "starts_empty": not evidence.program.begins_in_the_middle,
        "allocator_settings": {"conf": recording.settings} if recording.knows_settings else None,
        "peaks": measurement.peaks.model_dump(exclude_none=True),
        "events": _events(evidence),
        "segments_at_end": _segments(recording),
    }


def _events(evidence: Evidence) -> list[list[Any]]:
    recording, alive = evidence.recording, evidence.alive
    events = recording.events
    ends = FREE if FREE in events.actions else FREE_REQUESTED
    number = alive.num_before
    rows: list[list[Any]] = []
    columns = zip(events.actions, events.addresses, events.sizes, events.streams, events.sites, strict=True)
    for action, address, nbytes, stream, site in columns:
        if action == ALLOC:
            at = recording.site(site)
            rows.append(["alloc", address, nbytes, stream, at.op if at else "", evidence.kinds.phase(number).value])
            number += 1
        elif action == ends:
            rows.append(["free", address, nbytes, stream])
        elif action in GROWS or action in RELEASES:
            rows.append([ACTIONS[action], address, nbytes, stream])
    return rows


def _segments(recording: Recording) -> list[list[Any]]:
    return [
        [
            *(segment.address, segment.nbytes, segment.stream),
            *("small" if segment.is_small else "large", segment.is_expandable),
            [[block.nbytes, block.requested, _state(block.is_free)] for block in segment.blocks],
        ]
        for segment in recording.segments
    ]


def _state(is_free: bool) -> str:
    return "inactive" if is_free else "active_allocated"
