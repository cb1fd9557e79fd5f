"""Around a program that runs for real: PyTorch's settings, what may be missing, its phases, and what it holds."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves

from memlint.base.frames import chain
from memlint.base.patching import patched
from memlint.memory.records import Category, Phase
from memlint.validate.measurement import Conditions, Flags


@contextmanager
def under(conditions: Conditions) -> Iterator[None]:
    """Set PyTorch's global settings as `conditions` say."""
    precision, benchmark = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision(conditions.matmul_precision)
    torch.backends.cudnn.benchmark = conditions.cudnn_benchmark
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = benchmark


def flags_now() -> Flags:
    """PyTorch's global settings as they are."""
    of_cudnn = ("enabled", "benchmark", "deterministic", "allow_tf32")
    return Flags(
        matmul_precision=torch.get_float32_matmul_precision(),
        deterministic_algorithms=torch.are_deterministic_algorithms_enabled(),
        **{f"cudnn_{name}": getattr(torch.backends.cudnn, name) for name in of_cudnn},
    )


def reason_to_skip(error: BaseException) -> str | None:
    """Why a Workload cannot run here through no fault of its own, or None."""
    for link in chain(error):
        if isinstance(link, torch.OutOfMemoryError):
            return "too big for this GPU"
        if isinstance(link, ModuleNotFoundError):
            return f"the package {link.name} is not installed"
    return None


@contextmanager
def watched_phases(*watchers: Callable[[Phase], None]) -> Iterator[None]:
    """Call `watchers` with each phase that begins: backward and optimizer, and forward again after them."""
    backward = torch.autograd.backward
    depth = 0

    def enter(phase: Phase) -> None:
        for watcher in watchers:
            watcher(phase)

    def watched_backward(*arguments: Any, **named: Any) -> None:
        nonlocal depth
        depth += 1  # reentrant checkpointing calls it within itself
        if depth == 1:
            enter(Phase.BACKWARD)
        try:
            backward(*arguments, **named)
        finally:
            depth -= 1
            if depth == 0:
                enter(Phase.FORWARD)

    hooks = [
        register_optimizer_step_pre_hook(lambda *_: enter(Phase.OPTIMIZER)),
        register_optimizer_step_post_hook(lambda *_: enter(Phase.FORWARD)),
    ]
    try:
        with patched([(torch.autograd, "backward", watched_backward)]):
            yield
    finally:
        for hook in hooks:
            hook.remove()


class Holdings:
    """Bytes of the tensors a program holds, by category, the most at once; host tensors of a GPU's do not count."""

    def __init__(self, program: Any, device: str) -> None:
        self.program = program
        self.device = device
        self.nbytes: dict[Category, int] = {}

    def note_gradients(self, phase: Phase) -> None:
        """Note the gradients when forward begins: they are whole once a backward has ended."""
        if self.program.model is not None and phase is Phase.FORWARD:
            self._note(Category.GRADIENT, [parameter.grad for parameter in self.program.model.parameters()])

    def finish(self) -> dict[Category, int]:
        """What was seen, with what is there at the end."""
        model, optimizer = self.program.model, self.program.optimizer
        parameters = self._note(Category.PARAMETER, model.parameters())
        self._note(Category.BUFFER, model.buffers(), parameters)
        self._note(Category.INPUT, tree_leaves(self.program.inputs))
        states = optimizer.state.values() if optimizer is not None else ()
        self._note(Category.OPTIMIZER_STATE, tree_leaves([dict(state) for state in states]))
        return self.nbytes

    def _note(self, category: Category, values: Iterable[Any], but: frozenset[int] = frozenset()) -> frozenset[int]:
        """The addresses of the storages; those in `but` do not count."""
        storages = {
            storage.data_ptr(): storage.nbytes()
            for value in values
            if isinstance(value, torch.Tensor) and value.device.type == self.device
            for storage in _storages(value)
        }
        total = sum(nbytes for address, nbytes in storages.items() if address not in but)
        if total > self.nbytes.get(category, 0):
            self.nbytes[category] = total
        return but | storages.keys()


def _storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """Those a tensor lies in: of a sparse one, its indices' and values'."""
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices().untyped_storage(), tensor._values().untyped_storage()]
    return [tensor.untyped_storage()]
