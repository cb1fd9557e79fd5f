"""Replaced attributes are as before after the block."""

from __future__ import annotations

from contextlib import suppress

import pytest

from memlint.base.patching import patched


class Owner:
    own = 1


class Heir(Owner):
    pass


def test_what_was_there_is_there_again_whatever_happens_in_the_block() -> None:
    with suppress(KeyError), patched([(Owner, "own", 2), (Heir, "own", 3), (Owner, "own", 4), (Owner, "new", 5)]):
        assert (Owner.own, Heir.own, Owner.new) == (4, 3, 5)
        raise KeyError
    assert (Owner.own, Heir.own) == (1, 1)
    assert not hasattr(Owner, "new")
    assert "own" not in vars(Heir)


def test_what_was_removed_inside_stays_removed() -> None:
    with patched([(Heir, "own", 3)]):
        del Heir.own
    assert Heir.own == 1


def test_a_patch_that_cannot_be_made_leaves_no_other_behind() -> None:
    with pytest.raises(TypeError), patched([(Owner, "own", 2), (int, "real", 0)]):
        pytest.fail("the block was entered")
    assert Owner.own == 1
