"""Lines of an edited text: whole lines that come and go, and edits within lines, as editors send them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

types = pytest.importorskip("lsprotocol.types")

from memlint.language_server.origins import Origins  # noqa: E402


def change(first, start, last, end, text):
    span = types.Range(types.Position(first, start), types.Position(last, end))
    return types.TextDocumentContentChangePartial(range=span, text=text)


@given(st.integers(1, 8), st.lists(st.tuples(st.booleans(), st.integers(0, 20), st.integers(0, 3)), max_size=12))
def test_of_whole_lines_that_come_and_go_the_others_are_found_again(num_lines, edits):
    lines = [f"line {number}" for number in range(1, num_lines + 1)]
    origins = Origins("\n".join(lines))
    for number, (inserts, place, count) in enumerate(edits):
        at = place % len(lines)
        if inserts:
            new = [f"new {number}.{each}" for each in range(count)]
            origins.follow(change(at, 0, at, 0, "".join(f"{each}\n" for each in new)), "")
            lines[at:at] = new
        else:
            last = min(at + count, len(lines) - 1)
            origins.follow(change(at, 0, last, 0, ""), "")
            del lines[at:last]
    expected = {int(text.split()[1]): line for line, text in enumerate(lines, 1) if text.startswith("line")}
    assert origins.now() == expected


@pytest.mark.parametrize(
    ("edit", "now"),
    [
        (change(1, 3, 1, 3, "x"), {1: 1, 2: 2, 3: 3}),  # within a line
        (change(1, 3, 1, 3, "\n"), {1: 1, 2: 2, 3: 4}),  # a line is broken: its beginning stays
        (change(1, 0, 1, 0, "\n"), {1: 1, 2: 3, 3: 4}),  # an empty line above it
        (change(0, 3, 1, 0, ""), {1: 1, 3: 2}),  # two lines are joined
        (change(0, 0, 2, 4, "x"), {3: 1}),  # nearly all is replaced
        (change(2, 5, 2, 5, "\nend"), {1: 1, 2: 2, 3: 3}),
    ],
)
def test_edits_within_lines_keep_what_is_left_of_them(edit, now):
    origins = Origins("line1\nline2\nline3")
    origins.follow(edit, "")
    assert origins.now() == now


def test_a_text_that_is_replaced_as_a_whole_keeps_its_first_lines():
    origins = Origins("a\nb\nc")
    origins.follow(types.TextDocumentContentChangeWholeDocument("a\nb"), "a\nb")
    assert origins.now() == {1: 1, 2: 2}
