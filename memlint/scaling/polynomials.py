"""Sizes of named dimensions at which a program was traced, and polynomials through the traced numbers."""

import itertools
from typing import NamedTuple, TypeAlias

import numpy as np

Point: TypeAlias = "tuple[int, ...]"
"""One size for each dimension that varies, in their order."""

NUM_SIZES = 3
"""Traced sizes along each dimension: as many as a polynomial of degree two needs; two determine a line."""
_FOR_INT64 = 2**57


class Grid(NamedTuple):
    """Two or three sizes along each dimension, equally far apart."""

    axes: tuple[range, ...]

    @property
    def points(self) -> list[Point]:
        """All combinations, the last dimension varying fastest."""
        return list(itertools.product(*self.axes))

    def has_lines_to(self, point: Point) -> bool:
        """Return True if a point lies whole steps away."""
        return all((size - axis.start) % axis.step == 0 for size, axis in zip(point, self.axes, strict=True))

    def at(self, known: np.ndarray, point: Point) -> np.ndarray:
        """Evaluate polynomials at `point` (Newton's formula), exact for any magnitude.

        Their degree is two in a dimension of three sizes, and one in a dimension of two.

        `known` is of shape (points, ...), and the result of shape (...): integers, Python's own where 64 bits may not
        suffice. Steps to the point must be whole.
        """
        values = known.reshape(tuple(map(len, self.axes)) + known.shape[1:])
        for size, axis in zip(point, self.axes, strict=True):
            steps = (size - axis.start) // axis.step
            once = values[1] - values[0]
            twice = values[2] - 2 * values[1] + values[0] if len(axis) == NUM_SIZES else np.zeros_like(once)
            pairs = steps * (steps - 1) // 2
            if values.dtype != object:
                extremes = (end for each in (values[0], once, twice) if each.size for end in (each.min(), each.max()))
                most = max((abs(int(extreme)) for extreme in extremes), default=0)
                if most * max(1, abs(steps), abs(pairs)) > _FOR_INT64:
                    values, once, twice = (each.astype(object) for each in (values, once, twice))
            values = values[0] + once * steps + twice * pairs
        return values


def size_name(point: Point) -> str:
    """Name a point as messages do."""
    return f"size {' x '.join(map(str, point))}"
