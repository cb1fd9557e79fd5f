"""What a device said of a Workload, as it is written to files. Sizes are bytes."""

import json
import re
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import JsonValue

from memlint.base.errors import TargetError, UsageError
from memlint.memory.devices import CATALOGUE, Device, device_named
from memlint.report.model import CategoryName, PhaseName, Record
from memlint.targets.workload import Workload
from memlint.targets.workload_tables import workload_from_table, workload_table

DeviceKind = Literal["cuda", "cpu"]

_TOLERANCE = 0.03
"""By how much the usable bytes of one GPU differ from driver to driver; three times what was seen (cuda/devices.py)."""


class Conditions(Record):
    """What a Workload does not say of itself and yet changes its bytes."""

    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    """As `torch.set_float32_matmul_precision` takes it; `high` is TF32."""
    cudnn_benchmark: bool = False


class Subject(Record):
    """What is measured: a Workload and the Conditions it runs under."""

    name: str
    family: str = ""
    """Kind of model, to group by."""
    holdout: bool = False
    """Whether nothing in memlint may be fitted to it."""
    table: dict[str, JsonValue]
    """The Workload as a `[[tool.memlint.workload]]` table whose paths count from the project's root."""
    conditions: Conditions = Conditions()

    @property
    def allocator(self) -> str:
        """The Workload's `PYTORCH_ALLOC_CONF`."""
        return str(self.table.get("allocator", ""))

    def workload(self, root: Path, gpu: str) -> Workload:
        """The Workload on the GPU called `gpu`. Raises TargetError and UsageError where it is not there."""
        table: dict[str, Any] = {**self.table, "name": self.name, "gpu": gpu}
        return workload_from_table(table, root, f"workload {self.name}", origin="config")


class Peaks(Record):
    """The most bytes at once; None for what the device does not have."""

    requested: int
    """What tensors asked for."""
    allocated: int | None = None
    """`torch.cuda.max_memory_allocated`."""
    active: int | None = None
    """Allocated, and blocks a stream still uses."""
    reserved: int | None = None
    """`torch.cuda.max_memory_reserved`."""
    device: int | None = None
    """NVML's figure for this process after the last step, or the growth of the whole GPU's where it has none."""

    def highest(self, other: Self | None) -> Self:
        """The larger of both, measure by measure."""
        if other is None:
            return self
        known = [{name: n for name, n in peaks if n is not None} for peaks in (self, other)]
        return self.model_validate({name: max(n.get(name, 0) for n in known) for name in {**known[0], **known[1]}})


class Machine(Record):
    """Where it was measured."""

    gpu: str
    """Name in memlint's catalogue, `cpu`, or the device's own name in small letters with dashes."""
    title: str
    """What PyTorch calls it; of a CPU, its architecture and the instructions PyTorch uses, which choose kernels."""
    total_nbytes: int = 0
    capability: tuple[int, int] = (0, 0)
    driver: str = ""
    cuda: str = ""
    cudnn: str = ""
    torch: str
    python: str


class Flags(Record):
    """PyTorch's global settings as they stood during the steps."""

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
    """The innermost operator that was running, where it is known."""
    phase: PhaseName


class Measurement(Record):
    """What a device said of one Workload in a fresh process."""

    version: Literal[1] = 1
    subject: Subject
    machine: Machine
    flags: Flags
    num_warmup: int
    """Steps before `num_steps`; they count for the peaks as well, because a program that runs out there has run out."""
    num_steps: int
    peaks: Peaks
    """From before the model is built to the end of the last step."""
    phase_peaks: dict[PhaseName, Peaks]
    """`other` is the setup."""
    steps: list[Peaks]
    """Of each step, warm-up included."""
    categories: dict[CategoryName, int]
    """Bytes of the tensors the program holds: parameter, buffer, input; gradient after a backward; optimizer_state."""
    peak_phase: PhaseName
    peak_op: str = ""
    """The operator that ran at the peak of requested bytes, where the device tells it."""
    num_retries: int = 0
    """Times the allocator had to release cached segments."""
    history: str = ""
    """Name of the file beside this one with the allocator's history."""
    allocations: list[Allocation] = []
    """Everything that was asked for, in order, where that is wanted; it is not written to files."""

    @classmethod
    def read(cls, file: Path) -> Self:
        """The Measurement in `file`, written by this memlint or a newer one. Raises TargetError if it is not one."""
        try:
            return cls.model_validate_json(file.read_bytes(), extra="ignore")
        except (OSError, ValueError) as error:
            raise TargetError(
                f"{file} is not a measurement: {error}", "Record it again with `memlint validate --record DIR`."
            ) from error

    @property
    def group(self) -> tuple[str, str]:
        """GPU and PyTorch version without its build."""
        return self.machine.gpu, self.machine.torch.partition("+")[0]


class MeasureRequest(Record):
    """What to measure, as `Request.detail`."""

    subject: Subject
    device: DeviceKind
    num_steps: int
    num_warmup: int
    history: str | None = None
    """File to write the allocator's history to."""
    limit: int | None = None
    """Most bytes the allocator may reserve."""
    allocations: bool = False
    """Whether to list every allocation."""


def plain_table(workload: Workload, root: Path) -> dict[str, Any]:
    """The table of `workload` as JSON holds it, its paths counting from `root`. Raises UsageError where it cannot."""
    table = workload_table(workload, root)
    try:
        return dict(json.loads(json.dumps(table)))
    except TypeError as error:
        raise UsageError(f"workload {workload.name}: {error}", "Give it plain arguments.") from error


def catalogue_name(title: str, total_nbytes: int, capability: tuple[int, int]) -> str:
    """Name of the GPU PyTorch calls `title` in memlint's catalogue, or a name made of its title where it is not in it.

    Of GPUs with the same capability, it is the one whose number the title has and whose memory is closest.
    """
    alike = [device for device in CATALOGUE.values() if device.capability == capability and _same_family(device, title)]
    near = min(alike, key=lambda device: abs(device.total_nbytes - total_nbytes), default=None)
    if near is not None and abs(near.total_nbytes - total_nbytes) <= _TOLERANCE * near.total_nbytes:
        return near.name
    return "-".join(re.findall(r"[a-z0-9]+", title.lower())) or "gpu"


def _same_family(device: Device, title: str) -> bool:
    """Whether `NVIDIA A100-SXM4-80GB` and `NVIDIA A100 80 GB` speak of one chip."""
    words = [re.findall(r"[a-z]*\d+[a-z]*", text.lower()) for text in (device.title, title)]
    return bool(words[0]) and bool(words[1]) and words[0][0] == words[1][0]


def known_gpu(name: str) -> bool:
    """Whether estimates can be made for the GPU called `name`."""
    try:
        device_named(name)
    except UsageError:
        return False
    return True
