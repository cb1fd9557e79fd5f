"""Rounds of a generation by their number, from the first few."""

from dataclasses import dataclass
from typing import Self

from memlint.generation.rounds import Birth, Rounds
from memlint.scaling.polynomials import NUM_SIZES, Grid
from memlint.scaling.scaled import Lives, NotScalableError, Sample, Scaled, lives_of

BEGIN = 2
"""The first round that is learned from: in those before it what the prefill has left is freed."""


@dataclass
class Pieces:
    """Rounds by their number, learned from the first ones."""

    first: Rounds
    growths: tuple[Scaled, ...]
    """One for each round of a period."""

    @classmethod
    def learned(cls, first: Rounds, period: int) -> Self:
        """Learn from rounds that are alike after a period. Raises NotScalableError where they are not."""
        numbers = range(BEGIN, BEGIN + NUM_SIZES * period)
        if any(first.origins(number) != first.origins(BEGIN + (number - BEGIN) % period) for number in numbers):
            raise NotScalableError("they find other storages open")
        return cls(
            first,
            tuple(
                Scaled.of(Grid((points,)), [first.sample(number, number) for number in points])
                for start in range(BEGIN, BEGIN + period)
                for points in [range(start, start + NUM_SIZES * period, period)]
            ),
        )

    @property
    def period(self) -> int:
        """Rounds after which they are alike again."""
        return len(self.growths)

    def at(self, number: int) -> Lives:
        """Return one round, which first opens what it carries. Raises NotScalableError."""
        return self.growths[(number - BEGIN) % self.period].lives((number,))

    def origins(self, number: int) -> tuple[Birth, ...]:
        """Return where that opens, as in Rounds."""
        return self.first.origins(BEGIN + (number - BEGIN) % self.period)

    def predicts(self, sample: Sample) -> bool:
        """Return True if they lead to a traced round, at once or with its irregular calls made anew."""
        traced, (number,) = lives_of(sample.storages), sample.point
        if self.at(number) == traced:
            return True
        self.growths[(number - BEGIN) % self.period].settle((number,))
        return self.at(number) == traced
