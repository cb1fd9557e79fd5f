"""Import hooks that keep TorchDynamo and SymPy unloaded until they are really used, and run compiled functions eagerly.

PyTorch's optimizers, checkpoints and reference kernels import TorchDynamo, over a second's work, only to exclude
themselves from compilation. torchvision imports it to ask if it is compiling, and checkpoints and transformers import
single modules that need nothing else of it. Shape inference imports SymPy, half a second's work, to ask if sizes are
symbols, which they never are here, and distributed tensors name an error about symbols. Stand-ins answer these
questions; any other attribute loads the real modules in their place.
"""

import functools
import importlib.util
import operator
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from memlint.accelerator.private import DYNAMO, PRIMITIVES, SYMPY_FUNCTIONS, forward_pre_hooks

UTILS = f"{DYNAMO}.utils"
WITHOUT_THE_REST = (f"{DYNAMO}.config", f"{DYNAMO}._trace_wrapped_higher_order_op")
"""Modules of TorchDynamo that import nothing else of it."""
SYMPY = "sympy"
SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"


while_loading: Callable[[], AbstractContextManager[None]] = nullcontext
"""Makes the block in which the real TorchDynamo is loaded."""


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        # `inspect` asks every module for its file, and the import system asks for the path of a package.
        if name.startswith("__") and not (name == "__path__" and self.__name__ == DYNAMO):
            raise AttributeError(name)
        if f"{self.__name__}.{name}" in WITHOUT_THE_REST:
            return _alone(f"{self.__name__}.{name}")
        with while_loading():
            make_room()
            return getattr(import_module(self.__name__), name)


class _OneModule(_StandIn):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_alone(self.__name__), name)


def _alone(name: str) -> ModuleType:
    """Load one module without the package it is in."""
    module = sys.modules.get(name)
    if module is None or isinstance(module, _StandIn):
        file = Path(torch.__file__).parent / "_dynamo" / f"{name.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


class _NoSymbol:
    """Class of symbolic sizes, of which no size is an instance."""


_OF_SHAPE_INFERENCE: dict[tuple[str, str], Any] = {(SYMPY, "Basic"): _NoSymbol, (SYMPY_FUNCTIONS, "Max"): max}
"""Answers for shape inference, by module and attribute: of plain numbers."""


class _SympyStandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        answer = _OF_SHAPE_INFERENCE.get((self.__name__, name))
        if answer is not None and sys._getframe(1).f_globals.get("__name__") == PRIMITIVES:
            return answer
        # `inspect` asks every module for its file; the import system asks for the path of a package.
        if name.startswith("__") and not (self.__name__ == SYMPY and name in ("__path__", "__version__")):
            raise AttributeError(name)
        return getattr(_become_real(self), name)


class _SymbolicSizeError(RuntimeError):
    """Stand-in for the error about symbolic sizes, for modules that name it to catch it: nothing raises it."""


_SIZE_ERROR = "GuardOnDataDependentSymNode"
_NAMING_THE_ERROR: list[dict[str, Any]] = []
"""Globals of the modules that have this stand-in: the real error replaces it there once its module is loaded."""


class _SymbolicShapesStandIn(ModuleType):
    """Stand-in that answers questions about plain numbers as the real module does."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == _SIZE_ERROR:
            _NAMING_THE_ERROR.append(sys._getframe(1).f_globals)
            return _SymbolicSizeError
        answer = _ABOUT_NUMBERS.get(name)
        if answer is None:
            return getattr(_become_real(self), name)

        def ask(*arguments: Any, **options: Any) -> Any:
            if not options and all(map(_is_plain, arguments)):
                return answer(*arguments)
            return getattr(_become_real(self), name)(*arguments, **options)

        def ask_about_one(argument: Any, *more: Any, **options: Any) -> Any:
            if argument.__class__ in (bool, int) and not (more or options):
                return argument
            return ask(argument, *more, **options)

        self.__dict__[name] = ask_about_one if answer is _itself else ask
        return self.__dict__[name]


def _is_plain(value: Any) -> bool:
    kind = type(value)
    return kind is int or kind is bool or (issubclass(kind, tuple | list) and all(map(_is_plain, value)))


def _equal(x: Any, y: Any) -> bool:
    return tuple(x) == tuple(y) if isinstance(x, tuple | list) else bool(x == y)


def _itself(x: Any) -> Any:
    return x


_WITHOUT_COMPILATION: dict[str, Callable[..., Any]] = {
    "disable": lambda fn=None, *_, **__: _itself if fn is None else fn,
    "assume_constant_result": _itself,
    "allow_in_graph": _itself,
    "graph_break": lambda *_, **__: None,
}
"""Attributes of TorchDynamo where nothing is compiled: every function counts as disabled already, and no graph exists.
"""

_THE_NUMBER_ITSELF = """
    guard_or_false guard_or_true guard_size_oblivious statically_known_true expect_true guard_int size_hint
    guarding_hint_or_throw
"""
# torch 2.12 has renamed size_hint to guarding_hint_or_throw, has_hint to has_guarding_hint.
_ABOUT_NUMBERS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_THE_NUMBER_ITSELF.split(), _itself),
    "statically_known_false": operator.not_,
    "free_unbacked_symbols": lambda _x: (),
    "sym_eq": _equal,
    "sym_and": lambda *xs: functools.reduce(operator.and_, xs),
    "sym_or": lambda *xs: functools.reduce(operator.or_, xs),
    "is_nested_int": lambda _x: False,
    **dict.fromkeys(("has_hint", "has_guarding_hint"), lambda _x: True),
}


class _LoadedMeanwhile:
    """Finder that keeps modules single: to look up a stand-in's package loads the package, and modules of it with that.

    The import that looked it up would otherwise load its module a second time.
    """

    @staticmethod
    def find_spec(name: str, _path: object = None, target: object = None) -> ModuleSpec | None:
        """Find modules that are loaded already."""
        if target is None and name.startswith((f"{SYMPY}.", f"{DYNAMO}.")) and name in sys.modules:
            return ModuleSpec(name, _LoadedMeanwhile(sys.modules[name]))  # type: ignore[arg-type]  # no real loader
        return None

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec, self._loader = module, module.__spec__, module.__loader__

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        """Return the module that is loaded."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been executed."""
        module.__spec__, module.__loader__ = self._spec, self._loader


def _become_real(stand_in: ModuleType) -> ModuleType:
    """Load the real module in place of its stand-in; the stand-in forwards to it from then on."""
    name = stand_in.__name__
    if sys.modules.get(name) is stand_in:
        del sys.modules[name]
    real = import_module(name)
    stand_in.__dict__.update(real.__dict__)
    if name == SYMBOLIC_SHAPES:
        _name_the_real_error(real)
    return real


def _name_the_real_error(symbolic_shapes: ModuleType) -> None:
    real = getattr(symbolic_shapes, _SIZE_ERROR)
    for module in _NAMING_THE_ERROR:
        module.update({name: real for name, value in module.items() if value is _SymbolicSizeError})
    _NAMING_THE_ERROR.clear()


def is_stand_in(module: object) -> bool:
    """Return True if it stands in for a module, or did before that was loaded."""
    return isinstance(module, _StandIn | _SympyStandIn | _SymbolicShapesStandIn)


def make_room() -> None:
    """Make room for the real TorchDynamo."""
    for name in (DYNAMO, UTILS, *WITHOUT_THE_REST):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]
    if isinstance(torch.__dict__.get("_dynamo"), _StandIn):
        del torch.__dict__["_dynamo"]


def install() -> None:
    """Put the stand-ins in the place of the real modules, unless those are loaded already."""
    sys.meta_path.insert(0, _LoadedMeanwhile)
    if DYNAMO not in sys.modules:
        sys.modules[DYNAMO] = torch.__dict__["_dynamo"] = _StandIn(DYNAMO)
        sys.modules[UTILS] = _StandIn(UTILS)
        sys.modules.update({name: _OneModule(name) for name in WITHOUT_THE_REST})
        sys.modules[DYNAMO].__dict__.update(_WITHOUT_COMPILATION)
        sys.modules[UTILS].__dict__["is_compile_supported"] = lambda _device_type: False
    kinds = ((SYMPY, _SympyStandIn), (SYMPY_FUNCTIONS, _SympyStandIn), (SYMBOLIC_SHAPES, _SymbolicShapesStandIn))
    for name, kind in kinds:
        if name not in sys.modules and (spec := importlib.util.find_spec(name)) is not None:
            sys.modules[name] = module = kind(name)
            module.__spec__ = spec  # code that checks if TorchDynamo is installed looks for this


compile_really = torch.compile
"""PyTorch's own `torch.compile`."""


class Compilation:
    """Use of `torch.compile` in this process."""

    is_requested = False
    """True if any function that was passed to it has run."""
    seconds = 0.0
    """Processor time of the compilations of the last simulation that compiled."""
    number = 0
    """How often code was compiled in this process."""

    @classmethod
    def begin(cls, *, is_requested: bool = False) -> None:
        """Forget what has run; `is_requested` says if such a function is known to run."""
        cls.is_requested, cls.seconds = is_requested, 0.0

    @classmethod
    def is_simulated(cls, setting: str) -> bool:
        """Return True if such a function has run, and a Workload's `setting` has it compiled."""
        return cls.is_requested and setting != "off"


def _note_call(module: torch.nn.Module, _args: Any) -> None:
    Compilation.is_requested = True
    hooks = forward_pre_hooks(module)
    for number in [number for number, hook in hooks.items() if hook is _note_call]:
        del hooks[number]


def compile_nothing(model: Any = None, **_: Any) -> Any:
    """Stand in for `torch.compile`: the function runs as it is, and once it runs the Report says so."""
    if model is None:
        return compile_nothing
    if isinstance(model, torch.nn.Module):
        model.register_forward_pre_hook(_note_call)
        return model

    @functools.wraps(model)
    def run(*args: Any, **kwargs: Any) -> Any:
        Compilation.is_requested = True
        return model(*args, **kwargs)

    return run


def is_left_out() -> bool:
    """Return True if `torch.compile` compiles nothing in this process."""
    return torch.compile is compile_nothing


def run_eagerly() -> None:
    """Let `torch.compile` compile nothing in this process from now on."""
    torch.compile = compile_nothing
