"""Triton on a simulated GPU: a launch allocates nothing, so it is nothing, and what it writes is not known.

Triton's compiler and driver are never asked. Where it is not installed, as it is with PyTorch for a GPU, a package of
that name is found last of all that has what programs need to define kernels and launch them.
"""

import ast
import functools
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import torch

from memlint.accelerator.device import is_virtual
from memlint.base.after_import import after_import
from memlint.base.signatures import signature_of
from memlint.libraries.library import Library, Metadata, assume_once, launch, temporary

NAME = "triton"
_WRITERS = ("store", "atomic_")
"""How the names of functions begin that write to memory: `tl.store`, `tl.store_tensor_descriptor`, `tl.atomic_add`."""


def install() -> None:
    """Let kernels of Triton do nothing in this process from now on, whether it is installed or not."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.append(_Finder())
    after_import(NAME, _patch_functions)
    after_import("triton.tools.tensor_descriptor", _patch_descriptors)
    after_import("triton.runtime.jit", _patch_kernels)
    after_import("triton.runtime.autotuner", _patch_tuners)
    after_import("triton.runtime.driver", _patch_driver)


def _patch_functions(module: ModuleType) -> None:
    """Replace what TorchDynamo would follow into Triton's own modules, whose imports fail while it compiles."""
    for name in ("cdiv", "next_power_of_2"):
        setattr(module, name, _FUNCTIONS[name])


def _patch_descriptors(module: Any) -> None:
    module.TensorDescriptor = _Descriptor


def _patch_kernels(module: ModuleType) -> None:
    module.JITFunction.run = lambda kernel, *args, **options: _launch(kernel.fn, args, options)
    module.JITFunction.__hash__ = object.__hash__  # in place of the hash of all source texts
    module.KernelInterface.__getitem__ = lambda kernel, _grid: kernel.run


def _patch_tuners(module: ModuleType) -> None:
    module.Heuristics.run = lambda self, *args, **options: self.fn.run(*args, **options)
    module.Autotuner.run = _run_tuned


def _patch_driver(module: ModuleType) -> None:
    if hasattr(module, "driver"):
        module.driver.set_active(_Driver())


_CACHE = 256 << 20
"""Bytes that Triton writes before it times a kernel, so that the GPU's cache holds nothing that the kernel reads
(`get_empty_cache_for_benchmark` of triton/backends/nvidia/driver.py, 3.9.0)."""
_library = Library(
    NAME, distribution="triton", version="3.9.0",
    assumption="kernels that Triton tunes take 256 MiB at their first launch, to clear the GPU's cache",
)  # fmt: skip


@_library.kernel("tune(Tensor[] operands, int[] restored) -> ()")
def _tune(operands: list[torch.Tensor], restored: list[int]) -> None:
    taken = [temporary(_CACHE), *map(temporary, restored)]
    del taken


_tuned_already: set[Any] = set()


def tune_once(key: Any, operands: Sequence[torch.Tensor]) -> None:
    """Take what it takes to choose among configurations of a kernel of Triton's, the first time for this key."""
    if key not in _tuned_already:
        _tuned_already.add(key)
        _tune(list(operands), [])


def _run_tuned(tuner: Any, *args: Any, **options: Any) -> Any:
    """Stand in for `Autotuner.run`: several configurations are timed once for each key, in compiled code none."""
    if torch.compiler.is_compiling():
        return tuner.fn.run(*args, **options)
    arguments = {**dict(zip(tuner.arg_names, args, strict=False)), **options}
    arguments = {name: value for name, value in arguments.items() if name in tuner.arg_names}
    dtypes = [str(value.dtype) for value in arguments.values() if hasattr(value, "dtype")]
    key = (*(arguments[name] for name in tuner.keys if name in arguments), *dtypes)
    if len(tuner.configs) > 1 and key not in tuner.cache:
        tuner.cache[key] = tuner.configs[0]
        operands = {name: value for name, value in arguments.items() if is_virtual(value)}
        if operands:
            _tune(list(operands.values()), [operands[name].nbytes for name in tuner.restore_value if name in operands])
    tuner.best_config = tuner.cache.get(key, tuner.configs[0])
    return tuner.fn.run(*args, **options)


def _launch(kernel: Callable[..., Any], args: Iterable[Any], options: dict[str, Any]) -> None:
    """Run a kernel, which reads and writes tensors that exist. TorchDynamo follows it."""
    names, written = parameters(kernel)
    values = {**dict(zip(names, args)), **options}  # noqa: B905  # TorchDynamo follows no `strict`
    tensors = {name: getattr(value, "base", value) for name, value in values.items()}  # of a tensor descriptor
    read = [tensor for name, tensor in tensors.items() if name not in written]
    launch(read, [tensor for name, tensor in tensors.items() if name in written])


def parameters(kernel: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of a kernel's parameters, and of those that may be written. TorchDynamo calls it and does not follow it."""
    assume_once("kernels of Triton are not run: they take no memory, and what they write is not known")
    names, written = _names_and_written(kernel)
    return names, tuple(written)


@functools.lru_cache(maxsize=1024)
def _names_and_written(kernel: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of a kernel's parameters, and of those that may be written: all of them where its text does not tell."""
    names = tuple(signature_of(kernel).parameters)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kernel)))
    except (OSError, TypeError, SyntaxError):
        return names, frozenset(names)
    # Of what exec() made, Python 3.13 gives the text of `python -c`.
    if not any(isinstance(each, ast.FunctionDef) and each.name == kernel.__name__ for each in tree.body):
        return names, frozenset(names)
    sources: dict[str, set[str]] = {}
    reached: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in (name for each in targets for name in _names_in(each)):
                    sources.setdefault(target, set()).update(_names_in(value))
            case ast.AugAssign(target=ast.Name(id=target), value=value):
                sources.setdefault(target, set()).update(_names_in(value))
            case ast.Call(func=ast.Attribute(value=base, attr=called), args=[to, *_]) if called.startswith(_WRITERS):
                reached |= _names_in(to) | _names_in(base)  # the base is `tl`, or a tensor descriptor
            case ast.Call(func=ast.Name(), args=passed):  # another function of the program may write
                reached |= {name for each in passed for name in _names_in(each)}
    while more := {source for name in reached for source in sources.get(name, ())} - reached:
        reached |= more
    return names, frozenset(reached.intersection(names))


def _names_in(tree: ast.AST) -> set[str]:
    """The names of which a value is made, but for those that only say where it was loaded from."""
    match tree:
        case ast.Name(id=name):
            return {name}
        case ast.Call(func=ast.Attribute(attr=called)) if called.startswith("load"):
            return set()
    return {name for child in ast.iter_child_nodes(tree) for name in _names_in(child)}


class _Driver:
    """The attributes of `triton.runtime.driver.active` that libraries read, answered as `torch.cuda` does."""

    def __init__(self) -> None:
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def get_current_target(self) -> Any:
        """The simulated GPU as a target of the compiler."""
        major, minor = torch.cuda.get_device_capability()
        return import_module("triton.backends.compiler").GPUTarget("cuda", 10 * major + minor, 32)

    def get_current_device(self) -> int:
        """The only one."""
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        """The default stream."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one."""

    def get_device_interface(self) -> ModuleType:
        """Return the module that describes the device."""
        return torch.cuda

    def get_active_torch_device(self) -> torch.device:
        """The device of tensors."""
        return torch.device("cuda", 0)

    def _properties(self, _device: int = 0) -> dict[str, int]:
        properties: Any = torch.cuda.get_device_properties(0)
        return {
            "max_shared_mem": properties.shared_memory_per_block_optin,
            "multiprocessor_count": properties.multi_processor_count,
            "max_num_regs": properties.regs_per_multiprocessor,
            "warpSize": properties.warp_size,
        }


# --- where Triton is not installed


class _Kernel:
    """A function that `triton.jit` has wrapped."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__dict__.update(vars(fn), __name__=fn.__name__, __doc__=fn.__doc__, __module__=fn.__module__)

    def run(self, *args: Any, **options: Any) -> None:
        """Launch it."""
        _launch(self.fn, args, options)

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return self.run


def _jit(fn: Callable[..., Any] | None = None, **_: Any) -> Any:
    return _Kernel if fn is None else _Kernel(fn)


class _Config:
    """Stand-in for `triton.Config`, whose settings programs read from the configuration that was chosen."""

    def __init__(self, kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, **_: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = dict(kwargs), num_warps, num_stages


class _Tuner:
    """A kernel that `triton.autotune` has wrapped."""

    def __init__(self, fn: Any, configs: Sequence[Any], key: Sequence[str], restore_value: Sequence[str] = ()) -> None:
        self.fn, self.configs, self.keys, self.restore_value = fn, configs, key, restore_value or ()
        while not inspect.isfunction(fn):
            fn = fn.fn
        self.base_fn = fn
        self.arg_names = tuple(signature_of(fn).parameters)
        self.cache: dict[Any, Any] = {}

    def run(self, *args: Any, **options: Any) -> None:
        """Tune it, where that was not done yet, and launch it."""
        _run_tuned(self, *args, **options)

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return self.run


def _tuned(
    configs: Sequence[Any], key: Sequence[str], restore_value: Sequence[str] = (), **_: Any
) -> Callable[[Any], Any]:
    """Stand in for `triton.autotune`."""
    return lambda kernel: _Tuner(kernel, configs, key, restore_value)


def _chosen(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Stand in for `triton.heuristics`: there is nothing to choose."""
    return lambda kernel: kernel


class _Anything:
    """A name of Triton that only kernels, which are not run, have a use for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, *args: Any, **__: Any) -> Any:
        """Decorate a function, or give another such thing."""
        return args[0] if len(args) == 1 and inspect.isfunction(args[0]) else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, _key: Any) -> Any:
        return self

    def __iter__(self) -> Iterator[Any]:
        """Nothing: without it, Python would ask for item after item."""
        return iter(())


class _Type(_Anything):
    """Stand-in for `triton.language.dtype`, of which PyTorch asks whether something is an instance."""


class _Descriptor:
    """Stand-in for `TensorDescriptor`: a kernel that is given one reads or writes its tensor."""

    def __init__(self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int]) -> None:
        self.base, self.shape, self.strides, self.block_shape = base, shape, strides, block_shape

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: Sequence[int], *_: Any, **__: Any) -> "_Descriptor":
        """Describe a tensor."""
        return cls(tensor, tensor.shape, tensor.stride(), block_shape)


_DRIVER = SimpleNamespace(active=_Driver())
_FUNCTIONS: dict[str, Any] = {
    "runtime": SimpleNamespace(driver=_DRIVER, JITFunction=_Kernel),
    "driver": _DRIVER,
    "active": _DRIVER.active,
    "__version__": "3.9.0",
    "jit": _jit,
    "autotune": _tuned,
    "Config": _Config,
    "heuristics": _chosen,
    "JITFunction": _Kernel,
    "TensorDescriptor": _Descriptor,
    "dtype": _Type,
    "cdiv": lambda x, y: -(-x // y),
    "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length(),
}


class _StandIn(ModuleType):
    """A module of Triton."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Programs ask whether something is an instance of a class.
        value = type(name, (_Anything,), {}) if name[:1].isupper() else _Anything()
        self.__dict__[name] = value
        return value


class _Finder:
    """Finds Triton where nobody else has."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Find the package and everything that may be in it."""
        outer = sys.modules.get(NAME)
        if name != NAME and not (name.startswith(f"{NAME}.") and isinstance(outer, _StandIn)):
            return None
        if name.startswith(f"{NAME}._torch"):  # what PyTorch's own build of Triton adds, and looks for
            return None
        return ModuleSpec(name, cast("Any", self), origin="memlint", is_package=True)

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Distribution]:
        """Find the metadata: PyTorch for a GPU is installed together with it."""
        if context.name in (None, NAME):
            yield Metadata(_library)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the stand-in."""
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Give it what programs call themselves; the package imports its language."""
        module.__dict__.update(_FUNCTIONS)
        if module.__name__ == NAME:
            import_module(f"{NAME}.language")
