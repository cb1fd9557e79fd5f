"""Generations by a script's own loop, which calls its model without gradients once for each token.

After a call with a prompt, one with a single token goes on with a generation: what came before is in a cache. Without a
cache each call takes one token more than the last; that shows with the third, as batches may differ in length by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from memlint.accelerator.private import tree_leaves
from memlint.memory.records import Phase, Round
from memlint.tracing.rounds import Rounds

if TYPE_CHECKING:
    from memlint.tracing.recorder import Recorder

_Shape = tuple[int, ...]
_ROUNDS_TO_MEET_ALL = 2
"""Rounds in which every part of the loop was called; another module belongs to what comes after it."""


class _Call(NamedTuple):
    """A call of a module: the shape of its tokens, and where it stands in the record."""

    tokens: _Shape | None
    place: Round
    end_node: int | None
    """None for the node where the next call begins."""


class OwnGenerations:
    """The generations of a script that no library makes; in each the recorder counts rounds."""

    def __init__(self, recorder: Recorder, called_for_token: Callable[[int], None]) -> None:
        """`called_for_token` is called after each round of `recorder` with its number."""
        self._recorder, self._called_for_token = recorder, called_for_token
        self._last: dict[int, list[_Call]] = {}
        """By the id of the module: its last calls, of which each goes on with the one before."""
        self._leader: int | None = None
        """The module that the running generation calls for each token; None without one."""
        self._has_cache = False
        """True if it reads single tokens."""
        self._members: set[int] = set()
        """All modules of its loop."""

    @property
    def is_open(self) -> bool:
        """True while such a generation runs."""
        return self._leader is not None

    @contextmanager
    def call(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[None]:
        """Take what runs within for a call of a model without gradients, which may be a round of a generation."""
        recorder = self._recorder
        if recorder.rounds is not None and not self.is_open:  # a library generates
            yield
            return
        key, tokens = id(module), _tokens(args, kwargs)
        self._follow(key, tokens)
        node, event = len(recorder.calls), len(recorder.ledger.events)
        yield
        place = Round(node, event, len(recorder.ledger.events))
        self._last.setdefault(key, []).append(_Call(tokens, place, len(recorder.calls)))
        if key == self._leader and recorder.rounds is not None:
            self._called_for_token(recorder.rounds.number)

    def note_first(self, module: torch.nn.Module, args: tuple[Any, ...]) -> None:
        """Note a call of a model, which goes on until the model is called again."""
        position = len(self._recorder.ledger.events)
        place = Round(len(self._recorder.calls), position, position)
        self._last[id(module)] = [_Call(_tokens(args, {}), place, None)]

    def close(self) -> None:
        """End the running generation, if there is one."""
        if self.is_open:
            self._leader, self._members = None, set()
            self._recorder.rounds, self._recorder.attribution.section = None, Phase.EVALUATION

    def _follow(self, key: int, tokens: _Shape | None) -> None:
        """Open a generation, go on with it or end it, as this call says."""
        last, rounds = self._last.get(key, []), self._recorder.rounds
        before = last[-1].tokens if last else None
        grows, is_one = _grows(before, tokens), _is_one_more(before, tokens)
        if not grows:
            del last[:-1]
        if not self.is_open:
            if (grows and len(last) == 2) or (is_one and before != tokens):
                self._has_cache = is_one
                self._open(key, last)
        elif key == self._leader:
            if not (is_one if self._has_cache else grows):
                self.close()
                last.clear()
        elif key not in self._members and rounds is not None and rounds.number >= _ROUNDS_TO_MEET_ALL:
            self.close()
        else:
            self._members.add(key)
        if not (grows or is_one):
            last.clear()
        del last[:-1]

    def _open(self, key: int, calls: list[_Call]) -> None:
        recorder = self._recorder
        for number, call in enumerate(calls):
            for kernel in recorder.calls[call.place.node : call.end_node]:
                kernel[1] = Phase.DECODE if number else Phase.PREFILL
            recorder.round_places.append(call.place)
        recorder.rounds = Rounds()
        recorder.rounds.number = len(calls)
        recorder.round_places.append(Round(len(recorder.calls), *2 * (len(recorder.ledger.events),)))
        recorder.attribution.section = Phase.DECODE
        self._leader, self._members = key, {key}


def _tokens(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Shape | None:
    """Return the shape of the tokens [batch, length], or of their embeddings [batch, length, size]; None without."""
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    whole = (each for each in tensors if each.dim() == 2 and not each.is_floating_point() and each.dtype != torch.bool)
    found = next(whole, next(iter(tensors), None))
    if found is None or (found.is_floating_point() and found.dim() != 3) or found.dim() not in (2, 3):
        return None
    return tuple(found.shape)


def _grows(before: _Shape | None, now: _Shape | None) -> bool:
    """Return True of whole numbers, one more in each text than before."""
    return before is not None and now is not None and now == (before[0], before[1] + 1)


def _is_one_more(before: _Shape | None, now: _Shape | None) -> bool:
    """Return True of a single token in each of the texts that came before."""
    return before is not None and now is not None and now == (before[0], 1, *before[2:])
