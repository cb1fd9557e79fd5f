"""Observer of what a script builds: modules, optimizers, loaders, autocast, losses.

It notes the arguments of constructors when these are called, and holds what was built until a model runs on the GPU for
the first time: a script that fails before that may have left nothing else that refers to its models. From then on every
object lives as long as without memlint.
"""

from __future__ import annotations

import ast
import gc
import inspect
import linecache
import math
import os
import reprlib
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler
from torch.utils.data.distributed import DistributedSampler

from memlint.accelerator.private import Loss, autocast_is_enabled
from memlint.base.ownership import is_memlint, is_users
from memlint.base.patching import in_place_of
from memlint.base.signatures import signature_of
from memlint.base.variables import variables_of
from memlint.memory.records import Frame
from memlint.script.data_sides import image_sides
from memlint.script.fake_rows import texts_of_script
from memlint.script.frozen_parts import frozen_parts
from memlint.script.loader_calls import calls_with
from memlint.script.loop_text import LoopText
from memlint.script.settings_by_name import (
    ACCUMULATION,
    BATCH,
    GLOBAL_BATCH,
    LENGTH,
    MICROBATCH,
    Value,
    batch_of_frames,
    lengths_in,
    named_autocast,
    named_optimizer,
    named_setting,
    sizes_of,
    values_in,
    with_typed,
)
from memlint.source.training_loop import OPTIMIZERS
from memlint.targets.built import Built, BuiltClass, BuiltInput, BuiltModel, BuiltOptimizer, Setting
from memlint.targets.workload import CONSTANT
from memlint.workloads.construction.recorded_arguments import dump_arguments
from memlint.workloads.model_sizes import IMAGE_SIZES
from memlint.workloads.notes import fake_data
from memlint.workloads.placeholders.absent_packages import lacking

if TYPE_CHECKING:
    from memlint.base.patching import Patch
    from memlint.source.fed_calls import FedCall
    from memlint.targets.script import Ending, Happened, Script

_MOST_OF_A_CLASS = 4
"""Constructor calls of one class whose arguments are noted: a model and its copies, or the first of many layers."""
_MOST_MODELS = 16
_WRAPPED = ("module", "_orig_mod", "inner")
"""Names under which PyTorch's wrappers (DistributedDataParallel, torch.compile) hold the model that they wrap."""
_PARALLEL = nn.DataParallel, nn.parallel.DistributedDataParallel
PARAMETERS = "the parameters"
"""The source of a dtype that nothing but the model itself says."""
_NO_MODELS = nn.ParameterList, nn.ParameterDict, nn.PReLU, torch.jit.ScriptModule
"""Modules with parameters that are no model by themselves; a scripted one is a copy, of which nothing is trained."""
_CONSTRUCTS = "__init__"
_TORCH = "torch."


_Inputs = tuple[weakref.ref[nn.Module], bool, tuple[BuiltInput, ...], Frame | None]
"""A module, its mode, and the tensors of its first call with the user's line of it."""


_LONGEST_PLAIN = 40
"""Characters of a text that is a setting of a call, and no data."""


class _Call(NamedTuple):
    """A call of a constructor."""

    module: weakref.ref[nn.Module]
    path: str
    frame: Frame | None
    arguments: bytes | None
    shown: str
    sizes: Mapping[str, int] = {}
    """The whole numbers among the arguments, by name."""


class _Loader(NamedTuple):
    batch: int
    frame: Frame | None
    text: str
    is_for_training: bool
    has_all: bool = False
    """True if its batch has all items of its data set."""


class Construction:
    """Everything that a script has built so far."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._calls: dict[int, _Call] = {}
        """Constructor calls by the module's id."""
        self._bases: dict[int, dict[type, _Call]] = {}
        """Calls of the constructors of the user's classes that a module's class derives from, by the module's id."""
        self._of_class: dict[type, int] = {}
        """Number of noted calls per class; cleared with everything that is held."""
        self._files: dict[tuple[str, str], str] = {}
        self._made: list[weakref.ref[nn.Module]] = []
        """All modules, those of torch.nn too; copies are not among them."""
        self._held: list[object] | None = []
        """None once a model has run on the GPU."""
        self._inputs: dict[int, _Inputs] = {}
        self._host_inputs: dict[int, _Inputs] = {}
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._loaders: list[_Loader] = []
        self._lengths: list[int] = []
        """Items in each training data set that has some."""
        self._of_training: list[weakref.ref[Any]] = []
        """The loaders of training data that exist."""
        self.on_loader: Callable[[int, int], None] = lambda length, batch: None  # noqa: ARG005
        """Called with the length of a data set and the size of its batches where a loader of training data is made."""
        self._sides: dict[str, int] = {}
        """Height and width of the images of the first data set that is for training, if it says them."""
        self._autocast: Setting | None = None
        self._scaler = False
        self._unfinished: set[int] = set()
        """Ids of modules whose constructor, or the function that made them, did not get to its end."""
        self.values: list[Value] = []
        """Plain values in the script's variables, once it is over."""
        self.frames: list[FrameType] = []
        """Its frames then, innermost first; those that it called too, where an error has left them."""
        self.namespaces: list[MutableMapping[str, Any]] = []
        """The variables of its functions that were continued after an error."""
        self._is_over = False
        self.is_without_gradients = False
        """True if the script had switched gradients off where it ended."""

    # --- while the script runs

    def patches(self) -> list[Patch]:
        """Return patches that let this observer see constructors."""
        init, init_loader, init_batches = nn.Module.__init__, DataLoader.__init__, BatchSampler.__init__
        init_autocast, init_scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

        @in_place_of(init)
        def making(module: nn.Module, /, *args: Any, **kwargs: Any) -> None:
            if id(module) not in self._calls or self._calls[id(module)].module() is not module:
                self._note_module(module, sys._getframe(1))
            init(module, *args, **kwargs)

        @in_place_of(init_loader)
        def loading(loader: Any, /, *args: Any, **kwargs: Any) -> None:
            with suppress(TypeError):
                taken = inspect.signature(init_loader).bind(loader, *args, **kwargs)
                taken.apply_defaults()
                self._note_loader(loader, taken.arguments)
            init_loader(loader, *args, **kwargs)

        @in_place_of(init_batches)
        def batching(batches: Any, /, sampler: Any, batch_size: Any, *args: Any, **kwargs: Any) -> None:
            self._note_batch(batch_size, "BatchSampler", is_for_training=_is_random(sampler))
            init_batches(batches, sampler, batch_size, *args, **kwargs)

        @in_place_of(init_autocast)
        def casting(autocast: Any, /, device_type: str, *args: Any, **kwargs: Any) -> None:
            init_autocast(autocast, device_type, *args, **kwargs)
            if self._autocast is None and autocast_is_enabled(autocast) and str(device_type).startswith("cuda"):
                name = {torch.bfloat16: "bf16-amp", torch.float16: "fp16-amp"}.get(autocast.fast_dtype)
                self._autocast = Setting(name, "autocast", _caller(sys._getframe(1))) if name else None

        @in_place_of(init_scaler)
        def scaling(scaler: Any, /, *args: Any, **kwargs: Any) -> None:
            init_scaler(scaler, *args, **kwargs)
            self._scaler = self._scaler or scaler.is_enabled()

        return [
            (nn.Module, _CONSTRUCTS, making),
            (DataLoader, _CONSTRUCTS, loading),
            (BatchSampler, _CONSTRUCTS, batching),
            (torch.autocast, _CONSTRUCTS, casting),
            (torch.amp.GradScaler, _CONSTRUCTS, scaling),
        ]

    def note_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Note an optimizer that begins to be made."""
        self._optimizers.append(weakref.ref(optimizer))
        self._hold(optimizer)

    @property
    def has_made_optimizer(self) -> bool:
        """True once the script has made an optimizer, which may be gone with the function that made it."""
        return bool(self._optimizers)

    def note_call(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a call of a model on the GPU; from the script's first one on, nothing is held any more."""
        if self._is_over:
            return
        known = self._inputs.get(id(module))
        is_first = known is None or known[0]() is not module
        if is_first and _is_being_built(module):
            return
        self._held = None
        self._of_class.clear()
        is_larger = known is not None and known[1] and module.training and _are_larger_images(args, known[2])
        if is_first or is_larger:
            self._inputs[id(module)] = _first_inputs(module, args, kwargs)

    def note_call_on_host(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note a call of a model that is not on the GPU, such as one that counts its operations."""
        if not self._is_over and id(module) not in self._host_inputs and not _is_being_built(module):
            self._host_inputs[id(module)] = _first_inputs(module, args, kwargs)

    def _hold(self, value: object) -> None:
        if self._held is not None:
            self._held.append(value)

    def _note_module(self, module: nn.Module, caller: FrameType | None) -> None:
        kind = type(module)
        self._hold(module)
        self._made.append(weakref.ref(module))
        if kind.__module__.startswith(_TORCH) or self._of_class.get(kind, 0) >= _MOST_OF_A_CLASS:
            return
        self._of_class[kind] = self._of_class.get(kind, 0) + 1
        constructor, outside = _constructor(module, caller)
        self._calls[id(module)] = self._call_by(constructor, outside, module, kind)
        self._bases[id(module)] = dict(self._calls_of_bases(module, caller))

    def _call_by(
        self, constructor: FrameType | None, outside: FrameType | None, module: nn.Module, kind: type
    ) -> _Call:
        """Return the call of a constructor of `kind` that runs for `module`, as `outside` calls it."""
        arguments = _arguments(constructor, kind) if constructor is not None else None
        path = self._file(kind)
        if arguments is None:
            return _Call(weakref.ref(module), path, _caller(outside), None, kind.__name__)
        shown = f"{kind.__name__}({_shown(*arguments)})"
        sizes = sizes_of(values_in((), [arguments[1]]))
        return _Call(weakref.ref(module), path, _caller(outside), dump_arguments(*arguments), shown, sizes)

    def _calls_of_bases(self, module: nn.Module, frame: FrameType | None) -> Iterator[tuple[type, _Call]]:
        """Yield the running constructors of the user's classes that the class of `module` derives from."""
        own = (base for base in type(module).__mro__[1:] if is_users(self._file(base) or "<"))
        by_code = {getattr(vars(base).get(_CONSTRUCTS), "__code__", None): base for base in own}
        while by_code and frame is not None and _first_argument(frame) is module:
            if (base := by_code.get(frame.f_code)) is not None:
                yield base, self._call_by(frame, frame.f_back, module, base)
            frame = frame.f_back

    def _file(self, kind: type) -> str:
        key = kind.__module__, kind.__qualname__
        if key not in self._files:
            file = getattr(sys.modules.get(kind.__module__), "__file__", None)
            if kind.__module__ == "__main__" and self._script.path:
                file = self._script.path  # its module is put away when it ends, and memlint may run it further
            self._files[key] = os.path.realpath(file) if file else ""
        return self._files[key]

    def _note_loader(self, loader: object, taken: Mapping[str, Any]) -> None:
        batches, sampler = taken["batch_sampler"], taken["sampler"]
        size = taken["batch_size"] if batches is None else getattr(batches, "batch_size", None)
        chosen = getattr(batches, "sampler", None) if batches is not None else sampler
        is_for_training = bool(taken["shuffle"]) or _is_random(chosen)
        length = 0
        with suppress(Exception):  # of a data set of the script's
            length = len(taken["dataset"])
        self._note_batch(size, "DataLoader", is_for_training=is_for_training, has_all=length == size)
        if is_for_training and isinstance(size, int):
            self._of_training.append(weakref.ref(loader))
            self.on_loader(length, size)
            self._lengths += [length] if length else []
            if not self._sides and (sides := image_sides(taken["dataset"])):
                (height, width), (low, _) = sides[0], sides[-1]
                square = {"image_size": height} | ({"low_image_size": low} if low < height else {})
                self._sides = square if height == width else {"image_height": height, "image_width": width}

    def _note_batch(self, size: object, kind: str, *, is_for_training: bool, has_all: bool = False) -> None:
        if isinstance(size, int) and size >= 1:
            frame = _caller(sys._getframe(2))
            self._loaders.append(_Loader(size, frame, f"{kind}(batch_size={size})", is_for_training, has_all))

    # --- when the script is over

    def mark(self) -> int:
        """Return the number of modules that were made so far."""
        return len(self._made)

    def leave(self, frames: Sequence[FrameType], since: int) -> None:
        """Note that these frames were left for good: modules that they made after the mark `since` do not count."""
        self._unfinished |= {id(_first_argument(each)) for each in frames if each.f_code.co_name == _CONSTRUCTS}
        values = [id(value) for frame in frames for value in variables_of(frame).values()]
        made = {id(module) for each in self._made[since:] if (module := each()) is not None}
        self._unfinished |= made.intersection(values)

    def spoil(self, modules: Iterable[nn.Module]) -> None:
        """Note modules that would have been changed by something that failed: they do not count."""
        self._unfinished |= set(map(id, modules))

    def note_end(
        self,
        error: BaseException | None,
        namespaces: Iterable[MutableMapping[str, Any]] = (),
        continued: Collection[FrameType] = (),
    ) -> None:
        """Note the variables of a script while they exist: those of the frames that `error` has left, or the running.

        `namespaces` are the global variables of a script that ran to its end, or those of functions that were
        `continued` after the error. Only the first call counts.
        """
        if self._is_over:
            return
        self._is_over = True
        self.is_without_gradients = not torch.is_grad_enabled()
        frames: list[FrameType] = []
        trace = error.__traceback__ if error is not None else None
        while trace is not None:
            frames.append(trace.tb_frame)
            trace = trace.tb_next
        frames.reverse()
        if error is None:
            frames += _running()
        constructors = (each for each in frames if each.f_code.co_name == _CONSTRUCTS)
        self._unfinished |= {id(_first_argument(each)) for each in constructors if each not in continued}
        own = [each for each in frames if is_users(each.f_code.co_filename)]
        self.frames, self.namespaces = frames if error is not None else own, list(namespaces)
        self.values = with_typed(self._script.arguments, values_in(own, self.namespaces))
        if self._held is not None or error is not None:
            self._held = [*(self._held or ()), *self._modules()]

    def note_running(self) -> None:
        """Note the values of a script that is running, which it may change yet."""
        own = [each for each in _running() if is_users(each.f_code.co_filename)]
        self.values = with_typed(self._script.arguments, values_in(own, self.namespaces))

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers that exist and have parameters; of several for the same ones that which a setting names."""
        made = (reference() for reference in self._optimizers)
        found = [each for each in made if each is not None and getattr(each, "param_groups", None)]
        named = named_optimizer(self.values)
        kind = "" if named is None else str(named.value).removesuffix("-momentum")
        of_kind = [each for each in found if OPTIMIZERS.get(type(each).__name__) == kind]
        chosen = {id(parameter) for each in of_kind for parameter in _parameters_of(each)}
        others = [each for each in found if not any(id(parameter) in chosen for parameter in _parameters_of(each))]
        return [each for each in found if each in of_kind or each in others]

    def stated_optimizer(self, loop: LoopText) -> Setting | None:
        """Return memlint's name of the optimizer that a setting of the script names, or else the text of its loop."""
        return named_optimizer(self.values) or loop.setting("optimizer")

    def roots(self) -> list[nn.Module]:
        """Return the modules with parameters that are no part of others: trained ones first, then the largest.

        Those that no optimizer has come in the order of what could be trained.
        """
        modules = self._modules()
        inner = {id(child) for module in modules for child in _children(module)}
        trained = {id(parameter) for optimizer in self.optimizers for parameter in _parameters_of(optimizer)}
        sizes = [(_num_parameters(module), module) for module in modules if id(module) not in inner]
        sizes = [each for each in sizes if each[0] and not isinstance(each[1], _NO_MODELS)]
        own = [module for _, module in sizes if is_users(self._file(type(unwrapped(module))) or "<")]
        of_own = {id(parameter) for module in own for parameter in module.parameters()}
        whole = {id(each) for _, module in sizes if _is_in(trained, module) for each in module.parameters()}

        def order(each: tuple[int, nn.Module]) -> tuple[bool, bool, bool, int]:
            num_parameters, module = each
            is_trained, is_own = _has_any(module, trained), any(module is other for other in own)
            is_leftover = not is_own and _has_any(module, of_own)  # the user's model has taken layers out of it
            is_leftover |= _has_any(module, whole) and not _is_in(trained, module)  # or one with an optimizer has
            return not is_trained, is_leftover, not _is_trainable(module), -num_parameters

        return [module for _, module in sorted(sizes, key=order)]

    def finished_roots(self) -> list[nn.Module]:
        """Return the same without those whose constructor was running when the script ended, and without their parts.

        What was built inside of a constructor that is not over, and has no optimizer yet, is such a part. A model that
        a module of Lightning already has is none: that makes its data and losses, too.
        """
        modules, roots = self._modules(), self.roots()
        unfinished = [each for each in modules if id(each) in self._unfinished]
        if not unfinished:
            return roots
        trained = {id(parameter) for optimizer in self.optimizers for parameter in _parameters_of(optimizer)}
        finished = [each for each in roots if each not in unfinished and _has_any(each, trained)]
        trainers = (each for each in roots if each in unfinished and hasattr(type(each), "training_step"))
        models = (each for trainer in trainers for each in _children(trainer) if each not in unfinished)
        return finished or [
            each for each in models if _num_parameters(each) and is_users(self._file(type(each)) or "<")
        ]

    def criteria(self) -> tuple[str, ...]:
        """Return the classes of those losses of torch.nn that were made outside of models."""
        modules = self._modules()
        inner = {id(child) for module in modules for child in _children(module)}
        losses = (each for each in modules if isinstance(each, Loss) and id(each) not in inner)
        return tuple(dict.fromkeys(type(each).__name__ for each in losses))

    def sizes(self, model: nn.Module) -> dict[str, int]:
        """Return whole numbers by name: those that `model` was built with, then those of the script's settings."""
        call = self._call(model)
        return {**self._stated_sizes(), **(call.sizes if call is not None else {})}

    def _stated_sizes(self) -> dict[str, int]:
        """Return the whole numbers of the script's settings by name, and the length of its sequences as `length`.

        The size of images is that of the training data, if that says it.
        """
        length = named_setting(lengths_in(self.values), LENGTH)
        of_sequences = {} if length is None or length.value == 1 else {"length": int(length.value)}
        stated = sizes_of(self.values)
        if self._sides:
            stated = {name: size for name, size in stated.items() if name not in IMAGE_SIZES}
        return {**stated, **of_sequences, **self._sides}

    def first_call(self, root: nn.Module) -> tuple[tuple[BuiltInput, ...], bool]:
        """Return the tensors of the first call of a model, on the GPU if it was called there, and True if it was not.

        Empty if it was not called.
        """
        for calls in (self._inputs, self._host_inputs):
            for each in (root, unwrapped(root)):
                if (known := _known_call(calls, each)) is not None:
                    return known[2], calls is self._host_inputs
        return (), True

    def drawn(self, root: nn.Module, num_fed: int | None) -> Iterator[tuple[BuiltInput, ...]]:
        """Yield the tensors of calls of a model with the first batch of the script's own training data."""
        loader: Any = next((made for made in (each() for each in self._of_training) if made is not None), ())
        with suppress(Exception):  # of a data set of the script's, whose files may not be there
            for batch in loader:
                for args, kwargs in calls_with(batch, num_fed):
                    yield tuple(_inputs(unwrapped(root), args, kwargs))
                break

    def batch(self) -> Setting | None:
        """Return the number of items per batch, and its source."""
        training = [each for each in self._loaders if each.is_for_training]
        calls = (inputs for _module, is_trained, inputs, _frame in self._inputs.values() if is_trained)
        taken = {each.shape[0] for inputs in calls for each in inputs if each.shape}
        fed = (each for each in (*training, *self._loaders) if each.batch in taken)
        loader = next(fed, None) or next(iter(training or self._loaders), None)
        if loader is None:
            of_frames = batch_of_frames(self.values)
            return of_frames or named_setting(self.values, BATCH) or self._share_of_global_batch()
        named = named_setting(self.values, BATCH) if loader.has_all and fake_data else None
        if named is not None and int(named.value) > loader.batch:  # min(batch_size, len(data)), of made-up data
            return named
        if (part := self._part_of(loader.batch)) is not None:
            return replace(part, source=f"{part.source}, a part of the {loader.batch} of {loader.text}")
        is_sure = len({each.batch for each in training or self._loaders}) == 1
        return Setting(loader.batch, loader.text, loader.frame, is_sure)

    def _batch_when_freed(self, models: Iterable[BuiltModel], loop: LoopText) -> Setting | None:
        """Return the batch size of the steps in which nothing is frozen any more, if they have one of their own."""
        name = loop.batch_when_freed() if any(each.is_freed_later for each in models) else ""
        stated = named_setting(self.values, (name.lower(),)) if name else None
        return None if stated is None else replace(stated, is_sure=True)

    def _part_of(self, batch: int) -> Setting | None:
        """Return the number of items that a step takes at a time, if a setting says that it takes a batch in parts."""
        part = named_setting(self.values, MICROBATCH)
        return part if part is not None and 0 < int(part.value) < batch and not batch % int(part.value) else None

    def _share_of_global_batch(self) -> Setting | None:
        """Return the number of items per batch of one rank if a setting says that of all."""
        whole, num_ranks = named_setting(self.values, GLOBAL_BATCH), self._script.ranks or 1
        if whole is None or num_ranks == 1:
            return whole
        share = max(int(whole.value) // num_ranks, 1)
        return replace(whole, value=share, source=f"{whole.source}, among {num_ranks} ranks")

    def dtype(self, model: nn.Module | None) -> Setting | None:
        """Return the dtype of a step of `model` as a Workload names it."""
        if self._autocast is not None:
            return self._autocast
        if self._scaler and not _casts_never(any(is_trained for _module, is_trained, *_ in self._inputs.values())):
            return Setting("fp16-amp", "GradScaler")
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        of_launcher = Value(("accelerate launch", "mixed_precision"), launched)
        if (by_name := named_autocast([*self.values, of_launcher])) is not None:
            return by_name
        kinds = {p.dtype for p in model.parameters() if p.is_floating_point()} if model is not None else set()
        return Setting(str(kinds.pop()).removeprefix(_TORCH), PARAMETERS) if len(kinds) == 1 else None

    def accumulation(self) -> Setting | None:
        """Return the number of batches per step if an argument or a config says one above 1."""
        setting = named_setting(self.values, ACCUMULATION)
        for loader in (each for each in self._loaders if each.is_for_training):
            if (part := self._part_of(loader.batch)) is not None:
                setting = replace(part, value=loader.batch // int(part.value))
        return setting if setting is not None and setting.value != 1 else None

    def built(self, ending: Ending, happened: Happened, passed_over: str) -> Built:
        """Return the record of everything built by a script that reached this point, with what was passed over."""
        roots, loop = (self.finished_roots() or self.roots())[:_MOST_MODELS], LoopText(self._script)
        trained = {id(parameter) for optimizer in self.optimizers for parameter in _parameters_of(optimizer)}
        kinds = [type(unwrapped(root)) for root in roots]
        is_all = self._script.code != "" or not (ending.is_failure or ending.goes_on)
        on_host = happened == "nothing" or (is_all and not self._inputs)
        models = tuple(
            self._model(root, trained, loop, is_last_of_several=kinds.count(kind) > 1, on_host=on_host)
            for root, kind in zip(roots, kinds, strict=True)
        )
        dtype = self.dtype(roots[0] if roots else None)
        is_called = any(each.is_called for each in models)
        is_switch = dtype is not None and dtype.source.endswith(" = True")  # of an autocast of whatever dtype
        if models and not is_called and (dtype is None or dtype.source == PARAMETERS or is_switch):
            stated = loop.setting("dtype")
            is_autocast = stated is not None and str(stated.value).endswith("-amp")
            dtype = stated if stated is not None and (is_autocast or not is_switch) else dtype
        return Built(
            command=self._script.command,
            ending=ending,
            models=models,
            optimizers=tuple(map(_optimizer, self.optimizers)),
            stated_optimizer=self.stated_optimizer(loop) if models and not self.optimizers else None,
            batch=self._batch_when_freed(models, loop) or self.batch(),
            dtype=dtype,
            accumulation=self.accumulation(),
            criteria=self.criteria(),
            sizes=self.sizes(unwrapped(max(roots, key=_num_parameters))) if roots else self._stated_sizes(),
            happened=happened,
            made_up=next(iter(fake_data), ""),
            fewest_items=min(self._lengths, default=None),
            lacks=lacking(self._script.path),
            passed_over=passed_over,
        )

    def frees_later(self) -> bool:
        """Return True if a model is trained of which the script frees parts only later, so that a step takes more."""
        is_partly_frozen = any(frozen_parts(root) for root in self.roots() if _is_trainable(root))
        return is_partly_frozen and LoopText(self._script).frees_parameters()

    def fed(self, root: nn.Module, loop: LoopText) -> FedCall | None:
        """Return the call of a model in the text of its training loop."""
        model = unwrapped(root)
        call = self._call(model)
        functions = (call.frame.function,) if call is not None and call.frame is not None else ()
        return loop.fed((type(model).__name__, *functions))

    def _model(
        self, root: nn.Module, trained: set[int], loop: LoopText, *, is_last_of_several: bool, on_host: bool
    ) -> BuiltModel:
        module = unwrapped(root)
        calls = _by_unwrapped(self._host_inputs if on_host else self._inputs)
        called = calls.get(id(module))
        parts: dict[type, BuiltClass] = {}
        of_parts = []
        # A program of Lightning, or one that keeps averages, calls a part: that is the model of its training loop.
        for part in sorted(module.modules(), key=lambda each: id(each) not in calls):
            if part is module or type(part) in parts or not is_users(self._file(type(part)) or "<"):
                continue
            known = calls.get(id(part))
            of_parts += [] if known is None else [known]
            parts[type(part)] = BuiltClass(*self._class(part), inputs=() if known is None else known[2])
        for base, call in self._bases.get(id(module), {}).items() if self._call(module) is not None else ():
            at = base.__module__, base.__qualname__, call.path, _num_parameters(module), call.frame, call.arguments
            parts[base] = BuiltClass(*at, call.shown, () if called is None else called[2], is_base=True)
        first = called or max(of_parts, key=lambda each: each[1], default=None)
        return BuiltModel(
            *self._class(module),
            inputs=() if called is None else called[2],
            is_called=first is not None,
            is_training=root.training if first is None else first[1],
            has_optimizer=_has_any(root, trained),
            is_copy=is_last_of_several and self._call(module) is None,
            called_at=None if called is None else called[3],
            parts=tuple(parts.values()),
            fed=self.fed(root, loop),
            frozen=(frozen := frozen_parts(module)),
            is_freed_later=bool(frozen) and loop.frees_parameters(),
            num_gpus=len(root.device_ids) or 1 if isinstance(root, nn.DataParallel) else 1,
        )

    def _class(self, module: nn.Module) -> tuple[str, str, str, int, Frame | None, bytes | None, str]:
        kind, call = type(module), self._call(module)
        qualname = kind.__name__ if "<locals>" in kind.__qualname__ else kind.__qualname__  # of a decorator's class
        name = kind.__module__, qualname, self._file(kind), _num_parameters(module)
        return (*name, None, None, kind.__name__) if call is None else (*name, call.frame, call.arguments, call.shown)

    def _modules(self) -> list[nn.Module]:
        """Return all modules that exist; those from before the first kernel are frozen, and not listed."""
        copies = (each for each in gc.get_objects() if issubclass(type(each), nn.Module))
        modules = {id(each): each for each in (*(made() for made in self._made), *copies) if each is not None}
        return [each for each in modules.values() if "_modules" in vars(each)]

    def _call(self, module: nn.Module) -> _Call | None:
        call = self._calls.get(id(module))
        return call if call is not None and call.module() is module else None


def _is_being_built(module: nn.Module) -> bool:
    """Return True in a constructor of `module`, which may call it to learn its strides."""
    return any(each is module for each in _being_built())


def is_building() -> bool:
    """Return True in the constructor of a module, which may call parts of it: a parametrization is a module."""
    return next(_being_built(), None) is not None


def _being_built() -> Iterator[nn.Module]:
    """Yield the modules whose constructors run, the innermost first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(module := _first_argument(frame), nn.Module):
            yield module
        frame = frame.f_back


_DIMS_OF_IMAGES = 4


def _are_larger_images(args: Sequence[Any], known: Sequence[BuiltInput]) -> bool:
    """Return True if a call gives the same images as a known one, larger: a training goes through several scales."""
    image = next((each for each in args if isinstance(each, torch.Tensor)), None)
    shape = known[0].shape if known and known[0].value is None else ()
    if image is None or image.dim() != len(shape) or len(shape) < _DIMS_OF_IMAGES:
        return False
    return tuple(image.shape[:2]) == shape[:2] and image.numel() > math.prod(shape)


def _first_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Inputs:
    frame = _caller(sys._getframe(2))
    return weakref.ref(module), module.training and torch.is_grad_enabled(), tuple(_inputs(module, args, kwargs)), frame


def _by_unwrapped(calls: Mapping[int, _Inputs]) -> dict[int, _Inputs]:
    """Return the calls by the ids of the models themselves, whatever wraps them when they are called."""
    alive = ((module, known) for known in calls.values() if (module := known[0]()) is not None)
    return {id(unwrapped(module)): known for module, known in alive}


def _known_call(calls: Mapping[int, _Inputs], module: nn.Module) -> _Inputs | None:
    known = calls.get(id(module))
    return known if known is not None and known[0]() is module else None


def _constructor(module: nn.Module, frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """Return the outermost frame that constructs `module`, and the frame that called it.

    What memlint has put around a constructor takes arguments that the constructor itself refuses.
    """
    constructor: FrameType | None = None
    while frame is not None and _first_argument(frame) is module:
        constructor = constructor if is_memlint(frame.f_code.co_filename) else frame
        frame = frame.f_back
    return constructor, frame


def _running() -> Iterator[FrameType]:
    """Yield the frames that are running, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> object:
    code = frame.f_code
    if not code.co_varnames or not (code.co_argcount or code.co_flags & inspect.CO_VARARGS):
        return None
    variables = variables_of(frame)
    if code.co_argcount:
        return variables.get(code.co_varnames[0])
    rest = variables.get(code.co_varnames[code.co_kwonlyargcount])
    return rest[0] if isinstance(rest, tuple) and rest else None


def _arguments(frame: FrameType, kind: type) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of a running constructor without `self`; those that are its defaults are left out."""
    code, variables = frame.f_code, variables_of(frame)
    num_positional, num_named = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[:num_positional]
    extra = code.co_varnames[num_positional + num_named :]
    has_rest, has_others = bool(code.co_flags & inspect.CO_VARARGS), bool(code.co_flags & inspect.CO_VARKEYWORDS)
    if not variables.keys() >= {*names, *code.co_varnames[num_positional : num_positional + num_named]}:
        return None
    rest = tuple(variables.get(extra[0], ())) if has_rest else ()
    others = dict(variables.get(extra[has_rest], {})) if has_others else {}
    if not names:
        rest = rest[1:]  # the constructor is wrapped by a function that takes anything
    defaults = _defaults(kind, frame)
    named = {name: variables[name] for name in code.co_varnames[num_positional : num_positional + num_named]}
    positional: list[Any] = []
    for place, name in enumerate(names[1:], start=1):
        if rest or place < code.co_posonlyargcount:
            positional.append(variables[name])
        else:
            named[name] = variables[name]
    empty = inspect.Parameter.empty
    given = (item for item in named.items() if not item[0].startswith("__"))  # of a wrapper that checks types
    kept = {name: value for name, value in given if defaults.get(name, empty) is not value}
    return (*positional, *rest), {**kept, **others}


def _defaults(kind: type, frame: FrameType) -> dict[str, Any]:
    """Return the default values of the constructor that runs in `frame`."""
    with suppress(Exception):  # of a signature that cannot be read
        function: Callable[..., Any] = kind.__init__  # type: ignore[misc]  # it is only read
        if getattr(function, "__code__", None) is frame.f_code:
            return {name: each.default for name, each in signature_of(function).parameters.items()}
    return {}


_repr = reprlib.Repr()
_repr.maxlevel, _repr.maxdict, _repr.maxlist, _repr.maxtuple, _repr.maxstring, _repr.maxother = 2, 6, 6, 6, 40, 80


def _shown(positional: Iterable[Any], named: Mapping[str, Any]) -> str:
    texts = [_text(value) for value in positional] + [f"{name}={_text(value)}" for name, value in named.items()]
    return ", ".join(texts)


def _text(value: object) -> str:
    if isinstance(value, nn.Module | torch.Tensor):
        return f"<{type(value).__name__}>"
    if isinstance(value, type) or inspect.isroutine(value):
        return getattr(value, "__name__", "...")
    try:
        text = _repr.repr(value)
    except Exception:  # of code of the user's
        return f"<{type(value).__name__}>"
    is_readable = not any(part in text for part in ("\n", " at 0x", " object at"))
    return text if is_readable else f"{type(value).__name__}(...)"


def _caller(frame: FrameType | None) -> Frame | None:
    """Return the innermost running line of the user's code from `frame` on."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def _casts_never(is_trained: bool) -> bool:
    """Return True if every autocast in the script's files is switched off: a scaler is made by habit, too.

    Where a model was called for training, as `is_trained` says, only what models do within their calls counts.
    """
    script = "".join(linecache.getlines(sys.argv[0])) if sys.argv[0].endswith(".py") else ""
    trees = [ast.parse(text) for text in (script, *texts_of_script()) if "autocast(" in text]
    calls = [
        node
        for tree in trees
        for part in (filter(_is_model, ast.walk(tree)) if is_trained else (tree,))
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "autocast"
    ]
    options = ({word.arg: ast.unparse(word.value) for word in call.keywords} for call in calls)
    return (is_trained or bool(calls)) and all(each.get("enabled") == "False" for each in options)


def _is_model(node: ast.AST) -> bool:
    """Return True for a class with a method `forward`."""
    return isinstance(node, ast.ClassDef) and any(getattr(each, "name", "") == "forward" for each in node.body)


def _is_random(sampler: object) -> bool:
    """Return True for samplers that draw at random, as loops of training do."""
    if isinstance(sampler, DistributedSampler):
        return bool(sampler.shuffle)
    return isinstance(sampler, RandomSampler | Sampler) and "Random" in type(sampler).__name__


def _inputs(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[BuiltInput]:
    """Yield the tensors of a call by name, and plain values that are no defaults.

    A compiled function that calls the module is given the module itself.
    """
    names, defaults = list[str](), dict[str, Any]()
    with suppress(Exception):  # of a signature that cannot be read
        known = signature_of(unwrapped(module).forward).parameters.values()
        names = [each.name for each in known if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        defaults = {each.name: each.default for each in known}
    given = (each for each in args if each is not module)
    positional = {names[place] if place < len(names) else str(place): each for place, each in enumerate(given)}
    for name, value in {**positional, **kwargs}.items():
        if type(value) in (bool, int, float) or (type(value) is str and len(value) <= _LONGEST_PLAIN):
            if name in defaults and value != defaults[name]:
                yield BuiltInput(name, (), CONSTANT, value)
        else:
            yield from _tensors(value, name)


def _tensors(value: object, name: str) -> Iterator[BuiltInput]:
    if isinstance(value, torch.Tensor):
        yield BuiltInput(name, tuple(value.shape), str(value.dtype).removeprefix(_TORCH))
    elif isinstance(value, Mapping | list | tuple):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, entry in entries:
            yield from _tensors(entry, f"{name}.{key}")
    else:  # images with their mask, as detectors have them
        fields = getattr(value, "__dict__", {}).items()
        yield from _tensors({key: each for key, each in fields if isinstance(each, torch.Tensor)}, name)


def _children(module: nn.Module) -> Iterator[nn.Module]:
    yield from (child for child in module._modules.values() if child is not None)  # some have no truth value


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the model inside PyTorch's wrappers, and inside those that a script derives from its parallel ones."""
    while (isinstance(module, _PARALLEL) or type(module).__module__.startswith(_TORCH)) and len(module._modules) == 1:
        (name, inner), *_ = module._modules.items()
        if name not in _WRAPPED or inner is None:
            break
        module = inner
    return module


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _is_in(trained: Collection[int], module: nn.Module) -> bool:
    """Return True if a module has parameters that can be trained, and all of them are among these."""
    trainable = [each for each in module.parameters() if each.requires_grad]
    return bool(trainable) and all(id(each) in trained for each in trainable)


def _has_any(module: nn.Module, parameters: set[int]) -> bool:
    return any(id(parameter) in parameters for parameter in module.parameters())


def _is_trainable(module: nn.Module) -> bool:
    return module.training and any(parameter.requires_grad for parameter in module.parameters())


def _num_parameters(module: nn.Module) -> int:
    with suppress(Exception):  # of a lazy layer that was never called
        return sum(parameter.numel() for parameter in module.parameters())
    return 0


def _optimizer(optimizer: torch.optim.Optimizer) -> BuiltOptimizer:
    plain = {k: v for k, v in optimizer.defaults.items() if isinstance(v, int | float | bool | str | type(None))}
    return BuiltOptimizer(type(optimizer).__name__, plain, sum(p.numel() for p in _parameters_of(optimizer)))
