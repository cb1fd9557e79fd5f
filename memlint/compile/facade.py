"""The facade, put away while PyTorch compiles: PyTorch's own code then finds its own functions."""

import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.variable import Variable

from memlint.accelerator import state
from memlint.accelerator.private import ENGINE, MAKE_WRAPPER, TRITON_CHECKS, call_module, init_module, originals
from memlint.cuda.facade import early_names, queries
from memlint.cuda.simulated import MISSING, Replaced, Simulated

KEPT = {
    *((torch.Tensor, name) for name in ("device", "is_cuda", "is_cpu", "get_device", "data_ptr", "__repr__")),
    (torch.Tensor, MAKE_WRAPPER),
    *((torch.UntypedStorage, name) for name in ("data_ptr", "clone", "copy_")),
    (Variable, ENGINE),
}
"""Attributes that stay: owner and name. PyTorch asks tensors for their device and address, copies the constants of a
graph, and knows no virtual device; and exceptions leave a backward, also one that is traced, through memlint's engine
alone.
"""


def kept_while_compiling(running: Simulated) -> Collection[tuple[Any, str]]:
    """Owners and names of what stays while PyTorch compiles: beside `KEPT`, what is asked about the GPU."""
    if not running.cuda:
        return KEPT
    return KEPT | {(owner, name) for owner, name, _ in queries.patches(running)}


def _replaced_makers() -> list[Replaced]:
    """Functions that make tensors of data and accept absent weights: TorchDynamo knows PyTorch's own alone."""
    makers = ((name, getattr(originals, name)) for name in ("tensor", "as_tensor", "asarray"))
    return [
        Replaced(torch, name, original, value)
        for name, original in makers
        if (value := vars(torch)[name]) is not original
    ]


_TRITON = "triton"


class Facade:
    """All that the program's simulation replaces in PyTorch, but for what is `kept`: owners and names."""

    def __init__(self, running: Simulated, kept: Collection[tuple[Any, str]] = ()) -> None:
        replaced = [*running.facade, *_replaced_makers()]
        self._replaced = [each for each in replaced if (each.owner, each.name) not in kept]
        answered = set(kept) - KEPT
        self._answers = [each for each in running.facade if (each.owner, each.name) in answered]
        functions = [each for each in replaced if callable(each.original) and callable(each.value)]
        functions = [each for each in functions if (each.owner, each.name) not in kept]
        self._away = {each.value: each.original for each in functions}
        self._back = {each.original: each.value for each in functions}
        self._others: list[tuple[Any, str, Any]] = [
            (torch.nn.Module, "__call__", call_module),
            (torch.nn.Module, "__init__", init_module),  # a slice of a ModuleList is another module
            (torch.accelerator, "is_available", lambda: False),  # TorchDynamo then follows no streams
        ]
        self._depth = 0
        self.originals = frozenset(map(id, self._back)) | {id(call_module), id(init_module)}
        """Ids of PyTorch's functions in whose place the program finds others."""

    @contextmanager
    def away(self) -> Iterator[None]:
        """Put it away inside the block, and nobody listens to kernels; within another such block it is away already."""
        if self._depth:
            yield
            return
        observers = state.current.observers
        listening, observers[:] = list(observers), []
        hidden = [(each.owner, each.name, each.original) for each in self._replaced] + self._others
        hidden += [(each.owner, each.name, each.value) for each in self._answers]  # without what notes who asks
        shown = [(owner, name, vars(owner).get(name, MISSING)) for owner, name, _ in hidden]  # maybe replaced again
        self._depth = 1
        triton = _hide_triton()
        try:
            for owner, name, original in hidden:
                _set(owner, name, original)
            early_names.exchange(self._away)
            yield
        finally:
            for owner, name, value in shown:
                _set(owner, name, value)
            early_names.exchange(self._back)
            observers[:] = listening
            _show_triton(triton)
            self._depth = 0


def _hide_triton() -> dict[str, Any]:
    """Let PyTorch find no Triton, installed or not; return its modules."""
    modules = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _TRITON}
    for name in modules:
        del sys.modules[name]
    sys.modules[_TRITON] = None  # type: ignore[assignment]  # its import fails
    _ask_again()
    return modules


def _show_triton(modules: Mapping[str, Any]) -> None:
    sys.modules.pop(_TRITON, None)
    sys.modules.update(modules)
    _ask_again()


def _ask_again() -> None:
    """Let PyTorch forget if there is a Triton."""
    for value in vars(TRITON_CHECKS).values():
        if hasattr(value, "cache_clear"):
            value.cache_clear()


def _set(owner: Any, name: str, value: Any) -> None:
    if value is not MISSING:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)
