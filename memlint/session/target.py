"""A target and its Workloads: found once, traced once, and again with Changes."""

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from memlint.accelerator import lazy_imports
from memlint.accelerator.private import tree_leaves
from memlint.base import errors
from memlint.base.errors import MemlintError, WorkloadError
from memlint.capture.capture import Capture
from memlint.capture.codec import workload_fields
from memlint.compile.fallback import not_compiled
from memlint.cuda.versions import torch_version
from memlint.generation.extension import Begun, Later
from memlint.generation.rounds import Rounds
from memlint.generation.traces import trace_of
from memlint.lint.rule import MANY_NODES
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.context import VARIABLE, loads_everything
from memlint.memory.devices import Device
from memlint.memory.records import Assumption, Frame, Phase, Trace
from memlint.report.model import Place, Sweep
from memlint.scaling.recorded_calls import Calls, recorded
from memlint.session.ahead import Ahead, may_work_ahead
from memlint.session.holders import find_holders
from memlint.session.long_run import run_longer
from memlint.session.process_setup import ProcessSetup
from memlint.source.values import shown_arguments
from memlint.targets.workload import GENERATED, Workload
from memlint.targets.workload_tables import workloads_from_tables
from memlint.tracing.workload_errors import trace_of_workload
from memlint.whatif.change import Change, ChangedProgram, NotApplicableError
from memlint.worker.child import write_smaller
from memlint.worker.jobs import Found, Held, Holders, Keepers, Kept, LeftOut, Text
from memlint.worker.protocol import Request
from memlint.workloads import availability, main_names, notes
from memlint.workloads.candidates import Discovery
from memlint.workloads.construction.construct import complete, completed_program, settings_of
from memlint.workloads.construction.program import Program
from memlint.workloads.construction.worst_rank import of_worst_rank
from memlint.workloads.declaration_draft import declaration, draft
from memlint.workloads.discover import find_workloads
from memlint.workloads.older_versions import applying
from memlint.workloads.placeholders import absent_packages
from memlint.workloads.user_errors import command_with

_UNCOMPILED = (
    "torch.compile is left out: what it would compile runs eagerly, and may take less memory; "
    "--compile auto, the default, simulates it"
)
_COMPILED = "torch.compile is simulated as torch {torch} compiles for this device, but for what is timed on it"
_OVERRIDES = (
    *("batch", "dimensions", "dtype", "mode", "optimizer", "gpu", "torch", "context"),
    *("compile", "strategy", "world_size", "rank"),
)
MOST_CALLS = 5 * MANY_NODES
"""Kernels in a trace up to which there is a table around its batch size.

Of Llama-7B, with 10,115, the trace and the rules take 14 s of processor time, and the table 8 more.
"""
_READ_SINCE = (2, 1)
"""The first version for which the memory that kernels take is known, at least in part."""


@dataclass
class Traced:
    """One Workload that was traced."""

    workload: Workload
    """The Workload with all sizes."""
    device: Device
    settings: AllocatorSettings
    program: Program
    trace: Trace
    root: Path
    calls: Calls
    """Calls of the kernels of the trace, for tables of batch sizes; empty where there are too many for one."""
    compile_seconds: float = 0.0
    """Processor time of the compilations of a trace; 0 where nothing is compiled."""

    @classmethod
    def of(cls, workload: Workload, root: Path, begins: Callable[[Workload], None] = lambda _completed: None) -> Self:
        """Trace `workload`; `begins` is called with all its sizes before.

        Raises WorkloadError for what its code raises, TraceError for what cannot be traced.
        """
        workload, of_ranks = of_worst_rank(workload, root)
        device = workload.device
        completed, assumptions = complete(workload, root)
        begins(completed)
        write_smaller(_smaller(completed))
        settings = AllocatorSettings.parse(completed.allocator)
        completed, program, trace, calls = _traced(completed, device, settings, root)
        if program.declares_optimizer:
            completed = replace(completed, assumed=completed.assumed - {"optimizer"})
        of_step = (*settings_of(completed), *of_ranks, *assumptions)
        program.assumptions[:0] = [each for each in of_step if each not in program.assumptions]
        of_packages = (*applying.assumptions(), *absent_packages.assumptions())
        at_import = (*of_packages, *availability.assumptions(), *notes.noted(), *main_names.assumptions())
        program.assumptions += [each for each in at_import if each not in program.assumptions]
        program.assumptions += (*of_torch(workload, device), *of_context(device))
        if not device.is_cuda and any(node.op.startswith("aten.convolution") for node in trace.nodes):
            text = "oneDNN copies operands of convolutions as on a processor with AVX-512, without scratchpads"
            program.assumptions.append(Assumption(text, None))
        return cls(completed, device, settings, program, trace, root, calls, lazy_imports.Compilation.seconds)

    def rebuilt(self) -> Program:
        """The program anew."""
        return completed_program(self.workload, self.root)

    def _rebuilt_at(self, workload: Workload, own: Program) -> Program:
        """The program at other sizes; at its own it is `own`."""
        return own if workload is self.workload else completed_program(workload, self.root)

    def changed(self, changes: Sequence[Change]) -> Any:
        """A fresh program with those of the Changes that are no edits."""
        traced = [change for change in changes if not change.is_edit]
        return ChangedProgram(self.rebuilt(), *traced) if traced else self.rebuilt()

    @functools.cached_property
    def capture(self) -> Capture:
        """All that was said."""
        known = {each.text for each in notes.noted()}  # which the program's have as well, at the user's own lines
        of_trace = (each for each in self.trace.assumptions if each.text not in known)
        return self.capture_of(self.trace, (*self.program.assumptions, *of_trace))

    def retraced(self, changes: tuple[Change, ...]) -> Capture | None:
        """The program with Changes; None where one means nothing for it, or it fails with them."""
        program = self.rebuilt()
        try:
            trace = trace_of(
                self.workload,
                lambda each: ChangedProgram(self._rebuilt_at(each, program), *changes),
                self.settings,
                meanwhile,
            )
        except (NotApplicableError, MemlintError):
            return None
        if any(each.sets_batch for each in changes) and _shapes(program) == _shapes(self.program):
            return None  # the target makes its inputs as it likes
        return self.capture_of(trace)

    def capture_of(self, trace: Trace, assumptions: Sequence[Assumption] = ()) -> Capture:
        """Another Trace of this Workload."""
        program, assumed = self.program, self.workload.assumed
        return Capture(
            workload=without_code(self.workload),
            trace=trace,
            optimizer=self._optimizer(),
            assumptions=tuple(dict.fromkeys(assumptions)),
            assumed=assumed | ({"loss"} if program.has_invented_loss else set()),
            guessed=shown_arguments(self.workload.guessed),
            loads_everything=self.device.is_cuda and loads_everything(self.device),
        )

    def _optimizer(self) -> str | None:
        program = self.program
        if program.own_step is not None and not any(node.phase is Phase.OPTIMIZER for node in self.trace.nodes):
            return None
        if program.declares_optimizer and program.optimizer is not None:
            return type(program.optimizer).__name__.lower()
        return self.workload.optimizer if self.workload.mode == "train" else None


class Target:
    """Answers the jobs about one Request."""

    def __init__(self, request: Request, discovery: Discovery | None = None) -> None:
        """`discovery` takes the place of loading what the request names."""
        self._discovery = discovery
        self.request = request
        self.root = Path(request.root)
        self.begins: dict[int, Callable[[Workload], None]] = {}
        """Work to begin with, by position, once all sizes of a Workload are known."""
        self.begun: dict[int, Ahead[tuple[str, list[Sweep]]]] = {}
        """Tables around the batch sizes of Workloads, by position, that were begun before they are asked for."""
        self._traced: dict[int, Traced] = {}
        self._errors: dict[str, MemlintError] = {}
        """Errors of Workloads that could not be traced, by name."""

    @functools.cached_property
    def discovery(self) -> Discovery:
        """The Workloads of the target: in a file that nobody named only those that are declared.

        Raises MemlintError where it cannot be loaded.
        """
        if self._discovery is not None:
            return self._discovery
        ProcessSetup.of_target(self.request).arm()
        return find_requested(self.request)

    @property
    def workloads(self) -> Sequence[Workload]:
        """The Workloads that were found."""
        return self.discovery.workloads

    def find(self) -> Found:
        """Name the Workloads, and what was left out."""
        found = [workload_fields(each) for each in self.workloads]
        left_out = [LeftOut(name=e.name, reason=e.reason, hint=e.hint, call=e.call) for e in self.discovery.left_out]
        return Found(torch=torch.__version__, workloads=found, left_out=left_out)

    def traced(self, number: int) -> Traced:
        """The Workload at this position, traced."""
        if number not in self._traced:
            workload = self.workloads[number]
            try:
                begins = self.begins.pop(number, lambda _completed: None)
                self._traced[number] = Traced.of(workload, self.root, begins)
            except MemlintError as error:
                self._errors[workload.name] = error
                raise
        return self._traced[number]

    def trace(self, number: int) -> Capture:
        """Answer TraceWorkload. Raises MemlintError."""
        return self.traced(number).capture

    def retrace(self, number: int, changes: tuple[Change, ...]) -> Capture | None:
        """Answer Retrace; None where a Change means nothing for the program, or it fails with them."""
        return self.traced(number).retraced(changes)

    def holders(self, number: int, changes: tuple[Change, ...], event: int, buffers: Collection[int]) -> Holders:
        """Answer FindHolders. Raises MemlintError."""
        own = self.traced(number)
        try:
            found = find_holders(own.changed(changes), own.device, event, buffers, own.settings)
        except NotApplicableError as error:
            raise WorkloadError("the change means nothing for the program") from error
        return Holders(
            holders=[
                Held(buffer=number, variable=each.variable, frame=_place(each.frame), names=list(each.names))
                for number, each in found.items()
            ]
        )

    def run_longer(self, number: int) -> tuple[Keepers, Capture]:
        """Answer RunLonger. Raises MemlintError."""
        own = self.traced(number)
        trace, keepers = run_longer(own.rebuilt(), own.device, own.settings)
        kept = [
            Kept(buffer=number, variable=each.variable, has_graph=each.has_graph, frame=_place(each.frame))
            for number, each in keepers.items()
        ]
        return Keepers(keepers=kept), own.capture_of(trace)

    def declare(self, number: int) -> Text:
        """Answer Declare."""
        own = self.traced(number)
        return Text(text=declaration(own.workload, own.program.assumptions, self.root))

    def declare_by_hand(self, name: str, kind: str, message: str, hint: str) -> Text:
        """Answer DeclareByHand; empty where it cannot be loaded, which the error says."""
        error = self._errors.get(name) or getattr(errors, kind, WorkloadError)(message, hint)
        known = {each.name: each for each in self.workloads}
        with suppress(MemlintError):
            return Text(text=draft(known.get(name) or self._unbuilt(name), self.root, error))
        return Text()

    def _unbuilt(self, name: str) -> Workload:
        """Something in the file that was asked for, with the settings of the command line."""
        path, settings = self.request.path, self.request.settings
        overrides = {key: value for key in _OVERRIDES if (value := getattr(settings, key)) is not None}
        return Workload(name, f"{path}::{name}", path or "", name, **overrides)


def find_requested(request: Request) -> Discovery:
    """Load the target of a request, in a process that is set up for it, and give its Workloads.

    Raises MemlintError where it cannot be loaded.
    """
    root, settings = Path(request.root), request.settings
    configured = workloads_from_tables(list(settings.workload), root / "pyproject.toml", lost={})
    overrides = {name: value for name in _OVERRIDES if (value := getattr(settings, name)) is not None}
    generated = {name: size for name in GENERATED if (size := getattr(settings, name)) is not None}
    if settings.kv_cache is not None:
        overrides["cache"] = settings.kv_cache
    if generated:
        overrides["dimensions"] = {**overrides.get("dimensions", {}), **generated}
    target = request.path or request.target
    if request.path and request.qualname:
        target += f"::{request.call or request.qualname}"
    discovered = find_workloads(target, root, configured, overrides, request.asked)
    workloads = tuple(each for each in discovered.workloads if request.named or each.origin != "discovered")
    return discovered._replace(workloads=tuple(map(_of_one_text, workloads)))


def _of_one_text(workload: Workload) -> Workload:
    """A batch that nobody said is one text where a step is a generation."""
    is_one = workload.mode == "generate" and "batch" in workload.assumed
    return replace(workload, batch=1) if is_one else workload


def without_code(workload: Workload) -> Workload:
    """The same without arguments and examples, which may be any objects."""
    return replace(workload, arguments={}, adapter={}, guessed={}, found=(), sizes={}, shown=None, fed=None)


def of_torch(workload: Workload, device: Device) -> tuple[Assumption, ...]:
    """Return the assumptions about a version of PyTorch other than the one that runs."""
    if not device.torch or device.torch == torch_version():
        return ()
    running = ".".join(map(str, torch_version()))
    of_oldest = "its context, what its softmax keeps, else its kernels' own memory as in torch 2.1"
    of_version = of_oldest if device.torch < _READ_SINCE else "its workspaces, its kernels' own memory"
    text = (
        f"torch {workload.torch}: {of_version}, its autocast, RMSNorm and einsum; "
        f"which others run, and what they keep for backward, is as in torch {running}, which is installed"
    )
    return (Assumption(text, None),)


def of_context(device: Device) -> tuple[Assumption, ...]:
    """Return the assumption that a CUDA context loads all modules, if it does."""
    if not device.is_cuda or not loads_everything(device):
        return ()
    return (Assumption(f"{VARIABLE}: the CUDA context has every module of PyTorch and its libraries", None),)


def of_compilation(*, simulated: bool) -> Iterator[Assumption]:
    """Say what became of what the program asks `torch.compile` for, if it has run."""
    if lazy_imports.Compilation.is_requested:
        text = _COMPILED.format(torch=torch.__version__.split("+")[0]) if simulated else _UNCOMPILED
        yield Assumption(text, None)


def _traced(
    completed: Workload, device: Device, settings: AllocatorSettings, root: Path
) -> tuple[Workload, Program, Trace, Calls]:
    """Trace a Workload, eagerly where its compilation cannot be simulated; raises what the eager step raises.

    The first result is the Workload as it was traced, the last the calls as far as they are known.
    """
    program = completed_program(completed, root)
    lazy_imports.Compilation.begin()

    def at(workload: Workload) -> Program:
        return program if workload is completed else completed_program(workload, root)

    try:
        with recorded(MOST_CALLS, is_needed=False) as calls:
            trace = trace_of(completed, at, settings, meanwhile)
    except MemlintError as error:
        if not lazy_imports.Compilation.is_simulated(completed.compile):
            raise
        reason = not_compiled(error)
    else:
        program.assumptions += of_compilation(simulated=program.compiles)
        return completed, program, trace, calls
    eager = replace(completed, compile="off")
    lazy_imports.Compilation.seconds = 0.0
    program = completed_program(eager, root)
    trace = trace_of_workload(program, device, settings)
    program.assumptions.append(reason)
    return eager, program, trace, Calls()


def meanwhile(work: Callable[[], Rounds]) -> Begun:
    """Begin with a trace in a copy of this process; if there can be none, it is made here, later."""
    if may_work_ahead():
        with suppress(OSError):
            return Ahead(work)
    return Later(work)


def _smaller(workload: Workload) -> str:
    """The command for an eighth of the inputs' largest dimension, or of the batch; empty where both are 1."""
    named = frozenset[str]().union(*(spec.dimensions for spec in workload.inputs or ()))
    sizes = {name: size for name, size in workload.dimensions.items() if name in named and size > 1}
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        return command_with(f"--dim {largest}={-(-sizes[largest] // 8)}")
    return command_with(f"--batch {-(-workload.batch // 8)}") if workload.batch > 1 else ""


def _shapes(program: Any) -> list[tuple[int, ...]]:
    leaves = tree_leaves(getattr(program, "inputs", None))
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _place(frame: Frame) -> Place:
    return Place(path=frame.path, line=frame.line, function=frame.function)
