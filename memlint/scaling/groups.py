"""Calls that are the same at every size, and the memory they take at a size that was not traced.

A kernel without hidden memory allocates only its results, whose sizes are polynomials as its arguments are: it need not
run. All other kernels are called, because their memory may jump. The shapes that PyTorch infers meanwhile are
polynomials again, and are passed to the kernel, as inferring them is most of the work.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from memlint.accelerator.inference import Remembered, remembering
from memlint.scaling.forms import Form, Make, Places, form_of, maker
from memlint.scaling.recorded_calls import Born, Call, Pattern, can_be_made_alone, make_alone


@dataclass(eq=False)
class Group:
    """Calls with one kernel and the same arguments at every point of a grid."""

    call: Call
    """One of them, at the first point."""
    patterns: tuple[Pattern | None, ...]
    """Pattern of a call made alone at each point; None where it cannot be made."""
    is_steady: bool
    """True if only the bytes differ from size to size, as polynomials."""
    numbers: np.ndarray
    """(points, numbers of the arguments and of the shapes inferred meanwhile)"""
    inferred: tuple[tuple[Form, Form], ...]
    """Forms of each request to infer shapes and of its result, if the call has to be made and these are the same
    everywhere."""

    @classmethod
    def of(cls, calls: Sequence[Call], patterns: dict[object, tuple[Pattern | None, Remembered]]) -> Self:
        """Learn from one call at each point; `patterns` caches the patterns of calls of this form, by their numbers."""
        alone = can_be_made_alone(calls[0])
        seen = [_cached(call, patterns) if alone else (None, Remembered()) for call in calls]
        alone_patterns = tuple(pattern for pattern, _inferred in seen)
        kernel = calls[0].kernel
        plain = kernel.hand_written is None and kernel.temporaries is None
        constant = all(call.numbers == calls[0].numbers for call in calls)
        structures = {(pattern.events, pattern.kept) for pattern in alone_patterns if pattern is not None}
        is_steady = None not in alone_patterns and len(structures) == 1 and (plain or constant)
        flat = [_flattened({} if is_steady else inferred) for _pattern, inferred in seen]
        alike = all(forms == flat[0][0] for forms, _numbers in flat)
        numbers = [[*call.numbers, *(more if alike else ())] for call, (_forms, more) in zip(calls, flat, strict=True)]
        return cls(
            calls[0],
            alone_patterns,
            is_steady=is_steady,
            numbers=np.array(numbers, dtype=np.int64).reshape(len(calls), -1),
            inferred=flat[0][0] if alike else (),
        )

    def infer_anew(self) -> None:
        """Use no inferred shapes from now on."""
        self.inferred = ()
        self.__dict__.pop("_makers", None)

    @functools.cached_property
    def _makers(self) -> list[tuple[Make, Make]]:
        """Makers of each request to infer shapes and of its result."""
        places = Places(len(self.call.numbers))
        return [(maker(key, places), maker(value, places)) for key, value in self.inferred]

    @property
    def births(self) -> np.ndarray:
        """(points, births, 3): bytes of every storage with their bounds, of a steady group."""
        return np.array([pattern.births for pattern in self.patterns if pattern], dtype=np.int64).reshape(
            len(self.patterns), -1, len(Born._fields)
        )

    def pattern_at(self, numbers: Sequence[int]) -> Pattern | None:
        """Return the pattern of a call with these numbers, as in `Group.numbers`; None if it cannot be made alone."""
        split = len(self.call.numbers)
        remembered = Remembered((key(numbers, ()), value(numbers, ())) for key, value in self._makers)
        return _alone(self.call, tuple(numbers[:split]), remembered)

    def has_births(self, numbers: Sequence[int], births: Sequence[Sequence[int]]) -> bool:
        """Return True if a call that infers everything again makes these births."""
        first = self.patterns[0]
        alone = _alone(self.call, tuple(numbers[: len(self.call.numbers)]), Remembered())
        return (
            alone is not None and first is not None and alone == first._replace(births=tuple(map(Born._make, births)))
        )


def _cached(call: Call, patterns: dict[object, tuple[Pattern | None, Remembered]]) -> tuple[Pattern | None, Remembered]:
    if call.numbers not in patterns:
        inferred = Remembered()
        patterns[call.numbers] = _alone(call, call.numbers, inferred), inferred
    return patterns[call.numbers]


def _alone(call: Call, numbers: tuple[int, ...], remembered: Remembered) -> Pattern | None:
    try:
        with remembering(remembered):
            return make_alone(call, numbers)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None  # its arguments are more than its form and its numbers


def _flattened(inferred: Mapping[Any, Any]) -> tuple[tuple[tuple[Form, Form], ...], list[int]]:
    """Return forms and whole numbers of all inferred shapes, in order."""
    numbers: list[int] = []
    forms = tuple((form_of(key, numbers), form_of(value, numbers)) for key, value in inferred.items())
    return forms, numbers
