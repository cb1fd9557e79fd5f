"""What posting needs of a forge: the comments of one pull or merge request, and to change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from memlint.base.errors import MemlintError

Trouble = Literal["not allowed", "not found", "invalid", "limited", "unavailable"]
"""Why a forge did not do what it was asked: `limited` and `unavailable` pass with time."""


class ForgeError(MemlintError):
    """A forge did not do what it was asked.

    `seconds` is how long the forge says to wait before asking again, None where it does not say.
    """

    def __init__(self, trouble: Trouble, message: str, hint: str = "", *, seconds: float | None = None) -> None:
        super().__init__(message, hint)
        self.trouble = trouble
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Comment:
    """One comment of a request. Of two, the one with the higher `id` is newer."""

    id: int
    body: str
    author: str
    """Login, empty for an account that is gone."""
    url: str = ""
    """Where people read it."""
    is_hidden: bool = False
    handle: str = ""
    """What the forge calls it where that is not its `id`."""


class Forge(Protocol):
    """One pull or merge request. Every method sends requests, and raises ForgeError."""

    name: str
    can_hide: bool

    def author(self) -> str:
        """Login of whom the comments made here are from."""

    def comments(self) -> list[Comment]:
        """All comments, whoever wrote them."""

    def create(self, body: str) -> Comment:
        """Add a comment."""

    def edit(self, comment: Comment, body: str) -> None:
        """Give a comment another body. Nobody is notified."""

    def delete(self, comment: Comment) -> None:
        """Remove a comment."""

    def hide(self, comment: Comment) -> None:
        """Fold a comment away as outdated."""


def not_the_api(forge: str, url: str, came: str, hint: str) -> ForgeError:
    """For an answer that is none of the forge's: another server's page, a redirection to another host.

    It will not be another one after a while.
    """
    message = f"what answers at {url} is not {forge}'s API: {came}"
    return ForgeError("invalid", message, f"--api-url may be wrong: {hint}")


def root_of(error: BaseException) -> str:
    """What is wrong at the bottom, without the layers that passed it on."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(error) or type(error).__name__
