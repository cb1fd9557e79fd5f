"""Measurements as files: `<folder>/<gpu>/<torch>/<name>.json`, with histories beside them."""

import os
import re
from pathlib import Path

from memlint.base.errors import TargetError, UsageError
from memlint.validate.measurement import Machine, Measurement, Subject

_VERSION = re.compile(r"\d+(\.\d+)+")
"""Version of PyTorch, the name of the folder that measurements are stored in."""


class Store:
    """The folder for the Measurements of one machine. Raises UsageError if it is not writable."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder / machine.gpu / machine.torch.partition("+")[0]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be made: {error.strerror}", "Give another --record.") from error

    def file(self, name: str) -> Path:
        """Return the path of the Measurement of the Subject `name`, existing or not."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.json"

    def history_file(self, name: str) -> Path:
        """Return the path of its allocator's history, existing or not."""
        return self.file(name).with_suffix(".history.json.gz")

    def find(self, subject: Subject, num_steps: int, *, history: bool) -> Measurement | None:
        """Return a Measurement of exactly this Subject over as many steps; None if it must be measured (again)."""
        file = self.file(subject.name)
        if not file.exists():
            return None
        try:
            measurement = Measurement.read(file)
        except TargetError:  # of another version: must be measured again
            return None
        is_same = measurement.subject == subject and measurement.num_steps == num_steps
        return measurement if is_same and (not history or bool(measurement.history)) else None

    def put(self, measurement: Measurement) -> Path:
        """Write it atomically: a process killed meanwhile leaves no partial file of that name."""
        file = self.file(measurement.subject.name)
        partial = file.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as opened:
            opened.write(measurement.model_dump_json(indent=1, exclude_none=True, exclude={"allocations"}) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(file)
        return file


def read_measurements(folder: Path) -> list[Measurement]:
    """Read all below `folder`, in order of GPU, version and name. Raises TargetError if there are none."""
    files = [file for file in sorted(folder.rglob("*.json")) if _VERSION.fullmatch(file.parent.name)]
    if not files:
        raise TargetError(f"{folder} has no measurements", "Record some: memlint validate --suite FILE --record DIR.")
    return [Measurement.read(file) for file in files]
