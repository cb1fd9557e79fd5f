"""Explanations of recordings: a file, or a folder with one for each rank."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import TargetError, UsageError
from memlint.base.version import __version__
from memlint.capture.files import is_recording
from memlint.capture.recorded import Recording
from memlint.capture.recording import read_recordings
from memlint.commands.capture import capture
from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.explain.recordings.against import Held, against
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.explanation import explain
from memlint.explain.recordings.model import Comparison, Explanation, Explanations, OnOneSide
from memlint.memory.devices import DEFAULT_DEVICE, device_named
from memlint.memory.records import Trace
from memlint.report.model import Plan


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """How recordings are looked at."""

    settings: tuple[str, ...] = ()
    """Further `PYTORCH_ALLOC_CONF` to replay them under."""
    gpus: tuple[str, ...] = ()
    """The GPU that it was, and others to replay them on."""
    device: int | None = None
    """The number of one GPU of a snapshot with several."""
    against: str | None = None
    """A program, as `memlint capture` takes it, whose simulated step is put beside a recording."""

    @property
    def are_default(self) -> bool:
        """True if nothing is asked for."""
        return self == RecordingOptions()


def explain_recordings(
    sources: Sequence[Path],
    options: RecordingOptions = RecordingOptions(),
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Explanations:
    """Explain every file and every file of every folder.

    Of a file with several GPUs, those that recorded something are explained, or else those with memory. `on_wait`
    hears of the simulation. Raises MemlintError for what is no recording, and for options that make no sense.
    """
    devices = [device_named(name) for name in options.gpus]
    explanations: list[Explanation] = []
    for file, recording in recordings_of(sources, options.device):
        evidence = Evidence.of(recording)
        explanation = explain(evidence, str(file), options.settings, devices)
        if options.against is not None:
            if explanations:
                raise UsageError(
                    "several GPUs are recorded, and one program is to stand beside them",
                    "Name one file, and one of its GPUs with --device N.",
                )
            gpu = options.gpus[0] if options.gpus else None
            simulated = capture(options.against, {"gpu": gpu}, on_wait=on_wait)
            comparison = comparison_of(evidence, simulated.trace, options.against)
            if explanation.failure is not None:
                room = explanation.failure.reserved + explanation.failure.free
                plan = _plan_within(room, options.against, gpu, on_wait)
                comparison = comparison.model_copy(update={"plan": plan})
            explanation = explanation.model_copy(update={"against": comparison})
        explanations.append(explanation)
    return Explanations(tool=f"memlint {__version__}", explanations=explanations)


def recordings_of(sources: Sequence[Path], device: int | None) -> Iterator[tuple[Path, Recording]]:
    """Yield each file with each of its GPUs that is to be explained."""
    for file in _files(sources):
        for recording in _chosen(read_recordings(file), file, device):
            yield file, recording


def _files(sources: Sequence[Path]) -> Iterator[Path]:
    for source in sources:
        if not source.is_dir():
            yield source
            continue
        files = sorted(path for path in source.iterdir() if path.is_file() and is_recording(path.name))
        if not files:
            raise TargetError(
                f"{source} holds no recording of a GPU",
                "Name its files as PyTorch's examples do: snapshot.pickle, or one file a rank, rank0.pickle.",
            )
        yield from files


def _chosen(recordings: Sequence[Recording], file: Path, device: int | None) -> Sequence[Recording]:
    if device is None:
        return [each for each in recordings if len(each.events)] or recordings
    chosen = [each for each in recordings if each.device == device]
    if not chosen:
        there = ", ".join(str(each.device) for each in recordings)
        raise TargetError(f"{file} has nothing of device {device}", f"It has device {there}.")
    return chosen


def comparison_of(evidence: Evidence, trace: Trace, target: str) -> Comparison:
    """Compare the peaks of a Recording and of a Trace."""
    both = against(evidence, trace)
    return Comparison(
        target=target,
        recorded=both.recorded,
        simulated=both.simulated,
        num_pairs=len(both.pairs),
        paired=sum(recorded.nbytes for recorded, _ in both.pairs),
        only_recorded=_by_place(both.only_recorded),
        only_simulated=_by_place(both.only_simulated),
    )


def _by_place(held: Iterable[Held]) -> list[OnOneSide]:
    """Put together what is of one line, category and label, most bytes first."""
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for each in held:
        groups[each.place, each.label, each.category.value].append(each.nbytes)
    sides = [
        OnOneSide.model_validate(
            {"place": place, "label": label, "category": category, "nbytes": sum(sizes), "num": len(sizes)}
        )
        for (place, label, category), sizes in groups.items()
    ]
    return sorted(sides, key=lambda each: -each.nbytes)


def _plan_within(room: int, target: str, gpu: str | None, on_wait: Callable[[str, float], None]) -> Plan | None:
    """Find changes of a program with which PyTorch reserves at most `room` bytes; None if its step cannot be planned.

    The limit of a plan is for the device: what a CUDA context takes on the GPU is added. Raises MemlintError.
    """
    device = device_named(gpu or DEFAULT_DEVICE)
    settings = {"gpu": device.name, "budget": f"{room + device.context_nbytes}B"}
    report = check([target], settings, CheckOptions(plan=True, quick=False), on_wait).report
    return next((workload.plan for workload in report.workloads if workload.plan is not None), None)
