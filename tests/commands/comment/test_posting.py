"""What is decided, for any history of runs and of failures, against a forge in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.base.errors import UsageError
from memlint.commands.comment.forge import Comment, ForgeError
from memlint.commands.comment.marker import Marker, marked, marker_of, read_marker
from memlint.commands.comment.posting import Behavior, Draft, post

if TYPE_CHECKING:
    from collections.abc import Iterator

ME = "github-actions[bot]"


class InMemory:
    """A forge whose changes fail as `failures` says: before they are made, after, or not at all."""

    name = "Forge"
    can_hide = True

    def __init__(self) -> None:
        self.kept: dict[int, Comment] = {}
        self.failures: Iterator[str] = iter(())

    def author(self) -> str:
        return ME

    def comments(self) -> list[Comment]:
        return list(self.kept.values())

    def create(self, body: str) -> Comment:
        return self._change(Comment(id=max(self.kept, default=0) + 1, body=body, author=ME))

    def edit(self, comment: Comment, body: str) -> None:
        self._change(replace(self.kept[comment.id], body=body))

    def hide(self, comment: Comment) -> None:
        self._change(replace(self.kept[comment.id], is_hidden=True))

    def delete(self, comment: Comment) -> None:
        failure = next(self.failures, "")
        if failure != "before":
            self.kept.pop(comment.id)
        self._fail(failure)

    def shown(self) -> list[str]:
        return [one.body.partition("\n\n<!--")[0] for one in self.kept.values() if not one.is_hidden]

    def _change(self, comment: Comment) -> Comment:
        failure = next(self.failures, "")
        if failure != "before":
            self.kept[comment.id] = comment
        self._fail(failure)
        return comment

    def _fail(self, failure: str) -> None:
        if failure:
            raise ForgeError("unavailable", "no answer")


Run = tuple[int, str, Behavior, list[str]]


def runs(*behaviors: Behavior) -> st.SearchStrategy[list[Run]]:
    """Runs in the order in which they end: how new each is, what it says, and which changes fail how."""
    failures = st.lists(st.sampled_from(["", "before", "after"]), max_size=4)
    return st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from("abc"), st.sampled_from(behaviors), failures), max_size=8
    )


def give(forge: InMemory, run: Run) -> None:
    number, text, behavior, failures = run
    forge.failures = iter(failures)
    post(forge, Draft(text, marker_of(text, "default", (number, 1)), behavior), wait=lambda _seconds: None)


def newest(history: list[Run]) -> str:
    """What the newest run says; the later one of two calls of the same run."""
    return max(enumerate(history), key=lambda entry: (entry[1][0], entry[0]))[1][1]


@given(runs("update", "delete-and-new"))
def test_in_the_end_there_is_one_comment_and_the_newest_run_has_written_it(history: list[Run]) -> None:
    forge = InMemory()
    for run in history:
        give(forge, run)

    assert forge.shown() == ([newest(history)] if history else [])


@given(runs("hide-and-new"))
def test_in_the_end_one_comment_is_not_hidden_and_the_newest_run_has_written_it(history: list[Run]) -> None:
    forge = InMemory()
    for run in history:
        give(forge, run)

    assert forge.shown() == ([newest(history)] if history else [])


@given(runs("new"))
def test_every_run_posts_once_and_none_is_lost(history: list[Run]) -> None:
    forge = InMemory()
    expected: list[tuple[int, str]] = []
    for run in history:
        give(forge, run)
        is_outdated = any(number > run[0] for number, _text in expected)
        if not is_outdated and run[:2] not in expected:
            expected.append(run[:2])

    assert forge.shown() == [text for _number, text in expected]


@given(
    st.text(),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    st.none() | st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)),
)
def test_a_marker_is_read_back_whatever_stands_before_it(text: str, tag: str, order: tuple[int, int] | None) -> None:
    marker = marker_of(text, tag, order)

    assert read_marker(marked(text, marker)) == marker
    assert read_marker(marked(text, marker).replace("\n", "\r\n").rstrip()) == marker


@pytest.mark.parametrize(
    "body",
    [
        "",
        "text",
        f"> {Marker('default', '0' * 16)}",
        f"see {Marker('default', '0' * 16)}",
        f"{Marker('default', '0' * 16)}\n\nmore",
        f"{Marker('default', '0' * 15)}",
        "<!-- memlint comment tag=a b digest=0123456789abcdef -->",
        f"<!-- memlint comment tag=a run={'9' * 19}.1 digest=0123456789abcdef -->",
    ],
)
def test_what_is_no_marker_of_its_own_in_the_last_line_is_none(body: str) -> None:
    assert read_marker(body) is None


def test_hiding_is_refused_where_the_forge_cannot_before_it_is_asked_anything() -> None:
    forge = InMemory()
    forge.can_hide = False

    with pytest.raises(UsageError, match="cannot hide"):
        give(forge, (1, "a", "hide-and-new", []))
    assert forge.comments() == []
