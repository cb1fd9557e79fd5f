"""Compilations of one program: everything that is replaced in TorchDynamo, AOTAutograd and Inductor while it runs."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch

from memlint.accelerator import lazy_imports
from memlint.accelerator.device import NAME
from memlint.accelerator.lazy_imports import compile_really
from memlint.accelerator.private.compilation import (
    COMPILE_FRAME,
    COMPILE_GRAPH,
    COMPILE_INNER,
    LOG_BREAK,
    LOWER_NODE,
    CompiledGraph,
    CudaInterface,
    Failures,
    HookTypes,
    Lowering,
    Refusals,
    Translator,
    called_while_compiling,
    compilation,
    convert_frame,
    dynamo_config,
    follow_file,
    forget_fakes,
    functorch_config,
    hints,
    in_frame_of_its_own,
    inductor_config,
    interface_of,
    interfaces,
    is_left_out,
    log_break,
    lower_node,
    reset,
    skip_package,
    worker_properties,
)
from memlint.base import environment
from memlint.base.frames import text_of
from memlint.base.patching import Patch, patched
from memlint.compile import answers, autotuning, fakes, graphs, kernels, known_values, optimizer_steps, origins, pools
from memlint.compile.facade import Facade
from memlint.compile.fallback import graph_break, not_compiled
from memlint.compile.padding import Padding
from memlint.cuda.facade import queries
from memlint.cuda.simulated import Simulated, simulated
from memlint.libraries import flash_attn, flash_attn_3, library, triton
from memlint.memory.records import Assumption

_SETTINGS: dict[str, Any] = {
    "fx_graph_cache": False,
    "max_autotune_gemm_backends": "ATEN",
    "max_autotune_conv_backends": "ATEN",
    "benchmark_epilogue_fusion": False,
    "size_asserts": False,
    "alignment_asserts": False,
    "compile_threads": 1,
}
"""Settings of Inductor: nothing is timed, checked at run time, or kept for a program with a GPU to find."""
_SETTINGS_OF_AUTOGRAD = {"enable_autograd_cache": False}

skip_package("memlint")
for _module in (flash_attn, flash_attn_3, library, triton, environment, queries, optimizer_steps):
    # Their functions are as traceable as those that they stand for.
    follow_file(str(_module.__file__))
for _function in (triton.parameters, environment.note_read):
    called_while_compiling(_function)


class Compilation:
    """All compilations of one simulation."""

    def __init__(self, running: Simulated, facade: Facade, patience: float, announce: Callable[[str], None]) -> None:
        """`patience` are the seconds of processor time that all may take; `announce` is told what is compiled."""
        self._patience = patience
        self._announce = announce
        self._num_graphs = 0
        self._seconds = 0.0
        self._began: float | None = None
        self._shown = "cuda" if running.cuda else "cpu"
        self._facade = facade
        self._in_parts = running.compiles_in_parts

    def compiled(
        self, function: Callable[..., Any], options: dict[str, Any], module: torch.nn.Module | None
    ) -> Callable[..., Any]:
        """Return the compiled `function`, the call of `module` if there is one; `options` are those of `torch.compile`.

        Of a module of PyTorch's own, such as Sequential, Dynamo would leave the forward out.
        """
        eager = function
        with self._facade.away():
            if module is not None and is_left_out(module.forward):
                function = in_frame_of_its_own(function)
            try:
                made: Callable[..., Any] = compile_really(function, **options)
            except Exception as error:
                if not self._in_parts:
                    raise
                simulated().about_compilation.setdefault(not_compiled(error))
                return eager
        return _or_eager(made, eager) if self._in_parts else made

    def patches(self) -> list[Patch]:
        """Patches of entry points: owner, name, replacement."""
        frame, graph, inner = (
            getattr(convert_frame, COMPILE_FRAME),
            getattr(compilation, COMPILE_GRAPH),
            getattr(compilation, COMPILE_INNER),
        )
        away, shown, in_parts, begin = self._compiling, self._shown, self._in_parts, self._begin_graph

        def compile_frame(*args: Any, **kwargs: Any) -> Any:
            args = tuple(self._without_guards(value) for value in args)
            kwargs = {name: self._without_guards(value) for name, value in kwargs.items()}
            with away():
                try:
                    return frame(*args, **kwargs)
                except Failures as error:
                    if in_parts:
                        simulated().about_compilation.setdefault(not_compiled(error))
                    raise

        def compile_inner(module: Any, inputs: Any, **kwargs: Any) -> Any:
            with away():  # a backward is compiled when it first runs, outside of Dynamo
                begin()
                gives_values = known_values.followed(module)
                graphs.rename(module, NAME, shown)
                if shown == "cuda":
                    autotuning.take_examples(module)
                code = inner(module, inputs, **kwargs)
                if isinstance(code, CompiledGraph):
                    code.current_callable = gives_values(code.current_callable)
                return code

        def compile_graph(module: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            graphs.rename(module, shown, NAME)
            kwargs.setdefault("inner_compile", compile_inner)
            with patched(fakes.MAKERS):
                return graph(module, inputs, *args, **kwargs)

        def lower(lowering: Any, node: Any) -> Any:
            self._check_time()
            return lower_node(lowering, node)

        return [
            (Translator, LOG_BREAK, _log_break),
            (convert_frame, COMPILE_FRAME, compile_frame),
            (compilation, COMPILE_GRAPH, compile_graph),
            (compilation, COMPILE_INNER, compile_inner),
            (Lowering, LOWER_NODE, lower),
        ]

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Put the facade away, and count the time."""
        if self._began is not None:
            yield
            return
        self._began = time.process_time()
        self._announce("compiling")
        try:
            with self._facade.away():
                self._check_time()
                yield
        finally:
            self._seconds += time.process_time() - self._began
            self._began = None
            lazy_imports.Compilation.seconds = self._seconds
            lazy_imports.Compilation.number += 1
            self._announce("")

    def _begin_graph(self) -> None:
        self._num_graphs += 1
        self._announce(f"compiling graph {self._num_graphs}")

    def _check_time(self) -> None:
        """Raise TimeoutError if compiling has taken longer than it may."""
        assert self._began is not None
        if self._seconds + time.process_time() - self._began > self._patience:
            message = f"compiling takes more than {self._patience:.0f} s of processor time"
            raise TimeoutError(f"{message}; allow more with --timeout SECONDS")

    def _without_guards(self, hooks: Any) -> Any:
        """Leave out guards that ask for a function in whose place the running program finds another."""
        if not isinstance(hooks, HookTypes):
            return hooks
        given = hooks.guard_filter_fn

        def keep(entries: Any) -> list[bool]:
            for entry in entries:  # guards are made twice where they are filtered, each time with an array's new tensor
                entry.orig_guard.obj_weakref = None
            asked = [True] * len(entries) if given is None else given(entries)
            replaced = self._facade.originals
            return [
                keeps and not (entry.has_value and id(entry.value) in replaced)
                for keeps, entry in zip(asked, entries, strict=True)
            ]

        return dataclasses.replace(hooks, guard_filter_fn=keep)


def _note_break(assumption: Assumption) -> None:
    simulated().about_compilation.setdefault(assumption)
    if assumption.frame is not None:
        simulated().graph_breaks.setdefault(assumption.frame)


def _or_eager(compiled: Callable[..., Any], eager: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls `eager` from then on that `compiled`, which may leave no part of it to Python, is refused."""
    is_refused = False

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_refused
        if not is_refused:
            try:
                return compiled(*args, **kwargs)
            except Refusals as error:
                is_refused = True
                simulated().about_compilation.setdefault(not_compiled(error))
        return eager(*args, **kwargs)

    return run


def _log_break(translator: Any, options: Any, reason: str = "", **others: Any) -> None:
    """Stand in for `log_graph_break`, which takes the stack until torch 2.10, and the exception since then."""
    exc, stack = others.get("exc"), others.get("user_stack")
    if exc is not None and not exc.logged:
        stack = getattr(exc, "real_stack", None)
    if stack:
        text = reason.partition(":\n\n")[2] if exc is None else text_of(exc)
        _note_break(graph_break(text, stack))
    log_break(translator, options, reason=reason, **others)


@contextmanager
def compiling(
    running: Simulated, facade: Facade, patience: float, announce: Callable[[str], None]
) -> Iterator[Compilation]:
    """Let `torch.compile` compile for the simulated device inside the block, and forget it all at its end.

    What would take more than `patience`, in seconds of processor time, fails; `announce` is told what is compiled.
    """
    _forget()
    made = Compilation(running, facade, patience, announce)
    with ExitStack() as exits:
        exits.callback(_forget)
        folder = exits.enter_context(TemporaryDirectory(prefix="memlint-compiled-"))
        exits.enter_context(_environment("TORCHINDUCTOR_CACHE_DIR", folder))
        patches = [*fakes.patches(running), *kernels.patches(running), *answers.patches(running), *made.patches()]
        if running.cuda:
            exits.enter_context(_interface())
            patches += [*pools.patches(), *Padding().patches()]
        exits.enter_context(patched(patches))
        exits.enter_context(inductor_config.patch(_SETTINGS))
        exits.enter_context(functorch_config.patch(_SETTINGS_OF_AUTOGRAD))
        if running.compiles_in_parts:
            exits.enter_context(dynamo_config.patch(suppress_errors=True))
            exits.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))
        yield made


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


def _forget() -> None:
    reset()
    forget_fakes()
    origins.forget()


@contextmanager
def _interface() -> Iterator[None]:
    """Let Dynamo and Inductor ask the simulated GPU."""
    interface_of("cuda")
    before = interfaces.get("cuda:0"), worker_properties.get("cuda")
    interfaces["cuda:0"] = CudaInterface
    worker_properties["cuda"] = [torch.cuda.get_device_properties()]
    hints.DeviceProperties.create.cache_clear()
    try:
        yield
    finally:
        hints.DeviceProperties.create.cache_clear()
        for table, key, value in ((interfaces, "cuda:0", before[0]), (worker_properties, "cuda", before[1])):
            if value is None:
                del table[key]
            else:
                table[key] = value
