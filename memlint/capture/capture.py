"""A Capture: what one run of a program on the virtual accelerator said, however it is looked at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from memlint.base.version import __version__
from memlint.memory.communicators import beside
from memlint.memory.records import Assumption

if TYPE_CHECKING:
    from memlint.memory.devices import Device
    from memlint.memory.records import Frame, Trace
    from memlint.targets.script import Amendment, Happened, Started
    from memlint.targets.workload import Workload


_READS = Assumption(
    "the program asks for figures of the allocator, and may act otherwise under other settings: run it with them", None
)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that a script would have written or removed."""

    path: str
    nbytes: int | None
    """None where it is not known, or the file would be gone."""
    frame: Frame | None


@dataclass(frozen=True, slots=True)
class OtherHost:
    """Another machine that a script wanted to speak with."""

    host: str
    frame: Frame | None


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A program that a script started, as a shell would take it."""

    command: str
    is_offline: bool
    frame: Frame | None


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """How the run of a script went."""

    command: str
    """As it was typed: `train.py --epochs 3`."""
    num_steps: int
    """Whole steps that it took."""
    happened: Happened
    """The point that it reached by itself; `built`: a step, if there is one, is memlint's own."""
    seconds: tuple[float, ...]
    """Each whole step took so many to simulate."""
    ending: str
    """The reason why the run was over."""
    goes_on: bool
    """True if the script would have gone on."""
    evaluations: int
    remembered: int
    """Calls without gradients, and how many of them were answered as an earlier one of the same shapes."""
    writes: tuple[WrittenFile, ...]
    connections: tuple[OtherHost, ...]
    programs: tuple[StartedProgram, ...]
    not_guarded: tuple[str, ...]
    """Names what the kernel of the machine does not refuse to compiled code and to started programs."""
    error: tuple[str, str, tuple[str, ...]] | None = None
    """Message, hint and traceback, where the run is less than was asked for."""
    stop: tuple[str, str, tuple[str, ...]] | None = None
    """The same of what ended a script before its first step, where memlint then took one."""
    lacks: str = ""
    """The package or the model that was missing then."""
    lacks_data: bool = False
    """True if it ended before its first step, had asked for what is not there, and fake data may be made up for it."""
    amendment: Amendment | None = None
    """A change with which it may come further; only where it ended before its first step."""
    started: Started | None = None
    """The program that it started, if it did nothing else."""
    own: tuple[str, ...] = ()
    """The parts of the steps that are memlint's: of its own step `inputs` and `loss`, of a script's the `data`."""
    frees_later: bool = False
    """True if it would have freed parameters that are frozen in its first steps."""


@dataclass(frozen=True)
class Capture:
    """One run of a program: its Trace, and what was declared, found and assumed about it."""

    workload: Workload
    """With all sizes; without arguments and examples, which `guessed` names as text."""
    trace: Trace
    optimizer: str | None
    """As a Report names it; None where none steps."""
    assumptions: tuple[Assumption, ...] = ()
    """In the order of a Report: those of the program, then those of its Trace."""
    assumed: frozenset[str] = frozenset()
    """Settings that memlint chose; `loss` where the mean of the outputs stands for it."""
    guessed: str = ""
    """Arguments of the model that nobody named, as text."""
    loads_everything: bool = False
    """True if every module of PyTorch's libraries is on the GPU (CUDA_MODULE_LOADING, or an old PyTorch)."""
    script: ScriptFacts | None = None
    memlint: str = __version__

    @cached_property
    def own_device(self) -> Device:
        """The GPU that it was made for, with the PyTorch on it."""
        major, minor = self.trace.torch.split(".")[:2]
        device = self.workload.device
        torch = device.torch or (int(major), int(minor))
        return replace(device, torch=torch, loads_everything=self.loads_everything)

    @cached_property
    def device(self) -> Device:
        """The same with what the context and communicators of the process hold beside PyTorch's memory."""
        return beside(self.own_device, self.trace.collectives)

    def with_allocator(self, settings: str) -> Self:
        """Give the same run under other settings of the allocator (`PYTORCH_ALLOC_CONF`). Raises UsageError."""
        workload = replace(self.workload, allocator=settings)
        if not self.trace.reads_allocator or settings == self.workload.allocator:
            return replace(self, workload=workload)
        return replace(self, workload=workload, assumptions=(*self.assumptions, _READS))
