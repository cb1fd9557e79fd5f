"""The measurement of a Workload on a device, as stored in files. Sizes are bytes."""

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import JsonValue

from memlint.base.errors import TargetError, UsageError
from memlint.memory.devices import CATALOGUE, Device, device_named
from memlint.memory.records import Category, Phase
from memlint.report.model import Record
from memlint.targets.workload import Workload
from memlint.targets.workload_tables import workload_from_table, workload_table

DeviceKind = Literal["cuda", "cpu"]

_TOLERANCE = 0.03
"""Relative spread of one GPU's usable bytes between drivers; three times the spread seen (cuda/devices.py)."""


class Conditions(Record):
    """Settings outside a Workload that change its bytes."""

    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """Argument of `torch.set_float32_matmul_precision`; `high` is TF32."""
    cudnn_benchmark: bool = False


class Subject(Record):
    """A Workload to measure, and the Conditions it runs under."""

    name: str
    family: str = ""
    """Kind of model, for grouping."""
    holdout: bool = False
    """True if nothing in memlint may be fitted to it."""
    table: dict[str, JsonValue]
    """The Workload as a `[[tool.memlint.workload]]` table with paths relative to the project's root."""
    conditions: Conditions = Conditions()

    @property
    def allocator(self) -> str:
        """Value of the Workload's `PYTORCH_ALLOC_CONF`."""
        return str(self.table.get("allocator", ""))

    def workload(self, root: Path, gpu: str) -> Workload:
        """Make the Workload on the GPU called `gpu`. Raises TargetError or UsageError if it is missing or invalid."""
        table: dict[str, Any] = {**self.table, "name": self.name, "gpu": gpu}
        return workload_from_table(table, root, f"workload {self.name}", origin="config")


class Peaks(Record):
    """The most bytes at once by measure; None for measures that the device lacks."""

    requested: int
    """Bytes that tensors requested."""
    allocated: int | None = None
    """`torch.cuda.max_memory_allocated`."""
    active: int | None = None
    """Allocated bytes, and blocks that a stream still uses."""
    reserved: int | None = None
    """`torch.cuda.max_memory_reserved`."""
    device: int | None = None
    """NVML's figure for this process after the last step, or else the growth of the whole GPU's use."""

    def highest(self, other: Self | None) -> Self:
        """Return the larger of both, measure by measure."""
        if other is None:
            return self
        known = [{name: n for name, n in peaks if n is not None} for peaks in (self, other)]
        return self.model_validate({name: max(n.get(name, 0) for n in known) for name in {**known[0], **known[1]}})


class Machine(Record):
    """The machine of the measurement."""

    gpu: str
    """Name in memlint's catalogue, `cpu`, or the device's own name in lower case with dashes."""
    title: str
    """PyTorch's name of the device; for a CPU, its architecture and instruction set, which select kernels."""
    total_nbytes: int = 0
    capability: tuple[int, int] = (0, 0)
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    torch: str
    python: str


class Flags(Record):
    """PyTorch's global settings during the steps."""

    matmul_precision: str
    cudnn_enabled: bool
    cudnn_benchmark: bool
    cudnn_deterministic: bool
    cudnn_allow_tf32: bool
    deterministic_algorithms: bool


class Allocation(NamedTuple):
    """One request for memory."""

    nbytes: int
    op: str
    """The innermost running operator, if known."""
    phase: Phase


class Measurement(Record):
    """The measurement of one Workload in a fresh process."""

    version: Literal[1] = 1
    subject: Subject
    machine: Machine
    flags: Flags
    num_warmup: int
    """Steps before `num_steps`. Their peaks count as well: a program that runs out of memory there has run out."""
    num_steps: int
    peaks: Peaks
    """Peaks from before the model is built to the end of the last step."""
    phase_peaks: dict[Phase, Peaks]
    """Peaks by phase; `other` is the setup."""
    steps: list[Peaks]
    """Peaks of each step, warm-up included."""
    categories: dict[Category, int]
    """Bytes of the tensors that the program holds: parameter, buffer, input; gradient after a backward;
    optimizer_state.
    """
    peak_phase: Phase
    peak_op: str = ""
    """The operator that ran at the peak of requested bytes, if the device tells it."""
    num_retries: int = 0
    """Number of times that the allocator had to release cached segments."""
    history: str = ""
    """Name of the file beside this one with the allocator's history."""
    allocations: list[Allocation] = []
    """Every request in order, if asked for; files do not store it."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read the Measurement in `file`, of this memlint or a newer one. Raises TargetError if it is not one."""
        try:
            return cls.model_validate_json(file.read_bytes(), extra="ignore")
        except (OSError, ValueError) as error:
            raise TargetError(
                f"{file} is not a measurement: {error}", "Record it again with `memlint validate --record DIR`."
            ) from error

    @property
    def group(self) -> tuple[str, str]:
        """GPU, and PyTorch version without its build."""
        return self.machine.gpu, self.machine.torch.partition("+")[0]


class MeasureRequest(Record):
    """The subject and options of a measurement, as `Request.detail`."""

    subject: Subject
    device: DeviceKind
    num_steps: int
    num_warmup: int
    history: str | None = None
    """File for the allocator's history."""
    limit: int | None = None
    """Maximum number of bytes that the allocator may reserve."""
    allocations: bool = False
    """True to list every allocation."""


def plain_table(workload: Workload, root: Path) -> dict[str, Any]:
    """Return the table of `workload` as JSON, paths relative to `root`. Raises UsageError if JSON cannot hold it."""
    table = workload_table(workload, root)
    try:
        return dict(json.loads(json.dumps(table)))
    except TypeError as error:
        raise UsageError(f"workload {workload.name}: {error}", "Give it plain arguments.") from error


def catalogue_name(title: str, total_nbytes: int, capability: tuple[int, int]) -> str:
    """Return the catalogue's name of the GPU that PyTorch calls `title`, or a name made of the title if it has none.

    Among GPUs of the same capability, the title must contain the number, and the memory must be closest.
    """
    alike = [device for device in CATALOGUE.values() if device.capability == capability and _same_family(device, title)]
    near = min(alike, key=lambda device: abs(device.total_nbytes - total_nbytes), default=None)
    if near is not None and abs(near.total_nbytes - total_nbytes) <= _TOLERANCE * near.total_nbytes:
        return near.name
    return "-".join(re.findall(r"[a-z0-9]+", title.lower())) or "gpu"


def _same_family(device: Device, title: str) -> bool:
    """Return True if both name one chip, as `NVIDIA A100-SXM4-80GB` and `NVIDIA A100 80 GB` do."""
    words = [re.findall(r"[a-z]*\d+[a-z]*", text.lower()) for text in (device.title, title)]
    return bool(words[0]) and bool(words[1]) and words[0][0] == words[1][0]


def known_gpu(name: str) -> bool:
    """Return True if memlint can estimate for the GPU called `name`."""
    try:
        device_named(name)
    except UsageError:
        return False
    return True
