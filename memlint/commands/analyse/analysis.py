"""One Workload, traced: what rules and what-ifs may ask about it."""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from memlint.accelerator import lazy_imports
from memlint.base.units import format_nbytes
from memlint.cuda.versions import torch_version
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.communicators import beside
from memlint.memory.context import VARIABLE, loads_everything
from memlint.memory.devices import Device
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.records import Assumption, Phase, Trace, computes_on_gpu, has_parameters
from memlint.memory.retention import Holder, LongRun
from memlint.memory.timeline import Timeline
from memlint.script.run import ScriptRun
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import trace_of_workload
from memlint.whatif.change import Change, ChangedProgram, NotApplicableError
from memlint.whatif.holders import find_holders
from memlint.whatif.long_run import NUM_STEPS, TakeSteps, run_longer
from memlint.whatif.simulation import Simulation, WhatIf
from memlint.worker.child import write_smaller
from memlint.workloads import availability, downloads, placeholders
from memlint.workloads.construction.construct import completed_program, settings_of
from memlint.workloads.construction.program import Program
from memlint.workloads.construction.worst_rank import of_worst_rank
from memlint.workloads.discover import complete
from memlint.workloads.user_errors import command_with

_UNCOMPILED = Assumption(
    "torch.compile is left out: what it would compile runs eagerly, and may take less memory", None
)
_WITHOUT_MODEL = Assumption("the script's own operations are all there is: no model was called on the GPU", None)


@dataclass
class Analysis:
    """The Context of rules."""

    workload: Workload
    device: Device
    trace: Trace
    timeline: Timeline
    estimate: Estimate
    budget: int | None
    program: Program | None
    """None for a script, which runs once."""
    rebuild: Callable[[], Program] | None
    simulation: Simulation
    thorough: bool = False
    _holders: dict[frozenset[int], Mapping[int, Holder]] = field(default_factory=dict)

    @classmethod
    def of(cls, workload: Workload, root: Path, budget: int | None = None, *, thorough: bool = False) -> Self:
        """Trace `workload`. Raises WorkloadError for what its code raises, TraceError for what cannot be traced."""
        workload, of_ranks = of_worst_rank(workload, root)
        device = workload.device
        completed, assumptions = complete(workload, root)
        write_smaller(_smaller(completed))
        rebuild = functools.partial(completed_program, completed, root)
        program = rebuild()
        settings = AllocatorSettings.parse(completed.allocator)
        trace = trace_of_workload(program, device, settings)
        if program.declares_optimizer:
            completed = replace(completed, assumed=completed.assumed - {"optimizer"})
        of_step = (*settings_of(replace(workload, assumed=completed.assumed)), *of_ranks, *assumptions)
        program.assumptions[:0] = [each for each in of_step if each not in program.assumptions]
        at_import = (*placeholders.assumptions(), *availability.assumptions(), *downloads.assumptions())
        program.assumptions += [each for each in at_import if each not in program.assumptions]
        program.assumptions += (*_of_torch(workload, device), *_of_context(device))
        if lazy_imports.Compilation.is_requested:
            program.assumptions.append(_UNCOMPILED)
        if not device.is_cuda and any(node.op.startswith("aten.convolution") for node in trace.nodes):
            text = "the copies that oneDNN makes in layouts of its own for convolutions are not counted"
            program.assumptions.append(Assumption(text, None))
        device = beside(device, trace.collectives)
        timeline = Timeline.of(trace)
        peak = estimate(timeline, device, trace.nodes, settings)
        simulation = Simulation(rebuild, device, settings, program=program, trace=trace, estimate=peak)
        return cls(completed, device, trace, timeline, peak, budget, program, rebuild, simulation, thorough)

    @classmethod
    def of_script(
        cls, run: ScriptRun, workload: Workload, budget: int | None = None, *, thorough: bool = False
    ) -> Self:
        """What was seen of a script, which declares `workload`."""
        device, settings = beside(workload.device, run.trace.collectives), AllocatorSettings.parse(workload.allocator)
        compiled = (_UNCOMPILED,) if lazy_imports.Compilation.is_requested else ()
        of_version = (*_of_torch(workload, device), *_of_context(device))
        without = () if has_parameters(run.trace) or not computes_on_gpu(run.trace) else (_WITHOUT_MODEL,)
        given = (*placeholders.assumptions(), *availability.assumptions(), *run.trace.assumptions)
        known = (*given, *of_version, *compiled, *without)
        trace = replace(run.trace, assumptions=known)
        timeline = Timeline.of(trace)
        peak = estimate(timeline, device, trace.nodes, settings)
        rerun = run.reruns.trace
        simulation = Simulation(None, device, settings, program=None, trace=trace, estimate=peak, rerun=rerun)
        return cls(workload, device, trace, timeline, peak, budget, None, None, simulation, thorough)

    @property
    def steps_an_optimizer(self) -> bool:
        """Whether any was seen to step."""
        return any(node.phase is Phase.OPTIMIZER for node in self.trace.nodes)

    @property
    def assumed(self) -> frozenset[str]:
        """Settings that memlint took; `loss` where the mean of the outputs stands for it."""
        invented = self.program is not None and self.program.has_invented_loss
        return self.workload.assumed | ({"loss"} if invented else set())

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Those of the program, of its Trace and of a GPU that is full."""
        of_program = self.program.assumptions if self.program is not None else ()
        return tuple(dict.fromkeys((*of_program, *self.trace.assumptions, *_of_full_gpu(self.estimate))))

    def retrace(self, change: Change) -> Estimate | None:
        """Estimate of the changed program; None where the change does not apply to it."""
        answer = self.simulation.what_if(change)
        return answer.estimate if answer is not None else None

    def what_if(self, *changes: Change) -> WhatIf | None:
        """What the changes do together; None where one does not apply or the program fails with it."""
        return self.simulation.what_if(*changes)

    def holders(self, buffer_ids: Collection[int]) -> Mapping[int, Holder]:
        """Which variables hold these Buffers at the peak; nobody knows of a script."""
        ids = frozenset(buffer_ids)
        if ids not in self._holders:
            self._holders[ids] = self.holders_after((), self.estimate.peak_event, ids)
        return self._holders[ids]

    def holders_after(
        self, changes: tuple[Change, ...], event: int, buffer_ids: Collection[int]
    ) -> Mapping[int, Holder]:
        """Which variables of the changed program hold these Buffers at an event of its Trace."""
        if self.rebuild is None:
            return {}
        traced = [change for change in changes if not change.is_edit]
        program = ChangedProgram(self.rebuild(), *traced) if traced else self.rebuild()
        return find_holders(program, self.device, event, buffer_ids, self.simulation.settings)

    @functools.cached_property
    def long_run(self) -> LongRun:
        """Four steps in a row, and the variables that keep what these leave behind; in a script nobody knows those.

        Of a script that cannot be run again it is what was seen.
        """
        if self.rebuild is None:
            try:
                longer = self.simulation.trace(TakeSteps(NUM_STEPS)) if self.trace.num_steps < NUM_STEPS else self.trace
            except NotApplicableError:
                longer = self.trace
            return LongRun(Timeline.of(longer), {})
        return run_longer(self.rebuild(), self.device, self.simulation.settings)


def _of_full_gpu(peak: Estimate) -> tuple[Assumption, ...]:
    if not peak.on_larger:
        return ()
    text = (
        "the GPU is full: PyTorch gives cached memory back, which takes time, and asks again; on a larger GPU it would "
        f"reserve {format_nbytes(peak.on_larger)}"
    )
    return (Assumption(text, None),)


_READ_SINCE = (2, 1)
"""From there on what kernels take is known by version, at least in part."""


def _of_torch(workload: Workload, device: Device) -> tuple[Assumption, ...]:
    """What is taken for true of another version of PyTorch than the one that runs."""
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


def _of_context(device: Device) -> tuple[Assumption, ...]:
    if not device.is_cuda or not loads_everything(device):
        return ()
    return (Assumption(f"{VARIABLE}: the CUDA context has every module of PyTorch and its libraries", None),)


def _smaller(workload: Workload) -> str:
    """The command for an eighth of the inputs' largest dimension, or of the batch; empty where both are 1."""
    named = frozenset[str]().union(*(spec.dimensions for spec in workload.inputs or ()))
    sizes = {name: size for name, size in workload.dimensions.items() if name in named and size > 1}
    if sizes:
        largest = max(sizes, key=sizes.__getitem__)
        return command_with(f"--dim {largest}={-(-sizes[largest] // 8)}")
    return command_with(f"--batch {-(-workload.batch // 8)}") if workload.batch > 1 else ""
