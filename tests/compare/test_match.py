from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from memlint.compare.match import paired

THINGS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12)


@given(THINGS, THINGS)
def test_everything_is_there_once_and_head_keeps_its_order(base, head):
    pairs = paired(base, head, lambda thing: thing, lambda thing: thing[0])
    assert [after for _before, after in pairs if after is not None] == head
    assert Counter(before for before, _after in pairs if before is not None) == Counter(base)
    assert all(before or after for before, after in pairs)


@given(THINGS, THINGS)
def test_an_exact_match_is_never_given_away_for_a_loose_one(base, head):
    pairs = paired(base, head, lambda thing: thing, lambda thing: thing[0])
    exact = sum(before == after for before, after in pairs)
    assert exact == (Counter(base) & Counter(head)).total()


@given(THINGS, THINGS)
def test_nothing_stays_alone_that_the_last_key_could_pair(base, head):
    pairs = paired(base, head, lambda thing: thing, lambda thing: thing[0])
    gone = {before[0] for before, after in pairs if after is None}
    new = {after[0] for before, after in pairs if before is None}
    assert not gone & new


@given(THINGS)
def test_a_key_of_none_pairs_nothing(things):
    assert all(before is None or after is None for before, after in paired(things, things, lambda _thing: None))
