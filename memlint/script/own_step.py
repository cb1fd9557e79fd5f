"""A step of memlint's own, for a script that ended after it had built a model and before it took a step.

Model, optimizer, batch size, autocast, accumulation and loss are the script's as far as they are known. Inputs are
found by trials, as for a target of `memlint check`: in a copy of the process, which takes a whole step before this one
does, so that nothing of the trials is recorded, and nothing of a step that fails.
"""

from __future__ import annotations

import linecache
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memlint.accelerator import state
from memlint.accelerator.private import graph_task
from memlint.base.errors import MemlintError
from memlint.base.ownership import is_users
from memlint.base.patching import patched
from memlint.base.units import Mode, dtype_named, format_count
from memlint.compile import requests
from memlint.distributed.data_parallel import wrap_again
from memlint.memory.records import Assumption
from memlint.script.abandoned import abandon_iteration
from memlint.script.construction import PARAMETERS, unwrapped
from memlint.script.forms import forms
from memlint.script.loop_text import LoopText
from memlint.script.reruns import copied
from memlint.script.settings_by_name import named_optimizer
from memlint.targets.built import Setting
from memlint.targets.workload import DEFAULT_BATCH, SEQUENCE, Workload
from memlint.workloads.as_built import takes_inputs, with_inputs
from memlint.workloads.construction.generating import NUM_NEW, inputs_of_generate, with_lengths
from memlint.workloads.construction.optimizers import OptimizerFactory, optimizer_named
from memlint.workloads.construction.program import Construction, Program
from memlint.workloads.construction.training_step import (
    assumption,
    calls_methods,
    calls_training_step,
    of_methods,
    own_optimizer,
)
from memlint.workloads.guess.inferred import Inferred
from memlint.workloads.guess.inputs import infer_inputs
from memlint.workloads.loss import ALIKE, OF_CLASSES, NamedLoss
from memlint.workloads.tensors import make_inputs
from memlint.workloads.user_errors import describe

if TYPE_CHECKING:
    from memlint.script.ending import End
    from memlint.script.recorder import ScriptRecorder
    from memlint.source.fed_calls import FedCall
    from memlint.targets.built import BuiltInput
    from memlint.targets.script import Ending

_SECONDS_WHEN_STOPPED = 24.0
"""Time for a step after the time limit: a script has to answer soon (`_END_PATIENCE` of `memlint.worker.session`)."""
_INTERVAL = 0.5
_SHARE = 0.5
"""Share of the time that is left which trials may take."""
_TRAINS = re.compile(r"backward\(|optim|\.fit\(|(?<!pre)train", re.IGNORECASE)
_OF_FABRIC = ("lightning.fabric.wrappers", "lightning_fabric.wrappers")
_GENERATES = re.compile(r"\.generate\(")
_SURELY_TRAINS = re.compile(r"\.backward\(|\boptim|\.fit\(|Trainer\(")
_TOO_SLOW = "the time limit does not suffice for steps of memlint's own (--time-limit SECONDS)"
_SHARDING = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}
"""Variables by which accelerate tells a script that its parameters are divided, and what divides them."""
_exit, _kill = os._exit, os.kill
"""The original functions; scripts may replace them."""


@dataclass(frozen=True, slots=True)
class OwnStep:
    """A step that memlint took with what a script had built, or the reason why it could not."""

    model: str
    """The model: `Net (25.6 M parameters)`."""
    mode: Mode = "train"
    batch: int = 0
    own: tuple[str, ...] = ()
    """The parts of the step that are memlint's: `inputs`, `loss`."""
    assumptions: tuple[Assumption, ...] = ()
    failure: str = ""
    """Why there was no step; empty if there was one."""
    hint: str = ""
    """The command that installs one, if that was the reason."""


def take_own_step(
    recorder: ScriptRecorder, end: End, ending: Ending, apart: Callable[[], None], seconds: float
) -> OwnStep | None:
    """Take a step with what the script has built; None if the script took one itself, or has built nothing.

    `apart` is called in the copy: what it writes is separate from the script's files. `seconds` are left until the time
    limit.
    """
    if not _is_due(recorder, ending):
        return None
    recorder.own_generations.close()
    with _as_before_the_script():
        plan = _Plan.of(recorder)
        if plan is None:
            return None
        construction, first = recorder.construction, recorder.first_after_batch
        abandon_iteration(construction.frames, construction.namespaces, recorder.ledger, first)
        begin = time.monotonic()
        seconds = max(seconds, _SECONDS_WHEN_STOPPED)

        def alone() -> None:
            """Be a copy that nothing is asked of, and that leads no other process."""
            recorder.end, recorder.keep, recorder.lead = lambda _ending: None, lambda: None, lambda: None
            recorder.reruns.is_asked = False
            apart()

        requests.load_for([plan.root])
        answer = _in_copy(plan.tried, alone, _SHARE * seconds, end)
        failure, _, hint = answer.partition("\n") if isinstance(answer, str) else ("", "", "")
        tried, of_step = (None, 0.0) if failure else answer
        num_steps = 1 if plan.workload.mode == "generate" else recorder.script.steps
        if num_steps * of_step > seconds - (time.monotonic() - begin):
            failure = f"{_TOO_SLOW}: one takes {of_step:.0f} s"
        if failure or tried is None:
            return OwnStep(plan.described, plan.workload.mode, plan.workload.batch, failure=failure, hint=hint)
        with patched([(recorder, "end", lambda _ending: None), (recorder, "keep", lambda: None)]):
            was_training = plan.root.training
            program = plan.taken(tried, lambda: 1 if end.is_urgent else num_steps)
            plan.root.train(was_training)
        recorder.batch = plan.workload.batch
        inputs = f"inputs ({tried.unstated}, which nothing states)" if tried.unstated else "inputs"
        own = (inputs, *(["loss"] if program.has_invented_loss else []), *plan.own)
        known = (*plan.assumptions, *tried.assumptions, *program.assumptions)
        return OwnStep(plan.described, plan.workload.mode, plan.workload.batch, own, tuple(dict.fromkeys(known)))


def only_evaluates(recorder: ScriptRecorder, ending: Ending) -> bool:
    """Return True if a script without an optimizer has called its model and is over: with autograd on or off."""
    is_over = not (ending.is_failure or ending.goes_on)
    is_without = not recorder.construction.optimizers and _SURELY_TRAINS.search(_text_of(recorder)) is None
    return is_over and recorder.has_called and is_without


def _is_due(recorder: ScriptRecorder, ending: Ending) -> bool:
    """Return True if the script took no step, and can be left where it is."""
    if recorder.num_steps or recorder.open_calls or graph_task() != -1 or recorder.attribution.modules:
        return False
    if only_evaluates(recorder, ending):
        return False
    trains_next = ending.is_failure and bool(recorder.construction.optimizers)
    has_generated = recorder.rounds is not None or recorder.has_generated
    if has_generated and not trains_next:
        return False
    if recorder.progress()[1]:  # PyTorch allows no backward in a copy of a process that has done one
        return False
    if recorder.num_called_on_host and not (recorder.has_called or ending.is_failure):
        return False
    return (trains_next and (has_generated or not ending.goes_on)) or not recorder.has_evaluated


@contextmanager
def _as_before_the_script() -> Iterator[None]:
    """Take off what the script has set for the code that it would run next.

    A model of Fabric's refuses a `backward` that is not Fabric's, which it is told that this one is.
    """
    is_cast = torch.is_autocast_enabled("cuda")
    torch.set_autocast_enabled("cuda", False)
    of_fabric = [sys.modules[name] for name in _OF_FABRIC if name in sys.modules]
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            patched([(module, "_in_fabric_backward", True) for module in of_fabric]),
        ):
            yield
    finally:
        torch.set_autocast_enabled("cuda", is_cast)


@dataclass
class _Plan:
    """A step that is to be taken."""

    root: nn.Module
    """The model, perhaps in a wrapper such as DistributedDataParallel."""
    workload: Workload
    place: str
    sizes: dict[str, object]
    optimizer: OptimizerFactory | None
    loss: str | None
    accumulation: int
    own: tuple[str, ...]
    """Parts that the script has not made, other than the inputs and the loss."""
    assumptions: tuple[Assumption, ...]
    drawn: Callable[[], Iterator[tuple[BuiltInput, ...]]]
    """Draws a batch of the script's own training data, and yields the tensors of calls of the model with it."""

    @classmethod
    def of(cls, recorder: ScriptRecorder) -> _Plan | None:
        """Plan the step of the trained or largest model; None if no model was built."""
        construction, script = recorder.construction, recorder.script
        root = _without_own_division(next(iter(construction.finished_roots()), None))
        if root is None:
            return None
        model = unwrapped(root)
        mode: Mode = "train" if _is_to_be_trained(recorder, model) else "inference"
        if mode == "inference" and _SURELY_TRAINS.search(_text_of(recorder)):
            return None  # a frozen part of what it would have trained
        notes: list[Assumption] = []
        loop = LoopText(script)
        fed = construction.fed(root, loop) if mode == "train" else None
        if mode == "train" and calls_training_step(model):
            notes.append(assumption(model))
        elif fed is not None and calls_methods(model, fed):
            notes.append(of_methods(fed))
        stated_sizes = loop.sizes_with(construction.sizes(model))
        lengths: dict[str, int] = {}
        if mode == "inference" and hasattr(model, "generate") and _GENERATES.search(_text_of(recorder)):
            mode = "generate"
            stated = next((stated_sizes[name] for name in NUM_NEW if "token" in name and name in stated_sizes), None)
            lengths = {"new_tokens": stated} if isinstance(stated, int) and stated > 0 else {}
        optimizer, own = _optimizer(recorder, root, mode, loop)
        batch = construction.batch() or loop.setting("batch")
        dtype, accumulation = construction.dtype(root), construction.accumulation()
        if dtype is None or dtype.source == PARAMETERS:
            dtype = loop.setting("dtype") or dtype
        workload = Workload(
            name=type(model).__name__,
            target=script.name,
            mode=mode,
            batch=int(batch.value) if batch is not None else DEFAULT_BATCH,
            dtype=_known_dtype(dtype),  # type: ignore[arg-type]  # checked there
            optimizer="none",
            assumed=frozenset({"batch"} if batch is None else ()),
            dimensions=lengths,
            fed=fed,
        )
        workload, of_lengths = with_lengths(workload)
        notes += of_lengths
        first, is_trial = construction.first_call(root)
        if first:
            workload = with_inputs(workload, first, batch, keeps_batch=is_trial or batch is not None)
        found = [("batch", batch), ("dtype", dtype), ("accumulation", accumulation if mode == "train" else None)]
        found += [("optimizer", named_optimizer(construction.values))] if "optimizer" in own else []
        notes += [_stated(name, setting) for name, setting in found if setting is not None]
        if batch is None and (is_trial or not first):
            notes.append(Assumption(f"batch {workload.batch}: nothing that the script has made says otherwise", None))
            own = (*own, "batch size")
        names = [name for name in construction.criteria() if name in (*OF_CLASSES, *ALIKE)]
        if mode == "train" and not construction.criteria() and (loss := loop.setting("loss")) is not None:
            names = [str(loss.value)]
        notes += loop.used()
        return cls(
            root=root,
            workload=workload,
            place="cuda" if state.current.cuda else "cpu",
            sizes=stated_sizes,
            optimizer=optimizer,
            loss=names[0] if len(names) == 1 else None,
            accumulation=int(accumulation.value) if accumulation is not None and mode == "train" else 1,
            own=(*own, *_unsharded(root)),
            assumptions=tuple(notes),
            drawn=partial(construction.drawn, root, None if fed is None else len(fed.inputs)),
        )

    @property
    def described(self) -> str:
        """The model as text."""
        model = unwrapped(self.root)
        return f"{type(model).__name__} ({_millions(sum(each.numel() for each in model.parameters()))})"

    def tried(self) -> tuple[Inferred, float]:
        """Find inputs, and take a step with them; return the seconds that it took, too."""
        train = self.workload.mode == "train"
        placed = self.root.to(self.place)
        placed.train(train)
        model = unwrapped(placed)
        if self.workload.inputs is not None and takes_inputs(model, self.workload, self.place):
            inferred = Inferred(self.workload.inputs, self.workload.found, self.workload.dimensions)
        else:
            fed = self.workload.fed
            known = self._of_loader(model) if self.workload.mode == "train" and _is_called(model, fed) else None
            inferred = known or infer_inputs(model, train=train, device=self.place, stated=self.sizes, fed=fed)
        if self.workload.mode == "generate":
            sizes = {**inferred.dimensions, **self.workload.dimensions}
            sizes.pop(SEQUENCE, None)
            inputs = inputs_of_generate(inferred.inputs, model)
            inferred = replace(inferred, inputs=inputs, dimensions=sizes)
        begin = time.monotonic()
        self.taken(inferred, lambda: 1)
        return inferred, time.monotonic() - begin

    def _of_loader(self, model: nn.Module) -> Inferred | None:
        """Return the inputs that a batch of the script's own data gives; None if the model takes none of it."""
        batch = Setting(self.workload.batch, "")
        with patched([(forms, "begin", lambda: None)]):  # no other attempt takes the place of this one
            for inputs in filter(None, self.drawn()):
                workload = with_inputs(replace(self.workload, found=()), inputs, batch, keeps_batch=True)
                if takes_inputs(model, workload, self.place):
                    return Inferred(workload.inputs or (), workload.found, workload.dimensions)
        return None

    def taken(self, inferred: Inferred, num_steps: Callable[[], int]) -> Program:
        """Take steps with these inputs; return the program of which they are.

        `num_steps` may change while they are taken.
        """
        workload = replace(self.workload, inputs=inferred.inputs, dimensions=inferred.dimensions)
        for each in list(self.root.modules()):
            if isinstance(each, DistributedDataParallel) and not each.find_unused_parameters:
                if not dist.is_initialized():  # the script has destroyed its group since
                    dist.init_process_group()
                wrap_again(each, find_unused_parameters=True)  # the loss is memlint's, and may leave some out
        program = Program(workload, self._constructed, self.place, accumulation_steps=self.accumulation)
        program.setup()
        num_taken = 0
        while num_taken < num_steps():
            program.step()
            num_taken += 1
        return program

    def _constructed(self, workload: Workload) -> Construction:
        assert workload.inputs is not None, "they were found"
        return Construction(
            model=self.root,
            inputs=make_inputs(workload.inputs, workload.batch, workload.dimensions),
            loss=None if self.loss is None else NamedLoss(self.loss),
            optimizer=self.optimizer,
        )


class _Together:
    """Optimizers of one model as one: they step one after the other."""

    def __init__(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        self._optimizers = tuple(optimizers)
        self.param_groups = [group for each in self._optimizers for group in each.param_groups]

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Let each of them step."""
        for each in self._optimizers:
            each.step(*args, **kwargs)

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Let go of the gradients."""
        for each in self._optimizers:
            each.zero_grad(set_to_none=set_to_none)


def _unsharded(root: nn.Module) -> tuple[str, ...]:
    """Return that the model is whole where the launcher's variables have its parameters divided among the ranks."""
    is_divided = any("Fully" in type(each).__name__ or "FSDP" in type(each).__name__ for each in root.modules())
    kinds = (kind for variable, kind in _SHARDING.items() if os.environ.get(variable, "").lower() in ("true", "1"))
    kind = None if is_divided else next(kinds, None)
    return () if kind is None else (f"whole parameters, which {kind} would divide among the ranks",)


def _optimizer(
    recorder: ScriptRecorder, root: nn.Module, mode: Mode, loop: LoopText
) -> tuple[OptimizerFactory | None, tuple[str, ...]]:
    """Return the optimizer of the model, and its name if it is memlint's: of the kind that the loop's text names."""
    if mode == "inference":
        return None, ()
    parameters = {id(parameter) for parameter in root.parameters()}
    made = [
        optimizer
        for optimizer in recorder.construction.optimizers
        if any(id(each) in parameters for group in optimizer.param_groups for each in group["params"])
    ]
    if made:
        together: Any = made[0] if len(made) == 1 else _Together(made)
        return lambda _parameters: together, ()
    with suppress(Exception):  # of a `configure_optimizers` that asks for its trainer
        configured = own_optimizer(unwrapped(root))
        if configured is not None:
            return configured, ()
    if (named := recorder.construction.stated_optimizer(loop)) is not None:
        with suppress(MemlintError):
            return optimizer_named(str(named.value)), ("optimizer",)
    return optimizer_named("adamw"), ("optimizer AdamW",)


def _is_called(model: nn.Module, fed: FedCall | None) -> bool:
    """Return True unless the training loop calls methods of the model in place of the model."""
    return not calls_training_step(model) and not (fed is not None and calls_methods(model, fed))


def _without_own_division(root: nn.Module | None) -> nn.Module | None:
    """Return the model in a wrapper that divides batches among several GPUs in its own way."""
    if isinstance(root, nn.DataParallel) and type(root).forward is not nn.DataParallel.forward:
        module: nn.Module = root.module
        return module
    return root


def _is_to_be_trained(recorder: ScriptRecorder, model: nn.Module) -> bool:
    """Return True unless the script has made no optimizer and looks like one that only evaluates."""
    if recorder.construction.optimizers:
        return True
    if not model.training or recorder.construction.is_without_gradients:
        return False
    return hasattr(model, "configure_optimizers") or _TRAINS.search(_text_of(recorder)) is not None


def _text_of(recorder: ScriptRecorder) -> str:
    """Return the script as it was called, and the texts of its file and of those in which it ended."""
    paths = [recorder.script.path, *(each.f_code.co_filename for each in recorder.construction.frames)]
    texts = ("".join(linecache.getlines(path)) for path in dict.fromkeys(each for each in paths if is_users(each)))
    return "\n".join((recorder.script.command, *texts))


def _known_dtype(setting: Setting | None) -> str:
    """Return the dtype as a Workload names it; float32 for one that it does not know."""
    with suppress(MemlintError):
        return dtype_named(str(setting.value)) if setting is not None else "float32"
    return "float32"


def _stated(name: str, setting: Setting) -> Assumption:
    value = setting.value if name != "accumulation" else f"of {setting.value} batches"
    return Assumption(f"{name} {value}, from {setting.source}", setting.frame, found=True)


def _millions(num_parameters: int) -> str:
    if num_parameters < 1_000_000:
        return format_count(num_parameters, "parameter")
    unit, name = (1e9, "B") if num_parameters >= 1_000_000_000 else (1e6, "M")
    return f"{num_parameters / unit:.1f} {name} parameters"


def _reason(error: BaseException) -> str:
    """Return why there was no step, and on a line of its own what to install for one."""
    if not isinstance(error, MemlintError):
        return describe(error)
    message = " ".join(error.message.split())
    return f"{message}\n{error.hint}" if error.hint.startswith("Install ") else message


def _in_copy(answer: Callable[[], Any], apart: Callable[[], None], seconds: float, end: End) -> Any:
    """Return what `answer` returns in a copy of this process, or, as text, why it returns nothing."""
    ours, theirs = Pipe()
    try:
        is_copy = copied()
    except OSError:
        return "the process cannot be copied"
    if is_copy:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            theirs.send(os.getpid())
            apart()
            theirs.send(answer())
        except BaseException as error:  # whatever the model's code raises
            with suppress(BaseException):
                theirs.send(_reason(error))
        finally:
            _exit(0)
    theirs.close()
    with suppress(EOFError, OSError):
        process = ours.recv()
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not end.is_urgent:
            if ours.poll(_INTERVAL):
                return ours.recv()
        _kill(process, signal.SIGKILL)
        return f"{_TOO_SLOW}: no inputs were found within {seconds:.0f} s"
    return "the process ended in its step" if hasattr(os, "fork") else "this system cannot copy a process"
