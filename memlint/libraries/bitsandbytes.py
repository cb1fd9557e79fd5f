"""bitsandbytes runs its own code for CUDA, whose kernels do nothing: it allocates in Python what they write.

Held against 0.50.2. Without a GPU bitsandbytes would run references of its kernels in PyTorch, which take other memory.
Memory of paged optimizers is managed: the driver moves it between host and GPU, and PyTorch's allocator has none of it.
"""

import contextlib
import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from memlint.accelerator import state
from memlint.accelerator.device import NAME
from memlint.accelerator.kernel import kernel_of
from memlint.accelerator.private import RAW_STREAM, compiled
from memlint.base.after_import import after_import, before_import
from memlint.libraries.library import assume_once, launch


def install() -> None:
    """Let bitsandbytes, where it is imported from now on, run what it would on CUDA."""
    before_import("bitsandbytes", _know_a_stream)
    after_import("bitsandbytes.cuda_specs", _load_for_the_host)
    after_import("bitsandbytes.cextension", _launch_nothing)
    after_import("bitsandbytes._ops", _register_here)
    after_import("bitsandbytes.functional", _page_on_the_host)
    after_import("bitsandbytes", _load_for_cuda)


def _load_for_the_host(module: Any) -> None:
    module.get_cuda_specs = lambda: None


def _launch_nothing(module: Any) -> None:
    module.lib = _Native(module.lib)


def _register_here(module: Any) -> None:
    register = module.register_kernel
    of_host: dict[str, Callable[..., Any]] = {}
    """Kernels of the CPU, or references in PyTorch where there are none."""

    def registered(op: str, device_types: Any) -> Any:
        def enter(function: Callable[..., Any]) -> Callable[..., Any]:
            if device_types == "cuda":
                register(op, NAME)(_reading(op, function, of_host))
                return function
            if device_types == "cpu" or op not in of_host:
                of_host[op] = function
            register(op, device_types)(function)
            return function

        return enter

    module.register_kernel = registered


def _reading(
    op: str, function: Callable[..., Any], of_host: dict[str, Callable[..., Any]]
) -> Callable[..., Any]:  # fmt: skip
    """The function, which hands addresses to kernels: what these read and write is what the op is called with."""
    name, _, overload = op.partition("::")[2].partition(".")
    kernel = kernel_of(getattr(getattr(torch.ops.bitsandbytes, name), overload or "default"))

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        launch((*args, *kwargs.values()), kernel.written_of(args, kwargs))
        chosen = function if state.current.cuda else of_host.get(op, function)
        return chosen(*args, **kwargs)

    return run


def _page_on_the_host(module: Any) -> None:
    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: Any = None) -> Any:
        assume_once("paged optimizer states of bitsandbytes lie in the host's memory")
        with state.current.placed(on_host=True):
            tensor: Any = torch.zeros(*shape, dtype=dtype, device="cpu")
        tensor.is_paged, tensor.page_deviceid = True, getattr(device, "index", 0)
        return tensor

    module.get_paged = get_paged


def _know_a_stream() -> None:
    if not hasattr(compiled, RAW_STREAM):
        setattr(compiled, RAW_STREAM, lambda device: 0)


def _load_for_cuda(_module: Any) -> None:
    with contextlib.suppress(ModuleNotFoundError):  # versions before 0.46 have no backends
        import_module("bitsandbytes.backends.cuda.ops")


class _Native:
    """The compiled library: functions of the host are its own, unless the host is simulated, and kernels do nothing."""

    def __init__(self, native: Any) -> None:
        self._functions = getattr(native, "_lib", None)

    def __getattr__(self, name: str) -> Any:
        function = _Launch(getattr(self._functions, name, None))
        setattr(self, name, function)
        return function

    __getitem__ = __getattr__


class _Launch:
    """A function of it. One for CUDA, or of a host that is simulated, gives what stands for success."""

    def __init__(self, of_host: Callable[..., Any] | None) -> None:
        self._of_host = of_host

    def __call__(self, *args: Any) -> Any:
        is_asking = not args
        if self._of_host is not None and (state.current.cuda or is_asking):
            return self._of_host(*args)
        device = "CUDA" if state.current.cuda else "the CPU"
        assume_once(f"kernels of bitsandbytes are not run: its own code for {device} allocates what they write")
        return 0
