"""Explanations of recordings: a file, or a folder with one for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memlint.base.errors import TargetError
from memlint.base.version import __version__
from memlint.capture.recording import is_recording, read_recordings
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from memlint.capture.recorded import Recording
    from memlint.explain.recordings.model import Explanations


def explain_recordings(
    sources: Sequence[Path], settings: Sequence[str] = (), gpus: Sequence[str] = (), device: int | None = None
) -> Explanations:
    """Explain every file and every file of every folder.

    Of a file with several GPUs, those that recorded something are explained, or else those with memory; with `device`
    that one alone. Raises MemlintError for what is no recording, and for `settings` and `gpus` that do not exist.
    """
    from memlint.explain.recordings.evidence import Evidence  # noqa: PLC0415 -- pydantic takes a while
    from memlint.explain.recordings.explanation import explain  # noqa: PLC0415
    from memlint.explain.recordings.model import Explanations  # noqa: PLC0415

    devices = [device_named(name) for name in gpus]
    explanations = [
        explain(Evidence.of(recording), str(file), settings, devices)
        for file, recording in recordings_of(sources, device)
    ]
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
