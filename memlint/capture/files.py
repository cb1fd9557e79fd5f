"""Files that are looked at as Captures: memlint's own, and recordings of real GPUs."""

from pathlib import Path

from memlint.capture.capture import Capture
from memlint.capture.codec import SUFFIX, open_capture
from memlint.targets.workload import DEFAULT_GPU

_OF_RECORDINGS = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz", ".json.gz")


def is_capture(name: str) -> bool:
    """Say whether a file is called as a Capture or a recording is."""
    return name.endswith(SUFFIX) or is_recording(name)


def is_recording(name: str) -> bool:
    """Return True if a file is called as a recording is."""
    return name.lower().endswith(_OF_RECORDINGS)


def open_file(file: str | Path, gpu: str | None = None) -> Capture:
    """Read a Capture or a recording; `gpu` names the one of a recording. Raises TargetError."""
    if str(file).endswith(SUFFIX):
        return open_capture(file)
    from memlint.capture.recording import open_recording  # noqa: PLC0415 -- a look at what is known does without

    return open_recording(file, gpu or DEFAULT_GPU)
