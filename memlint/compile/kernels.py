"""Kernels that Inductor generates, and how its wrappers allocate: kernels are neither written nor compiled nor run."""

import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from memlint.accelerator import backend, state
from memlint.accelerator.private import RAW_STREAM, TRITON_CHECKS, DispatchKey, compiled
from memlint.accelerator.private.compilation import (
    DEVICE_GUARD,
    EMPTY_ON_GPU,
    EMPTY_ON_HOST,
    LOAD,
    MAKE_MODULE,
    WRITE_PROGRAM,
    Choices,
    CodeCache,
    Compiler,
    CudaInterface,
    Kernel,
    Lowering,
    SplitScanKernel,
    SystemCache,
    attribute_users,
    benchmarker,
    compile_metrics,
    cudagraph_checks,
    guards,
    load_module,
    make_module,
    reproductions,
    run_with_state,
    scan,
    scheduler,
    vector_instructions,
)
from memlint.base.patching import Patch
from memlint.compile import origins
from memlint.compile.autotuning import is_timed, take_to_time
from memlint.cuda.facade import placement
from memlint.cuda.simulated import Simulated
from memlint.libraries.library import launch

_TRITON = ("triton", "triton.language")
_PARAMETERS = re.compile(r"^def \w+\(([^)]*)\)", re.MULTILINE)
_WIDTH = re.compile(r"\d+")
"""Bits of a type, in its name."""
_numbers = itertools.count()
_TIMED = ", timed"


class _NoKernel:
    """Stand-in for a compiled kernel: it writes into tensors that exist, and allocates nothing."""

    n_regs = n_spills = 0

    def __init__(self, written: Sequence[int], *, is_timed: bool = False) -> None:
        """Positions of the arguments that it writes, and whether its first call times several ways of running it."""
        self._written = written
        self._is_timed = is_timed

    def run(self, *args: Any, **_: Any) -> None:
        """Note that it reads and writes its arguments."""
        if self._is_timed:
            self._is_timed = False
            take_to_time()
        written = [args[position] for position in self._written if position < len(args)]
        launch(args, written)

    __call__ = run

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


class _Template(ModuleType):
    """Stand-in for the module of a kernel that is made of a template, and compared with others made of it."""

    key: str

    def __getattr__(self, name: str) -> _NoKernel:
        if name.startswith("__"):
            raise AttributeError(name)
        return _NoKernel(())


class _NoTriton(ModuleType):
    """Stand-in for Triton in generated modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "primitive_bitwidth":
            width = _WIDTH.search(self.__name__)
            return int(width[0]) if width else 1
        return _NoTriton(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if args and callable(args[0]) else self


def _without_source(kernel: Any, _name: str | None = None) -> str:
    """Stand in for `TritonKernel.codegen_kernel`: what the call of the kernel needs of it is that it has arguments."""
    kernel.triton_meta = {"signature": {}, "device": None, "constants": {}, "configs": []}
    kernel.inductor_meta = {}
    names, *_ = kernel.args.python_argdefs()
    timed = _TIMED if is_timed(kernel, len(names)) else ""
    return f"# kernel {next(_numbers)}{timed}\ndef kernel({', '.join(each.name for each in names)}): ..."


def _triton(_compiler: Any, _name: str, source: str, *_: Any, **__: Any) -> _NoKernel:
    """Stand in for `AsyncCompile.triton`: the names of a kernel's parameters say what it writes."""
    found = _PARAMETERS.search(source)
    names = found[1].split(",") if found else []
    written = [position for position, name in enumerate(names) if "out_ptr" in name]
    return _NoKernel(written, is_timed=_TIMED in source)


def _cpp(_compiler: Any, types: Sequence[str], *_: Any, **__: Any) -> _NoKernel:
    """Stand in for `AsyncCompile.cpp_pybinding`: the types of a kernel's parameters say what it writes."""
    is_written = [each.endswith("*") and not each.startswith("const ") for each in types]
    return _NoKernel([position for position, writes in enumerate(is_written) if writes])


def _alignments(divisible_by_16: Any = None, *_: Any) -> dict[tuple[Any, ...], list[list[Any]]]:
    """Stand in for Triton's description of aligned arguments."""
    return {(each,): [["tt.divisibility", 16]] for each in divisible_by_16 or ()}


def _load(cls: Any, key: str, path: str, *args: Any, **options: Any) -> Any:
    """Stand in for `PyCodeCache.load_by_key_path`: generated modules find something of Triton's name.

    Of a kernel made of a template, such as flex attention, only the place of the file is needed, to time it.
    """
    text = Path(path).read_text(encoding="utf-8")
    if "@triton_heuristics.template(" in text and "AsyncCompile()" not in text:
        template = _Template(key)
        template.__file__, template.key = path, key
        return template
    with _something_of_its_name():
        return load_module(cls, key, path, *args, **options)


@contextmanager
def _something_of_its_name() -> Iterator[None]:
    """Let `import triton` find the stand-in inside the block."""
    shown = {name: sys.modules[name] for name in _TRITON if name in sys.modules}
    sys.modules.update({name: _NoTriton(name) for name in _TRITON})
    try:
        yield
    finally:
        for name in _TRITON:
            sys.modules.pop(name, None)
        sys.modules.update(shown)


def _scan(kernel: Any, *args: Any) -> Any:
    """Stand in for `TritonSplitScanKernel.scan`, which asks Triton for the width of a type, for its workspace."""
    with _something_of_its_name():
        return scan(kernel, *args)


def _module_with_origins(lowering: Any) -> Any:
    module = make_module(lowering)
    origins.remember(module.__file__, lowering)
    return module


def _empty(size: Any, stride: Any, dtype: torch.dtype, *, on_host: bool = False) -> torch.Tensor:
    with state.current.placed(on_host=on_host):
        return backend.empty_strided(size, stride, dtype)


class _Generator(torch.Generator):
    """The GPU's generator: its states are no memory of the device."""

    device = placement.CUDA

    def clone_state(self) -> Any:
        """Return another."""
        return _Generator()

    def graphsafe_get_state(self) -> Any:
        """Return it."""
        return self

    def graphsafe_set_state(self, _state: Any) -> Any:
        """Return it, with nothing done."""
        return self


@run_with_state.py_impl(DispatchKey.PrivateUse1)  # type: ignore[untyped-decorator]
def _run_with_state(op: Any, *args: Any, **kwargs: Any) -> Any:
    kwargs.pop("rng_state", None)
    return op(*args, **kwargs)


def patches(running: Simulated) -> list[Patch]:
    """Patches while a program that compiles runs: owner, name, replacement."""
    everywhere = [
        (Compiler, "triton", _triton),
        (Compiler, "cpp_pybinding", _cpp),
        (Compiler, "wait", lambda *_: None),
        (CodeCache, LOAD, classmethod(_load)),
        (Lowering, MAKE_MODULE, _module_with_origins),
        (guards, EMPTY_ON_HOST, partial(_empty, on_host=True)),
        (reproductions, WRITE_PROGRAM, lambda *_, **__: None),
    ]
    if not running.cuda:
        return [*everywhere, (vector_instructions, "valid_vec_isa_list", list)]
    return [
        *everywhere,
        (benchmarker, "benchmark_gpu", lambda *_, **__: 1.0),  # no choice of ATen's is faster than another
        (Choices, "benchmark_choice", staticmethod(lambda *_: 1.0)),  # nor is one of Triton's
        (guards, EMPTY_ON_GPU, _empty),
        (Kernel, "codegen_kernel", _without_source),
        (SplitScanKernel, "scan", _scan),
        *((module, "AttrsDescriptorWrapper", _alignments) for module in attribute_users),
        (scheduler, "has_triton", lambda *_: True),
        (compile_metrics, "has_triton", lambda *_: False),
        (TRITON_CHECKS, "triton_hash_with_backend", lambda: "none"),
        (SystemCache, "get_system", staticmethod(lambda: {"hash": "none"})),  # it writes what Triton says as JSON
        (cudagraph_checks, "check_caching_allocator_for_cudagraphs", lambda *_: None),
        (torch.cuda, "default_generators", (_Generator(),)),
        (torch.cuda, DEVICE_GUARD, lambda *_: nullcontext()),
        (compiled, RAW_STREAM, lambda *_: 0),
        *((CudaInterface, name, staticmethod(answer)) for name, answer in _ANSWERS.items()),
        *((CudaInterface, name, staticmethod(getattr(torch.cuda, name))) for name in _OF_CUDA),
    ]


_ANSWERS: dict[str, Callable[..., Any]] = {
    "raise_if_triton_unavailable": lambda *_: None,
    "is_triton_capable": lambda *_: True,
    "get_raw_stream": lambda *_: 0,
}
"""Answers to what Dynamo and Inductor ask about CUDA that `torch.cuda` does not give."""
_NAMES = """
    current_device set_device device_count current_stream synchronize get_device_properties memory_allocated
    is_bf16_supported stream set_stream
"""
_OF_CUDA = _NAMES.split()
"""Questions that `torch.cuda` answers, as the program sees it."""
