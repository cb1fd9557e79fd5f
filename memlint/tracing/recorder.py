"""Recorder of a program's steps on the virtual accelerator: writes down every kernel and storage."""

import contextlib
import functools
import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import CodeType
from typing import Any, Protocol

import torch

from memlint.accelerator import preexisting_tensors, state
from memlint.accelerator.device import NAME, entry_of, real_device_of
from memlint.accelerator.kernel import Kernel
from memlint.accelerator.lazy_imports import Compilation
from memlint.accelerator.ledger import Ledger
from memlint.accelerator.private import OpOverload
from memlint.base import broken_plugins
from memlint.base.garbage import frozen_by_owner, uncollected
from memlint.base.units import format_nbytes
from memlint.compile import optimizer_steps, origins
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.cuda.versions import doubts_of_version
from memlint.cuda.workspaces import Workspaces
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device
from memlint.memory.records import (
    NO_NODE,
    Assumption,
    Buffer,
    Category,
    Doubt,
    Frame,
    Geometry,
    Node,
    Phase,
    Round,
    Trace,
)
from memlint.tracing.attribution import Attribution, frame_of, is_inside
from memlint.tracing.categories import Roles, categorise
from memlint.tracing.checkpoint_switches import switch_of
from memlint.tracing.graph import build_graph
from memlint.tracing.overloads import facts_of
from memlint.tracing.rounds import Rounds, kept_caches, passed_caches
from memlint.tracing.turns import in_turns
from memlint.tracing.updates import with_updates

Tensor = torch.Tensor
_ALLOCATES = ("aten.empty", "aten.new_empty")
_MANY_MODULES = 100
"""Number of modules that an import loads if it makes enough objects to start a collection, which a step does not."""
_WORTH_SAYING = 1 << 20
"""Bytes made by one line from which on it is reported."""
_SHARDED = ("FSDPModule", "ReplicateModule")
"""Functions of torch.distributed that shard a model."""
Function = Callable[..., Any]
Arguments = tuple[Any, ...]
Keywords = dict[str, Any]


class Program(Protocol):
    """A program to trace: `setup` makes the model, the inputs and the optimizer, `step` runs one whole step.

    The attributes `model`, `optimizer` and `inputs` are read if they exist.
    """

    def setup(self) -> None:
        """Make everything that outlives a step."""

    def step(self) -> None:
        """Run one step."""


@dataclass(frozen=True)
class Recorded:
    """A Trace, also as a graph of ATen nodes."""

    trace: Trace
    ops: tuple[OpOverload, ...]
    """Overload of each Node."""

    @functools.cached_property
    def graph(self) -> torch.fx.Graph:
        """One `call_function` node per Node, which is its `meta["memlint"]`; built at first use."""
        return build_graph(self.trace, self.ops)

    def step_module(self) -> torch.fx.GraphModule:
        """The last step alone, with a placeholder for each earlier Buffer; `meta["memlint"]` is the whole Trace."""
        graph = build_graph(self.trace, self.ops, self.trace.step_nodes[-1])
        module = torch.fx.GraphModule(torch.nn.Module(), graph, "Step")
        module.meta["memlint"] = self.trace
        return module


class EnoughRounds(BaseException):
    """A generation has taken as many rounds as were asked for."""


class Recorder(state.Observer):
    """An observer of kernels. It does as little as it can while the program runs; `finish` makes the records."""

    def __init__(self, ledger: Ledger, workspaces: Workspaces) -> None:
        self.ledger = ledger
        self.attribution = Attribution()
        self.calls: list[Any] = []
        self.open_calls: list[int] = []
        self.failures: set[int] = set()
        """Positions of calls that raised."""
        self.step = -1
        self.step_nodes: list[int] = []
        self.step_events: list[int] = []
        self.assumptions: dict[Assumption, None] = {Assumption(text, None): None for text in doubts_of_version()}
        self.roles = Roles()
        self.workspaces = workspaces
        self.modules: dict[tuple[int, str], str] = {}
        self.switches: dict[str, str] = {}
        """Checkpointing switches of modules, by id and type."""
        self.compiled: dict[int, str] = {}
        """Operators whose results compiled code allocates, by Node of the allocation."""
        self.in_cycles: frozenset[int] = frozenset()
        """Ids of Buffers that only reference cycles keep alive after the last step."""
        self.rounds: Rounds | None = None
        """Rounds of the generation that runs; None without one."""
        self.round_places: list[Round] = []
        self.most_rounds: int | None = None
        """Number of rounds after which a generation is ended; None to let it end by itself."""

    # --- while the program runs

    def started(self, kernel: Kernel) -> None:
        """Note the start of a kernel."""
        phase, place = self.attribution.place(writes=bool(kernel.written))
        self.ledger.node = len(self.calls)
        self.open_calls.append(len(self.calls))
        self.calls.append([kernel, phase, place, self.step, len(self.ledger.events), (), ()])

    def finished(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Note the end of the kernel begun last."""
        call = self.calls[self.open_calls.pop()]
        call[5] = [_geometry(t) for t in inputs]
        call[6] = [_geometry(t) for t in outputs]

    def failed(self) -> None:
        """Note that the kernel begun last raised."""
        self.failures.add(self.open_calls.pop())

    def viewed(self) -> None:
        """Note a view: its backward, if it has one, belongs to this line."""
        if not self.open_calls and self.attribution.is_new_node():
            self.attribution.place()

    def assume(self, text: str) -> None:
        """Note an assumption with the line that made it necessary; values of initial weights need none."""
        if is_inside("torch.nn.init"):
            return
        _, (code, line, caller, _module) = self.attribution.place()
        origin = _origin_of(code, line)
        self.assumptions.setdefault(Assumption(text, frame_of(code, line, caller) if origin is None else origin.frame))

    def begin_step(self) -> None:
        """Note the start of a step."""
        self.step += 1
        self.step_nodes.append(len(self.calls))
        self.step_events.append(len(self.ledger.events))

    def outermost_call(self, call: Function, module: torch.nn.Module, args: Arguments, kwargs: Keywords) -> Any:
        """Run `call`, the outermost call of a module, and return its result."""
        modules, identity = self.attribution.modules, _identity(module)
        if self.rounds is not None and self.rounds.begins(identity):
            position = len(self.ledger.events)
            self.round_places.append(Round(len(self.calls), position, position))
            if self.rounds.number == self.most_rounds:
                raise EnoughRounds
            if self.rounds.number:
                self.attribution.section = Phase.DECODE
        if self.rounds is not None:
            self.roles.note_caches(passed_caches({}, kwargs))
        modules.append(identity)
        try:
            result = call(module, *args, **kwargs)
        finally:
            modules.pop()
        if self.rounds is not None:
            self.roles.note_caches(passed_caches(result, kwargs))
            self.roles.note_caches(kept_caches(module))
            self.round_places[-1] = self.round_places[-1]._replace(end=len(self.ledger.events))
        return result

    @contextlib.contextmanager
    def generating(self) -> Iterator[None]:
        """Take what runs within for a generation; one within another is a part of it."""
        if self.rounds is not None:
            yield
            return
        self.rounds = Rounds()
        before, self.attribution.section = self.attribution.section, Phase.PREFILL
        try:
            yield
        except EnoughRounds:
            self.round_places.pop()
        finally:
            self.rounds, self.attribution.section = None, before

    def before_optimizer(
        self, _optimizer: torch.optim.Optimizer, _args: Arguments, _kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        """Note that an optimizer begins to step; return replacements for its arguments, if any."""
        self.roles.note_gradients()
        self.attribution.optimizing = True
        return None

    def after_optimizer(self, _optimizer: torch.optim.Optimizer, _args: Arguments, _kwargs: Keywords) -> None:
        """Note that an optimizer has stepped."""
        self.attribution.optimizing = False

    def note_modules(self, model: object, prefix: str = "") -> None:
        """Remember the paths of a model's modules; the first path of each counts."""
        if isinstance(model, torch.nn.Module) and (switch := switch_of(model)):
            self.switches[prefix] = switch
        for path, module in model.named_modules(prefix=prefix) if isinstance(model, torch.nn.Module) else ():
            self.modules.setdefault(_identity(module), path)

    # --- afterwards

    def note_cycles(self) -> None:
        """Note Buffers that only the collector of reference cycles frees. They stay in the records."""
        ledger, position, num_calls = self.ledger, len(self.ledger.events), len(self.calls)
        gc.collect()
        self.in_cycles = frozenset(~event for event in ledger.events[position:] if event < 0)
        freed = sum(ledger.births[number].nbytes for number in self.in_cycles)
        del ledger.events[position:], ledger.event_nodes[position:], self.calls[num_calls:]
        if freed >= _WORTH_SAYING:
            text = (
                f"{format_nbytes(freed)} of the steps are left in objects that refer to each other: they stay until"
                " Python's collector of cycles runs; it is taken not to run before"
            )
            self.assumptions.setdefault(Assumption(text, None))

    def finish(self, device: Device) -> Recorded:
        """Make the records of everything seen."""
        paths = self.modules
        nodes: list[Node] = []
        for index, (kernel, phase, (*lines, module), step, event, inputs, outputs) in enumerate(self.calls):
            path = "" if module is None else paths.get(module, module[1])
            origin = _origin_of(*lines[:2])
            if origin is not None and kernel.name.startswith(_ALLOCATES) and origin.op:
                self.compiled[index] = origin.op
            frame = frame_of(*lines) if origin is None else origin.frame
            path = path if origin is None else ".".join(filter(None, (path, origin.module)))
            geometries = tuple(inputs), tuple(outputs)
            name = f"inductor.{origin.kernel}" if origin is not None and origin.kernel else kernel.name
            name = f"{name} (failed)" if index in self.failures else name  # whoever looks for it counts on its tensors
            phase_of_step = Phase.OTHER if step < 0 and phase is Phase.FORWARD else phase
            phase_of_step = Phase.OPTIMIZER if origin is not None and origin.optimizes else phase_of_step
            nodes.append(Node(index, name, phase_of_step, step, frame, path, *geometries, event))
        broken = (Assumption(text, None) for text in broken_plugins.reasons())
        buffers = categorise(self._buffers(nodes), nodes, self.roles, self.step_events, self.ledger.doubts)
        trace = Trace(
            nodes=with_updates(nodes, buffers),
            buffers=buffers,
            events=tuple(self.ledger.events),
            event_nodes=tuple(self.ledger.event_nodes),
            num_steps=self.step + 1,
            step_nodes=tuple(self.step_nodes),
            assumptions=(*self.assumptions, *simulated().about_compilation, *broken),
            modules=tuple((path, kind) for (_, kind), path in paths.items()),
            torch=torch.__version__.split("+")[0],
            device=device.name,
            doubts=tuple(Doubt(number, low, high) for number, (low, high) in self.ledger.doubts.items()),
            streams=self.ledger.used_streams(),
            collectives=tuple(simulated().collectives),
            world=simulated().world,
            trained=tuple(map(frozenset, self.roles.trained.values())),
            with_gradient=frozenset(self.roles.with_gradient),
            switches=tuple(self.switches.items()),
            rounds=tuple(self.round_places),
            graph_breaks=tuple(simulated().graph_breaks),
            whole=None,
            reads_allocator=simulated().reads_allocator,
            **facts_of({node.op for node in nodes}),
        )
        return Recorded(trace, tuple(call[0].op for call in self.calls))

    def _assume_held(self, places: Mapping[int, Frame | None]) -> None:
        """Report the lines that made tensors before the program began, if these are large."""
        sizes = Counter[Frame | None]()
        for number, place in places.items():
            sizes[place] += self.ledger.births[number].nbytes
        text = "what is made on the GPU when the file is imported stays there while the step runs"
        for place, nbytes in sizes.items():
            if nbytes >= _WORTH_SAYING:
                self.assumptions.setdefault(Assumption(text, place))

    def _buffers(self, nodes: list[Node]) -> list[Buffer]:
        ledger = self.ledger
        count = len(ledger.births)
        died: list[int | None] = [None] * count
        for position, event in enumerate(ledger.events):
            if event < 0:
                died[~event] = position
        last_used = [birth.node for birth in ledger.births]
        maker: list[int] = last_used.copy()
        for node in nodes:
            for geometry in node.outputs:
                number = geometry.buffer
                if number >= 0:
                    is_open = last_used[number] == maker[number] >= 0 and maker[number] not in self.compiled
                    if is_open and nodes[maker[number]].op.startswith(_ALLOCATES):
                        maker[number] = node.index  # an empty tensor belongs to the kernel that first fills it
                    last_used[number] = max(last_used[number], node.index)
            for geometry in node.inputs:
                if geometry.buffer >= 0:
                    last_used[geometry.buffer] = node.index
        buffers = []
        made_before = preexisting_tensors.places()
        self._assume_held(made_before)
        for number, birth in enumerate(ledger.births):
            workspace = self.workspaces.owner(number)
            made_by = nodes[maker[number]] if maker[number] >= 0 else NO_NODE
            buffers.append(
                Buffer(
                    id=number,
                    nbytes=birth.nbytes,
                    shape=tuple(birth.shape),
                    dtype=_dtype_name(birth.dtype),
                    category=Category.TEMPORARY,
                    op=workspace or self.compiled.get(maker[number], made_by.op),
                    phase=made_by.phase,
                    step=made_by.step,
                    frame=made_by.frame or made_before.get(number),
                    module=made_by.module,
                    name=self.roles.names.get(number, ""),
                    node=birth.node,
                    last_used=max(last_used[number], birth.node),
                    born=birth.event,
                    died=died[number],
                    nonzeros=ledger.nonzeros.get(number),
                    is_in_cycle=number in self.in_cycles,
                )
            )
        return buffers


def _geometry(tensor: Tensor) -> Geometry:
    if tensor.layout is not torch.strided:
        return Geometry(-1, tuple(tensor.shape), (), _dtype_name(tensor.dtype))
    number = entry_of(tensor).number if real_device_of(tensor).type == NAME else -1
    return Geometry(number, tuple(tensor.shape), tensor.stride(), _dtype_name(tensor.dtype))


@functools.cache
def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _origin_of(code: CodeType | None, line: int) -> origins.Origin | None:
    """Return the origin of what a line of generated code does; None for any other code."""
    return None if code is None else origins.origin_at(code.co_filename, line)


def _identity(module: torch.nn.Module) -> tuple[int, str]:
    """Return a key that tells modules apart and does not keep them alive."""
    return id(module), _class_name(type(module))  # type: ignore[arg-type]  # classes are hashable


@functools.cache
def _class_name(kind: type) -> str:
    """Return the author's name of a class: `fully_shard` makes a class `FSDPBlock` of a `Block`."""
    wrapper, *others = kind.__bases__
    return others[0].__name__ if wrapper.__name__ in _SHARDED and others else kind.__name__


@contextlib.contextmanager
def observed(recorder: Recorder) -> Iterator[None]:
    """Let `recorder` see kernels, module calls, optimizer steps and assumptions."""
    attribution = recorder.attribution
    call = torch.nn.Module.__call__

    def module_call(self: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        modules = attribution.modules
        if not modules:
            return recorder.outermost_call(call, self, args, kwargs)
        modules.append(_identity(self))
        try:
            return call(self, *args, **kwargs)
        finally:
            modules.pop()

    running = state.current
    assume, running.assume = running.assume, recorder.assume
    torch.nn.Module.__call__ = module_call  # type: ignore[method-assign]
    running.observers.append(recorder)
    try:
        with optimizer_steps.observed(recorder.before_optimizer, recorder.after_optimizer):
            yield
    finally:
        running.observers.remove(recorder)
        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        running.assume = assume


@contextlib.contextmanager
def without_collector() -> Iterator[Callable[[], None]]:
    """Disable the collector of reference cycles: it seldom runs in a few steps, and never at the same moment.

    After many imports it does run, and frees frames that an import has left in cycles (`torch.fx.wrap`); and while code
    is compiled, which leaves the compiler's arguments in cycles. So the block receives a function to call for that
    after the setup and after each step. It collects only objects made in the block.
    """
    num_modules, num_compilations = len(sys.modules), Compilation.number

    def collect() -> None:
        nonlocal num_modules, num_compilations
        if len(sys.modules) > num_modules + _MANY_MODULES or Compilation.number > num_compilations:
            gc.collect()
        num_modules, num_compilations = len(sys.modules), Compilation.number

    is_frozen = frozen_by_owner()
    gc.freeze()
    try:
        with uncollected():
            yield collect
    finally:
        if not is_frozen:
            gc.unfreeze()


def virtual_device_of(
    program: Program, device: Device, allocator: AllocatorSettings | None
) -> AbstractContextManager[Ledger]:
    """The simulation of a program: see `virtual_device`; it compiles if the program's attribute `compiles` is True."""
    return virtual_device(device, allocator, compiles=getattr(program, "compiles", False))


def trace_program(
    program: Program,
    device: Device,
    allocator: AllocatorSettings | None = None,
    *,
    num_steps: int = 2,
    most_rounds: int | None = None,
    after_step: Callable[[int], None] | None = None,
) -> Recorded:
    """Set `program` up and run `num_steps` steps of it on a simulated `device`.

    `allocator` are the settings behind the program's readings of `torch.cuda.memory_reserved()`. Raises what the
    program raises. A generation ends after `most_rounds`.
    """

    def run() -> Recorded:
        with without_collector() as collect, virtual_device_of(program, device, allocator) as ledger:
            recorder = Recorder(ledger, simulated().workspaces)
            recorder.most_rounds = most_rounds
            with observed(recorder):
                program.setup()
                collect()
                recorder.roles.note_setup(program)
                recorder.note_modules(getattr(program, "model", None))
                for step in range(num_steps):
                    recorder.begin_step()
                    with recorder.generating() if getattr(program, "generates", False) else nullcontext():
                        program.step()
                    collect()
                    recorder.roles.note_state(program)
                    if after_step is not None:
                        after_step(step)
                recorder.note_modules(getattr(program, "model", None))
                recorder.note_cycles()
            ledger.freeze()
            return recorder.finish(device)

    return in_turns(run, program, device)
