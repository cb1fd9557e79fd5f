"""Lines of a text that is edited: from where each line stands now to where it stood when the text was saved."""

from lsprotocol.types import TextDocumentContentChangeEvent


class Origins:
    """For each line of a document the line that it was in the saved text; lines count from 1 as in a Report."""

    def __init__(self, text: str) -> None:
        self._origins: list[int | None] = list(range(1, _num_lines(text) + 1))

    def follow(self, change: TextDocumentContentChangeEvent, text: str) -> None:
        """Follow an edit, after which the document is `text`.

        A line that the edit begins or ends within keeps its origin, in the place where its larger part is. Where the
        whole text is replaced, lines from the first to the last that differ have no origin.
        """
        span = getattr(change, "range", None)
        if span is None:
            self._replaced(_num_lines(text))
            return
        first, last = span.start.line, min(span.end.line, len(self._origins) - 1)
        added: list[int | None] = [None] * _num_lines(change.text)
        if first < len(self._origins):
            if span.start.character == 0:
                added[-1] = self._origins[last]
            else:
                added[0] = self._origins[first]
        self._origins[first : last + 1] = added

    def _replaced(self, num_lines: int) -> None:
        self._origins = [*self._origins[:num_lines], *[None] * (num_lines - len(self._origins))]

    def now(self) -> dict[int, int]:
        """Say for each line of the saved text that is still there where it stands, both from 1."""
        return {origin: line for line, origin in enumerate(self._origins, 1) if origin is not None}


def _num_lines(text: str) -> int:
    return text.count("\n") + 1
