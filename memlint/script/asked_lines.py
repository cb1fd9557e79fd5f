"""Lines that a script asks a person for, as a chat does: a run has no terminal, so `input` finds an end of file."""

from __future__ import annotations

import builtins
import random
import sys
from typing import TYPE_CHECKING

from memlint.script.fake_rows import text_of_words
from memlint.workloads.notes import note, note_fake_data, script_frame

if TYPE_CHECKING:
    from memlint.memory.records import Frame
    from memlint.script.replacing import Replacing

_NUM_WORDS = 16
"""Words of a line that a person types: a sentence."""


def replace_input(replacing: Replacing, *, fake: bool, seq: int | None) -> None:
    """Make `input` report what is asked for, or with `fake` answer with `seq` words: once to each question of a line.

    A script that asks the same again goes on as long as somebody types: it ends there.
    """
    ask = builtins.input
    answered: set[tuple[Frame | None, str]] = set()

    def answer(prompt: object = "", /) -> str:
        """Return the next line, without its end."""
        try:
            return ask(prompt)
        except EOFError as error:
            question = script_frame(), str(prompt)
            if not fake:
                note(error, "asks for a line at the terminal", "add --fake-data for one of random words")
                raise
            if question in answered:
                sys.exit(0)
        answered.add(question)
        count = seq or _NUM_WORDS
        note_fake_data(f"a line that is asked for is {count} random words (--seq N for others), and there is no second")
        return text_of_words(random.Random(0), count)

    replacing.put(builtins, "input", answer)
