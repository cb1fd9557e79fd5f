"""What posting needs of a forge: the comments of one pull or merge request, to change them, and why that failed."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
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
        """All comments, whoever wrote them, the oldest first."""

    def create(self, body: str) -> Comment:
        """Add a comment."""

    def edit(self, comment: Comment, body: str) -> None:
        """Give a comment another body. Nobody is notified."""

    def delete(self, comment: Comment) -> None:
        """Remove a comment."""

    def hide(self, comment: Comment) -> None:
        """Fold a comment away as outdated."""


def refusal(
    forge: str,
    status: int,
    reason: str,
    place: str,
    *,
    hints: Mapping[int, str],
    comment: str = "comment",
    seconds: float | None = None,
    meaning: int = 0,
) -> ForgeError:
    """What an answer with that status means, or with the one of `meaning`, and how many `seconds` to wait.

    `reason` is what the forge says, `comment` what it calls one, and `hints` say by status what to do.
    """
    meaning = meaning or (408 if status >= 500 else status)
    troubles: dict[int, tuple[Trouble, str]] = {
        401: ("invalid", "does not know the token"),
        403: ("not allowed", "does not allow it"),
        404: ("not found", f"does not find {place}"),
        408: ("unavailable", "fails"),
        429: ("limited", "limits how much may be asked"),
    }
    trouble, message = troubles.get(meaning, ("invalid", f"refuses the {comment} on {place}"))
    text = f"{reason} (status {status})" if reason else f"status {status}"
    hint = {404: "It does not exist, or the token cannot see it.", **hints}.get(meaning, "")
    may_pass = trouble in ("limited", "unavailable")
    return ForgeError(trouble, f"{forge} {message}: {text}", hint, seconds=seconds if may_pass else None)


def seconds_to_wait(headers: Mapping[str, str], reset: str) -> float | None:
    """How long the headers of an answer say to wait, None where they do not; `reset` names the one with a time.

    Retry-After is in seconds or a date (RFC 9110, 10.2.3), and of a limit as well as of a server that is down.
    """
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    if (at := headers.get(reset, "")).isdecimal():
        return max(0.0, float(at) - time.time()) + 1  # it is reset at some time of that second
    return None


def not_the_api(forge: str, url: str, came: str, hint: str) -> ForgeError:
    """For an answer that is none of the forge's: another server's page, a redirection to another host.

    It will not be another one after a while.
    """
    message = f"what answers at {url} is not {forge}'s API: {came}"
    return ForgeError("invalid", message, f"--api-url may be wrong: {hint}")


def no_answer(forge: str, error: BaseException) -> ForgeError:
    """For a request that got none, with what is wrong at the bottom, below the layers that passed it on."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return ForgeError("unavailable", f"{forge} gave no answer: {str(error) or type(error).__name__}")
