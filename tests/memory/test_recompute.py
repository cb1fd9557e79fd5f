"""The cheapest values to keep, held against every possible choice."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from memlint.memory.recompute import Choice, Value, trade_off


@st.composite
def forwards(draw: st.DrawFn) -> list[Value]:
    """Values of a small forward, each computed from some of those before it."""
    values = []
    for position in range(draw(st.integers(1, 6))):
        earlier = st.lists(st.sampled_from(range(position)), unique=True, max_size=3) if position else st.just([])
        can_be_kept = draw(st.booleans())
        values.append(
            Value(
                nbytes=draw(st.integers(0, 9)),
                flops=draw(st.integers(0, 9)),
                inputs=tuple(draw(earlier)),
                is_needed=draw(st.booleans()),
                can_be_kept=can_be_kept,
                can_be_recomputed=not can_be_kept or draw(st.booleans()),
                predecessors=tuple(draw(earlier)) if draw(st.booleans()) else (),
            )
        )
    return values


def is_feasible(values: list[Value], kept: frozenset[int], recomputed: frozenset[int]) -> bool:
    """Whether backward gets all that it reads, and computing again all that that reads."""
    present = kept | recomputed
    return (
        not kept & recomputed
        and all(i in present for i, value in enumerate(values) if value.is_needed)
        and all(values[i].can_be_kept for i in kept)
        and all(values[i].can_be_recomputed and present.issuperset(values[i].inputs) for i in recomputed)
        and all(recomputed.issuperset(values[i].predecessors) for i in recomputed)
    )


def all_choices(values: list[Value]) -> list[Choice]:
    choices = []
    for states in product("kr-", repeat=len(values)):
        kept = frozenset(i for i, state in enumerate(states) if state == "k")
        recomputed = frozenset(i for i, state in enumerate(states) if state == "r")
        if is_feasible(values, kept, recomputed):
            nbytes, flops = sum(values[i].nbytes for i in kept), sum(values[i].flops for i in recomputed)
            choices.append(Choice(kept, recomputed, nbytes, flops))
    return choices


@given(forwards())
def test_every_choice_can_be_made_and_costs_what_it_says(values: list[Value]) -> None:
    for choice in trade_off(values):
        assert is_feasible(values, choice.kept, choice.recomputed)
        assert choice.nbytes == sum(values[i].nbytes for i in choice.kept)
        assert choice.flops == sum(values[i].flops for i in choice.recomputed)


@given(forwards())
def test_fewer_bytes_take_more_operations(values: list[Value]) -> None:
    choices = trade_off(values)
    assert list(choices) == sorted(choices, key=lambda choice: choice.flops)
    assert list(choices) == sorted(choices, key=lambda choice: -choice.nbytes)
    budgets = range(sum(value.nbytes for value in values) + 1)
    within = [[choice.flops for choice in choices if choice.nbytes <= nbytes] for nbytes in budgets]
    flops = [min(each) for each in within if each]
    assert flops == sorted(flops, reverse=True)


@given(forwards(), st.integers(1, 50), st.integers(1, 50))
def test_at_every_price_one_of_them_is_the_cheapest_of_all(values: list[Value], of_byte: int, of_flop: int) -> None:
    costs = [of_byte * choice.nbytes + of_flop * choice.flops for choice in all_choices(values)]
    answers = [of_byte * choice.nbytes + of_flop * choice.flops for choice in trade_off(values)]
    assert min(answers, default=None) == min(costs, default=None)


@given(forwards())
def test_the_ends_are_the_fewest_operations_and_the_fewest_bytes(values: list[Value]) -> None:
    every, choices = all_choices(values), trade_off(values)
    assert bool(every) == bool(choices)
    if every:
        assert (choices[0].flops, choices[0].nbytes) == min((each.flops, each.nbytes) for each in every)
        assert (choices[-1].nbytes, choices[-1].flops) == min((each.nbytes, each.flops) for each in every)


def test_values_that_nothing_asks_for_cost_nothing() -> None:
    linear, activation, attention = Value(8, 1000, is_needed=False), Value(8, 1, (0,)), Value(2, 5000, (1,))
    assert trade_off([linear, activation, attention]) == (
        Choice(frozenset({1, 2}), frozenset(), 10, 0),
        Choice(frozenset({2}), frozenset({0, 1}), 2, 1001),
        Choice(frozenset(), frozenset({0, 1, 2}), 0, 6001),
    )


def test_what_can_be_neither_kept_nor_computed_again_has_no_choice() -> None:
    assert trade_off([Value(1, 1, can_be_kept=False, can_be_recomputed=False)]) == ()
