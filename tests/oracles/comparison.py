"""A recorded run held against the predicted one: what one of them allocates and the other does not. Sizes are bytes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from memlint.memory.estimate import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.oracles.recordings import Event, Run


class Difference(NamedTuple):
    """An event that one of two runs has and the other lacks."""

    side: str
    """`recorded` or `predicted`: which of them has it."""
    op: str
    nbytes: int


def differences(recorded: Run, predicted: Run) -> Counter[Difference]:
    """What has to go and to come to turn one sequence of allocations and frees into the other, counted.

    After its last allocation a recording may end before everything is given back that the prediction gives back.
    """
    left, right = recorded.events, _cut(predicted.events, recorded.events)
    of_left, of_right = _unmatched([e.nbytes for e in left], [e.nbytes for e in right])
    return Counter(
        [Difference("recorded", left[i].op, left[i].nbytes) for i in of_left]
        + [Difference("predicted", right[i].op, right[i].nbytes) for i in of_right]
    )


def _unmatched(left: Sequence[int], right: Sequence[int]) -> tuple[list[int], list[int]]:
    """Positions in each that a longest common subsequence leaves out (Myers' greedy algorithm).

    `furthest[k]` is the position in `left`, k ahead of that in `right`, that so many edits reach.
    """
    furthest = {1: 0}
    before = []
    for num_edits in range(len(left) + len(right) + 1):
        before.append(furthest.copy())
        for k in range(-num_edits, num_edits + 1, 2):
            position = _step(furthest, k, num_edits)[1]
            while position < len(left) and position - k < len(right) and left[position] == right[position - k]:
                position += 1
            furthest[k] = position
        if furthest.get(len(left) - len(right), -1) >= len(left):
            break
    of_left, of_right = [], []
    k = len(left) - len(right)
    for num_edits in range(len(before) - 1, 0, -1):
        from_k, position = _step(before[num_edits], k, num_edits)
        if from_k > k:
            of_right.append(position - from_k)
        else:
            of_left.append(position - 1)
        k = from_k
    return of_left, of_right


def _step(furthest: Mapping[int, int], k: int, num_edits: int) -> tuple[int, int]:
    """Where one edit onto `k` comes from, and the position in the left sequence that it gives."""
    if k == -num_edits or (k != num_edits and furthest[k - 1] < furthest[k + 1]):
        return k + 1, furthest[k + 1]
    return k - 1, furthest[k - 1] + 1


def _cut(predicted: Sequence[Event], recorded: Sequence[Event]) -> tuple[Event, ...]:
    """`predicted` without those frees after its last allocation that `recorded` does not have there."""
    remaining = Counter(event.nbytes for event in recorded[_end_of_allocations(recorded) :])
    end = _end_of_allocations(predicted)
    kept = list(predicted[:end])
    for event in predicted[end:]:
        if remaining[event.nbytes]:
            remaining[event.nbytes] -= 1
            kept.append(event)
    return tuple(kept)


def _end_of_allocations(events: Sequence[Event]) -> int:
    return max((position for position, event in enumerate(events, 1) if event.nbytes > 0), default=0)


def num_in_order(recorded: Run, found: Counter[Difference]) -> int:
    """How many recorded allocations have their like in the prediction, in the same order."""
    lacking = sum(count for (side, _, nbytes), count in found.items() if side == "recorded" and nbytes > 0)
    return len(recorded.allocations) - lacking


def lifetimes_that_differ(recorded: Run, predicted: Run) -> list[tuple[Event, int | None, int | None]]:
    """Allocations of two equal sequences that die at different moments: the event, and both numbers.

    What the prediction gives back after the last allocation may still have been alive when the recording ended.
    """
    end = len(predicted.lifetimes)
    return [
        (event, left, right)
        for event, left, right in zip(recorded.allocations, recorded.lifetimes, predicted.lifetimes, strict=True)
        if left != right and not (left is None and right == end)
    ]


class PairedWorkspace(NamedTuple):
    """What cuDNN takes for one call of a convolution."""

    predicted: Interval
    recorded: int


def paired_workspaces(recorded: Run, predicted: Run) -> list[PairedWorkspace]:
    """Those of every call that is predicted, and those recorded where no call is predicted."""
    sums, invented = _unmatched([e.nbytes for e in recorded.allocations], [e.nbytes for e in predicted.allocations])
    taken: dict[int, int] = {}
    for after, nbytes in recorded.workspaces:
        taken[after - sum(i < after for i in sums) + sum(i < after for i in invented)] = nbytes.estimate
    pairs = [PairedWorkspace(nbytes, taken.pop(after, 0)) for after, nbytes in predicted.workspaces]
    return pairs + [PairedWorkspace(Interval.exact(0), nbytes) for nbytes in taken.values()]
