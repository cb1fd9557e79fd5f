"""Reuse of results in evaluation loops, which call one model on many batches of one shape.

From the third batch on, a call returns the result of the second. A call that leaves more behind than its outputs, or
writes into older tensors, belongs to a stateful model and always runs. So does a call whose outputs are not all new
tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from memlint.accelerator.device import entry_of, is_virtual
from memlint.accelerator.private import tree_flatten, tree_unflatten
from memlint.cuda.autocast import cast_weights

if TYPE_CHECKING:
    from memlint.tracing.recorder import Arguments, Function, Keywords, Recorder

_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


class _OutputRecipe(NamedTuple):
    """A recipe for an output of a call, to create another one like it."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class Evaluations:
    """The evaluation calls of a script."""

    def __init__(self, recorder: Recorder, *, repeat: bool) -> None:
        self.num_calls = 0
        self.num_remembered = 0
        """Number of calls answered from memory."""
        self._recorder = recorder
        self._repeat = repeat
        self._seen: dict[object, int] = {}
        self._answers: dict[object, tuple[list[Any], Any]] = {}
        self._first_new: int | None = None
        """During a watched call: the lowest number of the Buffers that it creates."""
        self._wrote_before = False

    def note_write(self, written: list[torch.Tensor]) -> None:
        """Note that a kernel has written these tensors."""
        if self._first_new is not None and not self._wrote_before:
            self._wrote_before = any(
                is_virtual(t) and t.layout is torch.strided and entry_of(t).number < self._first_new for t in written
            )

    def answer(
        self, outermost_call: Function, call: Function, module: torch.nn.Module, args: Arguments, kwargs: Keywords
    ) -> Any:
        """Return the result of the call, computed or remembered."""
        key = None if self._repeat else _key(module, args, kwargs)
        if key is None:
            return outermost_call(call, module, args, kwargs)
        if key in self._answers:
            self.num_remembered += 1
            leaves, spec = self._answers[key]
            with torch.no_grad():
                made = [
                    torch.empty(each.shape, dtype=each.dtype, device="cuda")
                    if isinstance(each, _OutputRecipe)
                    else each
                    for each in leaves
                ]
            return tree_unflatten(made, spec)
        ledger = self._recorder.ledger
        self._first_new, self._wrote_before = len(ledger.births), False
        position = len(ledger.events)
        try:
            output = outermost_call(call, module, args, kwargs)
        finally:
            first_new, self._first_new = self._first_new, None
        self._seen[key] = self._seen.get(key, 0) + 1
        if self._seen[key] == 2 and not self._wrote_before:
            leaves, spec = tree_flatten(output)
            left = {event for event in ledger.events[position:] if event >= 0}
            left -= {~event for event in ledger.events[position:] if event < 0}
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            if all(isinstance(leaf, (*_PLAIN, torch.Tensor)) for leaf in leaves) and all(
                is_virtual(t) and t.layout is torch.strided and entry_of(t).number >= first_new for t in tensors
            ):
                expected = {entry_of(t).number for t in (*tensors, *cast_weights())}
                kept = left - self._recorder.workspaces.numbers - expected
                if not kept:
                    answer = [
                        _OutputRecipe(tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else x for x in leaves
                    ]
                    self._answers[key] = (answer, spec)
        return output


def _key(module: torch.nn.Module, args: Arguments, kwargs: Keywords) -> object:
    """Return a key that distinguishes calls; None if an argument is not comparable."""
    leaves, spec = tree_flatten((args, kwargs))
    described: list[object] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            described.append((tuple(leaf.shape), leaf.stride() if leaf.layout is torch.strided else None, leaf.dtype))
            described.append(leaf.device)
        elif isinstance(leaf, _PLAIN):
            described.append(leaf)
        else:
            return None
    autocast = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
    return id(module), module.training, autocast, str(spec), tuple(described)
