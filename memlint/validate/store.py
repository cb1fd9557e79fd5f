"""Measurements as files: `<folder>/<gpu>/<torch>/<name>.json`, with histories beside them."""

import os
import re
from pathlib import Path

from memlint.base.errors import TargetError, UsageError
from memlint.validate.measurement import Machine, Measurement, Subject

_VERSION = re.compile(r"\d+(\.\d+)+")
"""Of PyTorch: the name of the folder measurements lie in."""


class Store:
    """The folder the Measurements of one machine go to. Raises UsageError where it cannot be written."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder / machine.gpu / machine.torch.partition("+")[0]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be made: {error.strerror}", "Give another --record.") from error

    def file(self, name: str) -> Path:
        """Where the Measurement of the Subject `name` is, or would be."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.json"

    def history_file(self, name: str) -> Path:
        """Where its allocator's history is, or would be."""
        return self.file(name).with_suffix(".history.json.gz")

    def find(self, subject: Subject, num_steps: int, *, history: bool) -> Measurement | None:
        """A Measurement of exactly this Subject over as many steps; None if it has to be made (again)."""
        file = self.file(subject.name)
        if not file.exists():
            return None
        try:
            measurement = Measurement.read(file)
        except TargetError:  # of another version: made again
            return None
        is_same = measurement.subject == subject and measurement.num_steps == num_steps
        return measurement if is_same and (not history or bool(measurement.history)) else None

    def put(self, measurement: Measurement) -> Path:
        """Write it, all or nothing: a process killed meanwhile leaves no half file of that name."""
        file = self.file(measurement.subject.name)
        partial = file.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as opened:
            opened.write(measurement.model_dump_json(indent=1, exclude_none=True, exclude={"allocations"}) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(file)
        return file


def read_measurements(folder: Path) -> list[Measurement]:
    """All below `folder`, in order of GPU, version and name. Raises TargetError if there are none."""
    files = [file for file in sorted(folder.rglob("*.json")) if _VERSION.fullmatch(file.parent.name)]
    if not files:
        raise TargetError(f"{folder} has no measurements", "Record some: memlint validate --suite FILE --record DIR.")
    return [Measurement.read(file) for file in files]
