"""Calls that are one and the same at every size, and what they take at a size that was not traced.

A kernel that takes nothing for itself takes what it returns: with its arguments that is a polynomial, and needs no
kernel. All others are called, because what they take may jump. The shapes that PyTorch infers meanwhile are polynomials
again, and are handed to the kernel, as inferring them is most of the work.
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
    """What it does when it is made alone at each point; None where it cannot be."""
    is_steady: bool
    """Whether only the bytes differ from size to size, as polynomials."""
    numbers: np.ndarray
    """(points, arguments' numbers and those of what is inferred meanwhile)"""
    inferred: tuple[tuple[Form, Form], ...]
    """Forms of what is asked for and of what is inferred, where it is called for and these are the same everywhere."""

    @classmethod
    def of(cls, calls: Sequence[Call], patterns: dict[object, tuple[Pattern | None, Remembered]]) -> Self:
        """Learn from one call at each point; `patterns` is what calls of this form were seen to do, by numbers."""
        alone = can_be_made_alone(calls[0])
        seen = [_made(call, patterns) if alone else (None, Remembered()) for call in calls]
        made = tuple(pattern for pattern, _inferred in seen)
        kernel = calls[0].kernel
        plain = kernel.hand_written is None and kernel.temporaries is None
        constant = all(call.numbers == calls[0].numbers for call in calls)
        structures = {(pattern.events, pattern.kept) for pattern in made if pattern is not None}
        is_steady = None not in made and len(structures) == 1 and (plain or constant)
        flat = [_flattened({} if is_steady else inferred) for _pattern, inferred in seen]
        alike = all(forms == flat[0][0] for forms, _numbers in flat)
        numbers = [[*call.numbers, *(more if alike else ())] for call, (_forms, more) in zip(calls, flat, strict=True)]
        return cls(
            calls[0],
            made,
            is_steady=is_steady,
            numbers=np.array(numbers, dtype=np.int64).reshape(len(calls), -1),
            inferred=flat[0][0] if alike else (),
        )

    def infer_anew(self) -> None:
        """Rely on nothing that was inferred."""
        self.inferred = ()
        self.__dict__.pop("_makers", None)

    @functools.cached_property
    def _makers(self) -> list[tuple[Make, Make]]:
        """What makes everything that is asked for, and what is inferred then."""
        places = Places(len(self.call.numbers))
        return [(maker(key, places), maker(value, places)) for key, value in self.inferred]

    @property
    def births(self) -> np.ndarray:
        """(points, births, 3): bytes of every storage with their bounds, of a steady group."""
        return np.array([pattern.births for pattern in self.patterns if pattern], dtype=np.int64).reshape(
            len(self.patterns), -1, len(Born._fields)
        )

    def made(self, numbers: Sequence[int]) -> Pattern | None:
        """What it does with these numbers, as in `Group.numbers`; None if it cannot be made alone."""
        split = len(self.call.numbers)
        remembered = Remembered((key(numbers, ()), value(numbers, ())) for key, value in self._makers)
        return _alone(self.call, tuple(numbers[:split]), remembered)

    def is_as_made(self, numbers: Sequence[int], births: Sequence[Sequence[int]]) -> bool:
        """Whether these births are what a call that infers everything anew leaves."""
        first = self.patterns[0]
        made = _alone(self.call, tuple(numbers[: len(self.call.numbers)]), Remembered())
        return made is not None and first is not None and made == first._replace(births=tuple(map(Born._make, births)))


def _made(call: Call, patterns: dict[object, tuple[Pattern | None, Remembered]]) -> tuple[Pattern | None, Remembered]:
    if call.numbers not in patterns:
        inferred = Remembered()
        patterns[call.numbers] = _alone(call, call.numbers, inferred), inferred
    return patterns[call.numbers]


def _alone(call: Call, numbers: tuple[int, ...], remembered: Remembered) -> Pattern | None:
    try:
        with remembering(remembered):
            return make_alone(call, numbers)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return None  # what it was called with is more than its form and its numbers


def _flattened(inferred: Mapping[Any, Any]) -> tuple[tuple[tuple[Form, Form], ...], list[int]]:
    """Forms and whole numbers of everything in it, in order."""
    numbers: list[int] = []
    forms = tuple((form_of(key, numbers), form_of(value, numbers)) for key, value in inferred.items())
    return forms, numbers
