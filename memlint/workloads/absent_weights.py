"""Weights that are not on this machine: whatever a program reads from them, its model keeps the values that it has.

Weights change no size. So a checkpoint that is missing need not end a program: what it would hold accepts every use
of a state dict, of its tensors and of arrays, and leaves models and optimizers unchanged. Only numbers are not made
up, except those that count, such as epochs, which begin at 0: a size may depend on them.
"""

from __future__ import annotations

import functools
import gc
import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch
from torch import nn

from memlint.accelerator import state
from memlint.accelerator.private import LoadedKeys, stand_in_script
from memlint.base.frames import user_frames
from memlint.base.ownership import is_users
from memlint.workloads.giving_up import gives_up
from memlint.workloads.known_weights import known_weights
from memlint.workloads.stated_configs import stated_config

_COUNTED = frozenset(
    ("epoch", "step", "iter", "iteration", "iterations", "best", "acc", "accuracy", "loss", "score", "samples", "seen")
)
"""Words in the names of numbers that a training writes into its checkpoints, and that begin at 0."""
_SETTINGS = frozenset(("args", "config", "cfg", "dims", "hparams", "hyperparameters", "settings", "kwargs"))
"""Words in the names of settings that a model was trained with, from which some programs build it anew."""
_OF_SIZES = frozenset(("arange", "empty", "eye", "full", "ones", "rand", "randn", "randperm", "zeros"))
"""Functions of torch whose arguments are sizes."""
_IF_THERE = re.compile(r"\.get\([^()]*\) is not None")
"""Pattern of a line that takes a weight only where a checkpoint has it."""
_MAKERS = ("from_numpy", "tensor", "as_tensor", "asarray")
"""Functions of torch that make a tensor of something else without asking for `__torch_function__`."""
_CLASSES: tuple[Any, ...] = (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
"""Classes beside modules that load a state."""


class _Zero(int):
    """A number that began at 0, which the program may have kept as a tensor."""

    def item(self) -> int:
        """Return it."""
        return 0


class Absent(dict[Any, Any]):
    """The content of a missing checkpoint, and everything in it: a state dict, a tensor, a model, settings."""

    def __init__(self, error: OSError) -> None:
        """`error` is raised where a number is needed that only the checkpoint has."""
        super().__init__()
        self.__dict__["_error"] = error
        self.update(known_weights(os.path.splitext(self._name())[0]))  # noqa: PTH122 -- or an address
        if not _made:
            nn.Module.__setattr__ = _setting(nn.Module.__setattr__)  # type: ignore[method-assign]
        _made.append(self)
        _asked.clear()

    def __missing__(self, name: object) -> Any:
        settings = self._settings()
        if name in settings:
            return settings[name]
        words = set(re.split(r"[\W_]+", name.lower())) if isinstance(name, str) else set()
        if words & _SETTINGS:
            known_by = f"state them in JSON: --config-of {self._name()}=FILE"
            unknown_settings[:] = [f'{name} of the checkpoint are not known: {known_by}, with {{"{name}": {{...}}}}.']
            state.assume(f"{name} of the checkpoint are not known: what they set has its default values; or {known_by}")
        if words & _COUNTED:
            return _Zero()
        inner: dict[object, Absent] = self.__dict__.setdefault("_inner", {})
        return inner.setdefault(name, _Weight(self, name)) if isinstance(name, str) else self

    def _name(self) -> str:
        return os.path.basename(str(self.__dict__["_error"].filename or "checkpoint"))  # noqa: PTH119 -- or an address

    def _settings(self) -> dict[str, Any]:
        """Return the content beside weights that the command line states."""
        return stated_config(self._name()) or {}

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key) or key in self._settings():
            return True
        frame = sys._getframe(1)
        return is_users(frame.f_code.co_filename) and gives_up(frame.f_code.co_filename, frame.f_lineno)

    def keys(self) -> Any:
        """Return what was put in, and the names of the last model that was asked for its own: they are compared."""
        return dict.fromkeys((*super().keys(), *_asked)).keys()

    def __delitem__(self, key: Any) -> None:
        if super().__contains__(key):
            super().__delitem__(key)

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except TypeError:  # a slice of a tensor
            return self

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self

    def __setattr__(self, _name: str, _value: object) -> None:
        """Accept an attribute."""

    def __call__(self, *_arguments: object, **_named: object) -> Absent:  # noqa: D102 -- as each of its methods
        return self

    def get(self, name: Any, *default: Any) -> Any:
        """Return the default, or else what an index returns; None where the program takes it only if it is there."""
        frame = sys._getframe(1)
        if default or _IF_THERE.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            return default[0] if default else None
        return self[name]

    pop = get

    def copy(self) -> Absent:
        """Return itself."""
        return self

    __copy__ = copy
    __enter__ = copy

    def __deepcopy__(self, _known: object) -> Absent:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def __eq__(self, _other: object) -> bool:
        return True  # it has whichever shape it is compared with

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none

    def _number(self) -> NoReturn:
        error: OSError = self.__dict__["_error"]
        frame = next(user_frames(), None)
        where = "the program" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        name = f"the checkpoint {error.filename}" if error.filename else "a checkpoint"
        error.add_note(
            f"{where} takes a number from {name}, which is not there: put it there, as a size may need it, "
            f"or state what it holds beside weights in JSON: --config-of {self._name()}=FILE."
        )
        raise error

    __index__ = __int__ = __float__ = _number

    @classmethod
    def __torch_function__(cls, function: Any, _types: object, args: Sequence[Any] = (), _named: object = None) -> Any:
        name = str(getattr(function, "__name__", ""))
        if name.endswith("_") and not name.startswith("__") and isinstance(args[0], torch.Tensor):
            return args[0]  # written in place
        if name in _OF_SIZES:
            next(_absent_in(args))._number()
        return None if name == "__setitem__" else next(_absent_in(args))

    def __array_function__(self, *_call: object) -> Absent:
        return self

    def __array_ufunc__(self, *_call: object, **_named: object) -> Absent:
        return self


class _Weight(Absent):
    """The weight of a missing checkpoint under a name: its shape is that of the model's own of that name."""

    def __init__(self, checkpoint: Absent, name: str) -> None:
        dict.__init__(self)
        self.__dict__.update(_error=checkpoint.__dict__["_error"], _key=name.rpartition(".")[2])

    def __getattr__(self, name: str) -> Any:
        if name not in ("shape", "size") or (shape := _shape_of(self.__dict__["_key"])) is None:
            return super().__getattr__(name)
        return shape if name == "shape" else lambda dim=None: shape if dim is None else shape[dim]


def _shape_of(name: str) -> torch.Size | None:
    """Return the shape of the parameters of this name in the models that exist; None if they have several, or none."""
    modules = (each for each in gc.get_objects() if issubclass(type(each), nn.Module) and "_parameters" in vars(each))
    own = (dict(module.named_parameters(recurse=False)) for module in modules)
    shapes = {each[name].shape for each in own if name in each}
    return shapes.pop() if len(shapes) == 1 else None


def _operation(self: Absent, *_others: object) -> Absent:
    return self


for _name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "matmul", "mod"):
    for _side in ("", "r"):
        setattr(Absent, f"__{_side}{_name}__", _operation)
for _name in ("neg", "abs", "invert"):
    setattr(Absent, f"__{_name}__", _operation)


def _absent_in(values: Sequence[Any]) -> Iterator[Absent]:
    for value in values:
        if isinstance(value, Absent):
            yield value
        elif isinstance(value, list | tuple):
            yield from _absent_in(value)


# --- what loads weights


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `load_state_dict` so that absent weights, or an empty dictionary made of them, change nothing."""

    def load_state_dict(self: Any, state_dict: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(state_dict, Absent) or (_made and all(isinstance(v, Absent) for v in state_dict.values())):
            if named.get("assign") or True in arguments[1:]:
                _materialize(self)
            return LoadedKeys([], [])
        return load(self, state_dict, *arguments, **named)

    return load_state_dict


def _naming(get_state: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `state_dict` of modules so that absent weights know the names that a program compares with theirs."""

    @functools.wraps(get_state)
    def state_dict(self: nn.Module, *arguments: Any, **named: Any) -> Any:
        content = get_state(self, *arguments, **named)
        if _made and not named.get("prefix"):
            _asked[:] = content
        return content

    return state_dict


def _materialize(module: nn.Module) -> None:
    """Give tensors on the meta device the memory of those that a checkpoint would have put in their place."""
    made: dict[torch.Tensor, torch.Tensor] = {}
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.is_meta:
                values = made.setdefault(parameter, torch.empty_like(parameter, device="cpu"))
                setattr(part, name, nn.Parameter(values, parameter.requires_grad))
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.is_meta:
                setattr(part, name, made.setdefault(buffer, torch.empty_like(buffer, device="cpu")))


def _setting(set_attribute: Callable[..., None]) -> Callable[..., None]:
    """Wrap `Module.__setattr__` so that a parameter or buffer made of absent weights leaves the present one."""

    def __setattr__(self: nn.Module, name: str, value: Any) -> None:  # noqa: N807 -- it stands for it
        fields = vars(self)
        if isinstance(value, Absent) and (name in fields.get("_parameters", ()) or name in fields.get("_buffers", ())):
            return
        set_attribute(self, name, value)

    return __setattr__


def _making(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(data: Any, *arguments: Any, **named: Any) -> Any:
        return data if isinstance(data, Absent) else make(data, *arguments, **named)

    return made


_made: list[Absent] = []
"""The checkpoints that were missing so far."""
unknown_settings: list[str] = []
"""Advice about the settings that the program took from a checkpoint last, as a sentence; at most one."""
_asked: list[str] = []
"""The names of weights in the last model that was asked for them since."""


def replace_loading(put: Callable[[Any, str, Any], object]) -> None:
    """Make PyTorch accept absent weights; `put` sets an attribute of an owner."""
    put(nn.Module, "load_state_dict", _loading(nn.Module.load_state_dict))
    put(nn.Module, "state_dict", _naming(nn.Module.state_dict))
    for owner in _CLASSES:
        put(owner, "load_state_dict", _loading(vars(owner)["load_state_dict"]))
    for name in _MAKERS:
        original = getattr(torch, name)
        made = _making(original)
        stand_in_script(made, original)
        put(torch, name, made)
