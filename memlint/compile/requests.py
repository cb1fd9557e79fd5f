"""`torch.compile` in a program: compiled where its simulation compiles, and eager anywhere else."""

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from memlint.accelerator import lazy_imports, state
from memlint.accelerator.private import CALL_COMPILED, INLINED, call_uncompiled
from memlint.compile import optimizer_steps
from memlint.compile.facade import Facade, kept_while_compiling
from memlint.cuda.simulated import Simulated


def compile_where_simulated(model: Any = None, **options: Any) -> Any:
    """Stand in for `torch.compile`. A module is compiled in place: the program finds it under its own name."""
    if model is None:
        return functools.partial(compile_where_simulated, **options)
    if isinstance(model, torch.nn.Module):
        setattr(model, CALL_COMPILED, _compiled(call_uncompiled(model), options, model))
        return model
    owner = getattr(model, "__self__", None)
    if isinstance(owner, torch.nn.Module) and model == owner.__call__:
        return _compiled_call(owner, options)
    return _compiled(model, options)


def _compiled_call(module: torch.nn.Module, options: dict[str, Any]) -> Callable[..., Any]:
    """Return the compiled `__call__` of a module that runs eagerly where the program calls itself."""
    compiled = _compiled(call_uncompiled(module), options, module)

    return lambda *args, **kwargs: _called(module, compiled, args, kwargs)


def _called(module: torch.nn.Module, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the module, which runs `call`."""
    own = vars(module)
    before = own.get(CALL_COMPILED)
    own[CALL_COMPILED] = call
    try:
        return module(*args, **kwargs)
    finally:
        own[CALL_COMPILED] = before


def _called_with(
    model: torch.nn.Module, compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run compiled code that a model is given to within a call of this model.

    That is what is observed: the code calls the model's parts without their calls in Python.
    """
    own_call = vars(model).get(CALL_COMPILED)

    def call(*_args: Any, **_kwargs: Any) -> Any:
        setattr(model, CALL_COMPILED, own_call)
        return compiled(*args, **kwargs)

    return _called(model, call, args, kwargs)


def _compiled(
    function: Callable[..., Any], options: dict[str, Any], module: torch.nn.Module | None = None
) -> Callable[..., Any]:
    """Return what compiles `function`, the call of `module` if there is one, when it first runs."""
    made: tuple[weakref.ref[Any], Callable[..., Any]] | None = None

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        lazy_imports.Compilation.is_requested = True
        running = state.current
        if not isinstance(running, Simulated) or not running.compiles:
            return function(*args, **kwargs)
        compilation = running.compilation or _begin(running)
        if made is None or made[0]() is not compilation:
            made = weakref.ref(compilation), compilation.compiled(function, options, module)
        given = () if module is not None else (*args, *kwargs.values())
        model = next((each for each in given if isinstance(each, torch.nn.Module)), None)
        result = made[1](*args, **kwargs) if model is None else _called_with(model, made[1], args, kwargs)
        optimizer_steps.tell()
        return result

    setattr(run, INLINED, function)
    return run


def _begin(running: Simulated) -> Any:
    """Load what compiles, and let it compile until the simulation ends."""
    compiling = _loaded()
    facade = Facade(running, kept_while_compiling(running))
    running.compilation = running.exits.enter_context(compiling(running, facade, Patience.seconds, Patience.announce))
    return running.compilation


def load_for(models: Iterable[torch.nn.Module], *, is_used: bool = False) -> None:
    """Load what compiles if one of these models, or a part of one, is compiled when it is called, or if it `is_used`.

    A process that is about to be copied loads it once for all copies.
    """
    running = state.current
    if not isinstance(running, Simulated) or not running.compiles:
        return
    if is_used or any(getattr(part, CALL_COMPILED, None) for model in models for part in model.modules()):
        _loaded()


def _loaded() -> Callable[..., AbstractContextManager[Any]]:
    with _facade_away():
        lazy_imports.make_room()
        from memlint.compile.simulation import compiling  # noqa: PLC0415 -- it takes seconds, and few programs ask
    return compiling


@contextmanager
def _facade_away() -> Iterator[None]:
    """Put the facade away, if there is one: PyTorch's compilers are imported inside, and remember its functions."""
    running = state.current
    with Facade(running).away() if isinstance(running, Simulated) else nullcontext():
        yield


class Patience:
    """The time that compilations may take in this process."""

    seconds = math.inf
    """Processor time of all of one simulation together; what takes longer runs eagerly."""
    announce: Callable[[str], None] = staticmethod(lambda _doing: None)
    """Called with what is compiled, and with an empty text when that is over."""


def install(seconds: float = math.inf, announce: Callable[[str], None] = Patience.announce) -> None:
    """Let `torch.compile` compile in this process where a program's simulation compiles.

    One simulation may compile for so many `seconds` of processor time; `announce` is called as `Patience` says.
    """
    torch.compile = compile_where_simulated
    lazy_imports.while_loading = _facade_away
    Patience.seconds = seconds
    Patience.announce = staticmethod(announce)
