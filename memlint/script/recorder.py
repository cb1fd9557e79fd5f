"""Recorder that detects a script's models, steps and evaluations while it records them.

A step ends when the leading optimizer, the first that ever stepped, has stepped, so accumulation is one step. Without
an optimizer it ends when parameters were written after a backward and a model is called again.
"""

from __future__ import annotations

import functools
import gc
import math
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import entry_of, is_virtual, unwrapped
from memlint.accelerator.lazy_imports import Compilation
from memlint.accelerator.private import CALL_COMPILED, graph_task, is_view, part_of_rank, tree_leaves
from memlint.accelerator.values import content
from memlint.base.frames import user_frames
from memlint.base.native_stack import is_within_library
from memlint.base.ownership import is_memlint, is_users
from memlint.base.variables import variables_of
from memlint.compile import requests
from memlint.cuda.simulated import simulated
from memlint.memory.records import Category, Phase
from memlint.script.construction import Construction, is_building
from memlint.script.evaluations import Evaluations
from memlint.script.forms import forms
from memlint.script.own_generations import OwnGenerations
from memlint.script.pace import Pace
from memlint.script.reruns import Reruns, ScriptProgram
from memlint.script.scales import num_scales
from memlint.script.shown_errors import ShownErrors
from memlint.targets.script import Ending, Script
from memlint.tracing.recorder import Arguments, Function, Keywords, Recorder

if TYPE_CHECKING:
    from memlint.accelerator.kernel import Kernel
    from memlint.accelerator.ledger import Ledger
    from memlint.cuda.workspaces import Workspaces
    from memlint.script.ending import Handler

_NO_NAMES = frozenset(("self", "model_", "mod", "module", "call", "args", "obj"))
"""Variables of libraries whose names tell nothing about a model."""
_MOST_STEPS_MORE = 10
"""Multiple of the requested steps for which the recorder waits for optimizers that have not stepped yet, for the
capture of a CUDA graph, before which steps run on a stream of their own, and for the largest of several images."""
_ENOUGH_EVALUATIONS, _ENOUGH_OF_EXAMPLE = 4, 32
"""Calls of models after which a script that does not train is known well enough, and an example, which shows methods
of the model that call its parts before it calls the whole.
"""
_SHOW_MODELS = (
    *("torch.utils.tensorboard", "tensorboardX", "torchviz", "torchview", "hiddenlayer"),
    *("thop", "ptflops", "fvcore", "torchinfo", "torchsummary", "torchstat", "calflops", "deepspeed.profiling"),
)
"""Packages that call a model once to draw its graph or to count its operations."""
_COLLECTED_EVERY = 16
"""Number of steps, or evaluation calls, between two collections of reference cycles.

Python collects when 700 objects more were made than freed (`gc.get_threshold`), which assumes about 40 objects per
step.
"""
_IS_FOLLOWED = "_memlint_is_followed"
"""Attribute of a `forward` whose calls by itself are seen."""
_KEPT_EVERY = 2.0
"""Seconds of steps that may be lost if nothing reaches a script any more."""


class ScriptRecorder(Recorder):
    """A Recorder of a script; it calls `end` during the script when it has seen enough."""

    _num_inferred = 0
    """Parameters of the model of which `inference` is."""

    num_items = 0
    """Number of entries of the list that is the first argument of the first training call; zero if it is no list."""
    rows: frozenset[int] = frozenset()
    """First sizes of all inputs of the first training call."""
    first_after_batch: int | None = None
    """The number of the first storage after a loader gave a batch, if one did."""
    _num_compilations = 0
    """Compilations before the step. Those within it leave tensors in cycles, as `without_collector` says."""

    _num_scales = 0
    """The number of training calls of a script that only builds."""
    _has_other_scales = False
    """True if the loop of that call goes on to other sizes of the same images."""
    _has_larger_images = False
    """True if the running step was given images that are larger than any before."""

    def __init__(self, ledger: Ledger, workspaces: Workspaces, script: Script, end: Callable[[Ending], None]) -> None:
        super().__init__(ledger, workspaces)
        self.script = script
        self.end = end
        self.keep: Callable[[], None] = lambda: None
        """Called now and then at the end of a step, to save everything seen until then."""
        self.lead: Callable[[], None] = lambda: None
        """Called before the first step: another process of the script may be the one that trains."""
        self.compiles_models = False
        """True if every model that the script calls is compiled, whether it asks for that or not."""
        self.num_steps = 0
        """Number of whole steps taken."""
        self.seconds: list[float] = []
        """Duration of each whole step."""
        self.batch: int | None = None
        """Leading size of the first input of the first training call, summed over the microbatches of a pipeline."""
        self.shapes: dict[tuple[int, ...], None] = {}
        """Shapes of the first inputs of training calls, in order, each once."""
        self.precision = ""
        """Precision of that call, as a Workload's dtype."""
        self.inference: tuple[int | None, str] = None, ""
        """The same two of a script that trains nothing: of the first call of its largest model."""
        self.optimizer = ""
        """Class of the leading optimizer."""
        self.made: weakref.WeakSet[Any] = weakref.WeakSet()
        """Existing optimizers, whether they step or not."""
        self.construction = Construction(script)
        self.has_called = False
        """True once a model was called on the GPU."""
        self.num_called_on_host = 0
        """True once a model was called elsewhere."""
        self.has_evaluated = self.has_generated = False
        """True once a call of a model without gradients, or a generation, was over."""
        self.reruns = Reruns()
        self.evaluations = Evaluations(self, repeat=script.repeat)
        self.own_generations = OwnGenerations(self, self._called_for_token)
        self._roots: dict[str, weakref.ref[torch.nn.Module]] = {}
        self._leader: weakref.ref[Any] | None = None
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers other than the leader that have stepped since it did."""
        self._followers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers that did so after an earlier step of the leader."""
        self._began = 0.0
        self._is_between = True
        """True between the end of a step and the beginning of the next."""
        self._had_backward = False
        self._was_written = False
        self._is_full = False
        self._kept = 0.0
        self._postponed: list[Callable[[FrameType], object]] = []
        self.pace = Pace(math.inf, script, end, self.num_modules)

    def progress(self) -> tuple[int, bool]:
        """Return the number of whole steps taken, and True if there was a backward since."""
        return self.num_steps, self._had_backward

    @functools.cached_property
    def shown(self) -> ShownErrors:
        """The errors that the script shows."""
        return ShownErrors(lambda: self.num_steps > 0, lambda: self.has_called)

    def note_batch(self) -> None:
        """Note that a loader gives a batch."""
        if self.first_after_batch is None:
            self.first_after_batch = len(self.ledger.births)

    def num_modules(self, kind: str) -> int:
        """Return the number of modules of a class in the models that were called."""
        return sum(name == kind for _, name in self.modules)

    def _called_for_token(self, number: int) -> None:
        self.pace.called_for_token(number)  # a script is given its pace later

    # --- kernels

    def started(self, kernel: Kernel) -> None:
        """A kernel begins."""
        if not self.calls:
            gc.freeze()  # what was imported before any tensor was made need not be searched after every step
        if self._is_between and graph_task() != -1:
            self._begin()
        if self.attribution.modules and graph_task() == -1:
            self.pace.kernel(len(self.calls))
        super().started(kernel)
        phase = self.calls[-1][1]
        if phase is Phase.BACKWARD:
            self._had_backward = True
        elif self.step == 0 and not self.precision.endswith("amp") and torch.is_autocast_enabled("cuda"):
            self.precision = _of_autocast() or self.precision

    def finished(self, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        """The kernel begun last ends."""
        kernel = self.calls[self.open_calls[-1]][0]
        super().finished(inputs, outputs)
        if not self._roots and torch.is_grad_enabled() and graph_task() == -1:
            self._note_leaves(inputs)
        if kernel.written and outputs:
            self.evaluations.note_write(outputs)
            if self._had_backward and self._leader is None and not (self._was_written or self.attribution.optimizing):
                self._note_update(outputs)

    def postponing(self, handler: Handler) -> Handler:
        """Wrap a signal handler so that it waits for PyTorch's functions to end instead of interrupting them.

        Within such a function C++ calls Python to get the device, and an exception there is not allowed.
        """

        @functools.wraps(handler)
        def handle(number: int, frame: FrameType | None) -> None:
            self._postponed.append(functools.partial(handler, number))  # not with `frame`: it holds its tensors
            if not (self.open_calls or graph_task() != -1 or _is_ours(frame) or is_within_library("libtorch")):
                self._handle_signals()

        return handle

    def _handle_signals(self) -> None:
        while self._postponed:
            self._postponed.pop(0)(sys._getframe(1))

    def _note_leaves(self, inputs: list[torch.Tensor]) -> None:
        """Take the leaves that a forward begins with for parameters if there is no model."""
        trained = [t for t in inputs if t.requires_grad]
        if trained and self._was_written and self._leader is None:
            self._step_over()
        self.roles.note_parameters([t for t in trained if not is_view(t) and t.is_leaf])

    def _note_update(self, written: list[torch.Tensor]) -> None:
        """Take a write to parameters after a backward, outside of it, for a step by hand."""
        if graph_task() != -1:
            return
        categories = self.roles.categories
        self._was_written = any(
            is_virtual(t) and t.layout is torch.strided and categories.get(entry_of(t).number) is Category.PARAMETER
            for t in written
        )
        if self._was_written:
            self.roles.note_gradients()

    # --- models

    def outermost_call(self, call: Function, module: torch.nn.Module, args: Arguments, kwargs: Keywords) -> Any:
        """Handle a module call while no other runs: a part of a step, or an evaluation."""
        is_of_optimizer = self.attribution.optimizing and not torch.is_grad_enabled()
        if graph_task() != -1 or is_of_optimizer or _is_shown(sys._getframe(2)):
            return super().outermost_call(call, module, args, kwargs)
        self._handle_signals()
        if torch.is_grad_enabled():
            self.own_generations.close()
        owner, running = _calling_forward(sys._getframe(2), module)
        if owner is not None and running is not None:
            self._follow_forward(owner, running)
        is_counted = self._note_call(module, args, kwargs, owner)
        if is_counted and self.compiles_models and getattr(module, CALL_COMPILED) is None:
            torch.compile(module)
        is_alone = self.attribution.section is Phase.EVALUATION or self.own_generations.is_open
        if not is_counted or not is_alone or torch.is_grad_enabled():
            output = super().outermost_call(call, module, args, kwargs)
            if is_counted and forms.arrays:  # the call itself says which sides they are to have
                self._show(module)
            return output
        self.evaluations.num_calls += 1
        if self.evaluations.num_calls % _COLLECTED_EVERY == 0:
            gc.collect()
        output = self.evaluations.answer(self._evaluating_call, call, module, args, kwargs)
        self.has_evaluated = True
        return output

    def _follow_forward(self, owner: torch.nn.Module, frame: FrameType) -> None:
        """Take calls of a model's `forward` by itself for calls of the model, from the second on.

        The first was seen when it called a part of the model, in `frame`.
        """
        kind = type(owner)
        forward = kind.forward
        if hasattr(forward, _IS_FOLLOWED):
            return
        names, variables = frame.f_code.co_varnames[1 : frame.f_code.co_argcount], variables_of(frame)
        values = tuple(variables.get(name) for name in names)
        self.construction.note_call(owner, values, {})
        if not torch.is_grad_enabled():
            self.own_generations.note_first(owner, values)

        @functools.wraps(forward)
        def called(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.attribution.modules:
                return forward(module, *args, **kwargs)
            return self.outermost_call(forward, module, args, kwargs)

        setattr(called, _IS_FOLLOWED, True)
        kind.forward = called

    def _evaluating_call(self, call: Function, module: torch.nn.Module, args: Arguments, kwargs: Keywords) -> Any:
        """Run a call without gradients, which may be one of a generation."""
        with self.own_generations.call(module, args, kwargs):
            self.has_generated = self.has_generated or self.rounds is not None
            return super().outermost_call(call, module, args, kwargs)

    def _note_call(
        self, module: torch.nn.Module, args: Arguments, kwargs: Keywords, owner: torch.nn.Module | None = None
    ) -> bool:
        """Begin the step or evaluation that this call of a model on the GPU belongs to; False if it prepares data.

        Returns before the model runs: it may replace its parameters, which are looked at here. `owner` is the model
        whose `forward` was called by itself and has called the module.
        """
        if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]  # for its operations, which something counts
            return False
        parameters = list(module.parameters())
        if self._leader is None and (self._was_written or self._is_functional(parameters)):
            self._step_over()
        if state.current.cuda and not any(map(_is_on_gpu, (*tree_leaves((args, kwargs)), *parameters))):
            self.num_called_on_host += bool(parameters) and not is_building()
            self.construction.note_call_on_host(module, args, kwargs)
            if self.script.code and self.script.builds_only and self.num_called_on_host >= _ENOUGH_OF_EXAMPLE:
                self.end(Ending("it called its model", goes_on=True))
            return False
        self.has_called = True
        self.construction.note_call(module, args, kwargs)
        has_gradients = any(parameter.requires_grad for parameter in parameters)
        if not forms.arrays:
            self._show(module)
        is_first = self._meet(module if owner is None else owner)
        if is_first and self.step < 0 and not torch.is_grad_enabled():
            self._note_inference((args, kwargs), parameters)
        if torch.is_grad_enabled():
            if has_gradients:
                self._begin((args, kwargs), parameters)
            self._enter(Phase.FORWARD)
        elif has_gradients or self.step < 0:
            self._enter(Phase.EVALUATION)
        return True

    def _show(self, module: torch.nn.Module) -> None:
        """End a script that only builds, if everything that a step needs is built."""
        is_training = torch.is_grad_enabled() and any(each.requires_grad for each in module.parameters())
        if self.script.builds_only and self._shows_all(is_training=is_training):
            self._note_shown()

    def _shows_all(self, *, is_training: bool) -> bool:
        """Return True if everything that a step needs is built when a model is called."""
        enough = _ENOUGH_OF_EXAMPLE if self.script.code else _ENOUGH_EVALUATIONS
        return len(self.made) > 0 if is_training else self.evaluations.num_calls >= enough

    def _note_shown(self) -> None:
        """End a script that only builds, unless the loop that calls its model goes on to other sizes of its images."""
        self._num_scales += 1
        self._has_other_scales = self._num_scales < num_scales(next(user_frames(), None))
        if not self._has_other_scales:
            self.end(Ending("it called its model", goes_on=True))

    def _is_functional(self, parameters: Iterable[torch.Tensor]) -> bool:
        """Return True if a backward left every `grad` empty, as torch.func.grad does: new parameters replace these."""
        return self._had_backward and not self.made and all(parameter.grad is None for parameter in parameters)

    def _enter(self, phase: Phase) -> None:
        if self.attribution.section not in (Phase.PREFILL, Phase.DECODE, Phase.SAVING):
            self.attribution.section = phase

    def _begin(self, arguments: Any = (), parameters: Iterable[torch.Tensor] = ()) -> None:
        """Begin a step with its first training call, or with the first backward if nothing was called."""
        leaves = [_of_rank(each) for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
        leaves = [each for each in leaves if is_virtual(each) and each.layout is torch.strided]
        inputs = [each for each in leaves if not each.requires_grad and not entry_of(each).host]
        self.roles.note_inputs(inputs)
        if self._is_between:
            self._is_between = False
            if self.step < 0:
                simulated().replayed = self.replayed
                self.lead()
                roots = (module for root in self._roots.values() if (module := root()) is not None)
                requests.load_for(roots, is_used=self.compiles_models)
                self.reruns.wait_here(self._program)
                self._kept = time.perf_counter()
            self._began, self._num_compilations = time.perf_counter(), Compilation.number
            self.begin_step()
        # Later stages of a pipeline get inputs that need a gradient.
        shape = next((tuple(each.shape) for each in (*inputs, *leaves) if each.dim()), ())
        self._has_larger_images = self._has_larger_images or self._are_larger_images(shape)
        self.shapes.setdefault(shape)
        if not self.precision:
            parameter = next((p for p in parameters if p.is_floating_point() or p.is_complex()), None)
            dtype = str(parameter.dtype).removeprefix("torch.") if parameter is not None else "float32"
            self.precision = _of_autocast() or dtype  # compiled code switches autocast off while it runs
            self.batch = shape[0] * simulated().microbatches if shape else None
            first = next(iter(arguments[0] if arguments else ()), None)
            items = first if isinstance(first, list | tuple) else ()
            self.num_items = len(items)
            if items and all(map(_is_picture, items)):
                self.batch = len(items)
            self.rows = frozenset((*(each.shape[0] for each in inputs if each.dim()), *_numbers_of_graphs(inputs)))

    def _program(self) -> ScriptProgram:
        models = {name: module for name, root in self._roots.items() if (module := root()) is not None}
        return ScriptProgram(models, list(self.made))

    def _note_inference(self, arguments: Any, parameters: Iterable[torch.Tensor]) -> None:
        """Take batch and precision from the first call of the largest model, as long as nothing is trained."""
        floats = [each for each in parameters if each.is_floating_point()]
        num = sum(each.numel() for each in floats)
        if num < self._num_inferred:
            return
        self._num_inferred = num
        leaves = [_of_rank(each) for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
        shape = next((tuple(each.shape) for each in leaves if each.dim() > 1), ())
        dtype = str(floats[0].dtype).removeprefix("torch.") if floats else "float32"
        self.inference = shape[0] if shape else None, _of_autocast() or dtype

    def _meet(self, module: torch.nn.Module) -> bool:
        """Remember the names of a model and of its parts, and return True, if it is called for the first time."""
        if any(root() is module for root in self._roots.values()):
            return False
        name = _variable_name(module) or (not self.made and _attribute_name(module)) or type(module).__name__
        while name in self._roots:
            name += "_"
        self._roots[name] = weakref.ref(module)
        self.note_modules(module, name)
        self.roles.note_model(module, name)
        return True

    def note_uncalled(self) -> None:
        """Note the parameters of models not called yet: those of optimizers, and without any model all of them."""
        for optimizer in self.made:
            self.roles.note_optimizer(optimizer)
        if not self._roots:
            self.roles.note_parameters(each for each in gc.get_objects() if issubclass(type(each), torch.nn.Parameter))

    # --- optimizers

    def before_optimizer(
        self, optimizer: torch.optim.Optimizer, args: Arguments, kwargs: Keywords
    ) -> tuple[Arguments, Keywords] | None:
        """Handle the beginning of an optimizer's step; forward and backward may be inside, in a closure."""
        if self._is_full and self._leader is not None and self._leader() is optimizer:
            self._end()
        if graph_task() == -1:
            self._handle_signals()
        super().before_optimizer(optimizer, args, kwargs)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None

        def inner(*inner_args: Any, **inner_kwargs: Any) -> Any:
            self.attribution.optimizing = False
            try:
                return closure(*inner_args, **inner_kwargs)
            finally:
                super(ScriptRecorder, self).before_optimizer(optimizer, args, kwargs)

        return ((args[0], inner, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": inner})

    def after_optimizer(self, optimizer: torch.optim.Optimizer, args: Arguments, kwargs: Keywords) -> None:
        """Handle the end of an optimizer's step."""
        super().after_optimizer(optimizer, args, kwargs)
        self.roles.note_optimizer(optimizer)
        weights = (each for group in optimizer.param_groups for each in group["params"])
        if self._is_between and all(each.grad is None for each in weights):
            return  # it changes nothing, as one for a scheduler that wants a first step
        if self._leads(optimizer):
            self._followers |= self._stepped
            self._stepped.clear()
            self._step_over()
        else:
            self._stepped.add(optimizer)
            if self._is_full and self._followers <= self._stepped:
                self._end()

    def _leads(self, optimizer: torch.optim.Optimizer) -> bool:
        """Return True for the leading optimizer, the first that steps; another one may lead when the leader is gone."""
        leader = self._leader and self._leader()
        if leader is not None and leader is not optimizer and optimizer not in self._stepped | self._followers:
            del leader
            gc.collect()
            assert self._leader is not None, "it was there"
            leader = self._leader()
        if leader is None:
            self._leader, self.optimizer = weakref.ref(optimizer), type(optimizer).__name__
        return leader is None or leader is optimizer

    def _step_over(self) -> None:
        self.num_steps += 1
        self.seconds.append(time.perf_counter() - self._began)
        self._is_between, self._had_backward, self._was_written = True, False, False
        has_larger_images, self._has_larger_images = self._has_larger_images, False
        if self.num_steps >= self.script.steps and not self.script.whole:
            more_images = has_larger_images or self._has_other_scales
            waits = self._lacks_optimizers or state.current.ledger.stream != 0 or more_images
            self._is_full = not waits or self.num_steps >= _MOST_STEPS_MORE * self.script.steps
            if self._is_full and not self._followers:
                self._end()
        if self.num_steps % _COLLECTED_EVERY == 0 or Compilation.number > self._num_compilations:
            gc.collect()
        if time.perf_counter() - self._kept > _KEPT_EVERY:
            self.keep()
            self._kept = time.perf_counter()

    def replayed(self) -> None:
        """A CUDA graph is replayed, which takes no memory: no step after it takes other memory."""
        if self.num_steps >= self.script.steps and not (self.script.whole or self._lacks_optimizers):
            self._end()

    def _are_larger_images(self, shape: tuple[int, ...]) -> bool:
        """Return True for images that are larger than any before, as a training on several scales goes through them."""
        sizes = [math.prod(each) for each in self.shapes if len(each) == len(shape)]
        return len(shape) > _SIDES and bool(sizes) and math.prod(shape) > max(sizes)

    @property
    def _lacks_optimizers(self) -> bool:
        """True if some optimizer has not stepped yet."""
        return len(self.made) > 1 + len(self._followers)

    def _end(self) -> None:
        were = "step was" if self.num_steps == 1 else "steps were"
        self.end(Ending(f"{self.num_steps} {were} taken", goes_on=True))


def _of_autocast() -> str:
    """Return the precision under autocast to 16 bits; empty without that."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return {torch.bfloat16: "bf16-amp", torch.float16: "fp16-amp"}.get(dtype, "")  # type: ignore[arg-type]


def _is_shown(frame: FrameType | None) -> bool:
    """Return True if a package that draws or counts a model calls it, with an input that stands for others."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        if str(frame.f_globals.get("__name__")).startswith(_SHOW_MODELS):
            return True
        frame = frame.f_back
    return False


def _calling_forward(
    frame: FrameType | None, module: torch.nn.Module
) -> tuple[torch.nn.Module, FrameType] | tuple[None, None]:
    """Return the other module whose `forward` calls the outermost module, itself or by methods of modules.

    And the frame in which that `forward` runs.
    """
    while frame is not None and frame.f_code.co_argcount:
        owner = variables_of(frame).get(frame.f_code.co_varnames[0])
        if not isinstance(owner, torch.nn.Module):
            break
        if frame.f_code.co_name == "forward":
            return (None, None) if owner is module else (owner, frame)
        frame = frame.f_back
    return None, None


def _is_on_gpu(leaf: object) -> bool:
    if not isinstance(leaf, torch.Tensor):
        return False
    tensor = _of_rank(leaf)
    return is_virtual(tensor) and (tensor.layout is not torch.strided or not entry_of(tensor).host)


def _of_rank(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor itself, or this rank's part of a DTensor."""
    return unwrapped(part_of_rank(tensor, tensor))


def _is_picture(value: object) -> bool:
    """Return True for an image as detectors take a list of them: the first of its three sides are channels."""
    return isinstance(value, torch.Tensor) and value.dim() == _SIDES and value.shape[0] in _CHANNELS


_SIDES, _CHANNELS = 3, (1, 3, 4)


def _numbers_of_graphs(inputs: Sequence[torch.Tensor]) -> Iterator[int]:
    """Yield how many graphs a vector numbers that has the graph of each row, as torch_geometric batches them."""
    for each in inputs:
        if each.dim() == 1 and each.dtype is torch.int64 and each.shape[0] == inputs[0].shape[0] > 0:
            known = content(each)
            if known is not None:
                yield int(known[-1]) + 1


def _is_ours(frame: FrameType | None) -> bool:
    """Return True if memlint's code, or code that it calls, is running."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        if is_memlint(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False


def _variable_name(module: torch.nn.Module) -> str:
    """Return the closest caller's variable name of a model; empty if no variable names it."""
    for frame in _callers():
        for variables in (variables_of(frame), frame.f_globals):
            for name, value in list(variables.items()):
                if value is module and name not in _NO_NAMES and not name.startswith("_"):
                    return name
    return ""


def _attribute_name(module: torch.nn.Module) -> str:
    """Return the name that the closest caller's object has for a part of it: `unet`, or `vae.decoder` of its own part.

    Empty if it has none.
    """
    path = ""
    for frame in _callers():
        owner = variables_of(frame).get("self")
        children = dict(owner.named_children()) if isinstance(owner, torch.nn.Module) else {}
        parts = {**getattr(owner, "__dict__", {}), **children}
        name = next((name for name, part in parts.items() if part is module and not name.startswith("_")), "")
        if name:
            path = f"{name}.{path}" if path else name
            if not isinstance(owner, torch.nn.Module):
                break
            module = owner
    return path


def _callers() -> Iterator[FrameType]:
    """Yield the frames that have led to the call of a model."""
    frame: FrameType | None = sys._getframe(5)
    while frame is not None:
        yield frame
        frame = frame.f_back
