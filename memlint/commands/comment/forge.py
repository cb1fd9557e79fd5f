"""The interface to a forge: the comments of one pull or merge request, their changes, and the reasons of failures."""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal, Protocol

from memlint.base.errors import MemlintError

Trouble = Literal["not allowed", "not found", "invalid", "limited", "unavailable"]
"""Reasons why a forge refuses a request: `limited` and `unavailable` pass with time."""


class ForgeError(MemlintError):
    """A forge refused a request, or did not answer it.

    `seconds` is the time that the forge asks callers to wait before the next request, None if it does not say.
    """

    def __init__(self, trouble: Trouble, message: str, hint: str = "", *, seconds: float | None = None) -> None:
        super().__init__(message, hint)
        self.trouble = trouble
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a request. The newer of two has the higher `id`."""

    id: int
    body: str
    author: str
    """Login, empty for a deleted account."""
    url: str = ""
    """Web address of the comment."""
    is_hidden: bool = False
    handle: str = ""
    """The forge's name of the comment if that is not its `id`."""


class Forge(Protocol):
    """One pull or merge request. Every method sends requests, and raises ForgeError."""

    name: str
    can_hide: bool

    def author(self) -> str:
        """Login of the author of the comments made here."""

    def comments(self) -> list[Comment]:
        """Return all comments by any author, the oldest first."""

    def create(self, body: str) -> Comment:
        """Add a comment."""

    def edit(self, comment: Comment, body: str) -> None:
        """Replace the body of a comment. Nobody is notified."""

    def delete(self, comment: Comment) -> None:
        """Remove a comment."""

    def hide(self, comment: Comment) -> None:
        """Hide a comment as outdated."""


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
    """Make the error for an answer with `status`, or with the status in `meaning`, and the `seconds` to wait.

    `reason` is the forge's own text, `comment` its word for a comment, and `hints` are pieces of advice by status.
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
    """Return the waiting time in the headers of an answer, or None; `reset` names the header with a time.

    Retry-After is in seconds or a date (RFC 9110, 10.2.3); it comes with limits and from servers that are down.
    """
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    if (at := headers.get(reset, "")).isdecimal():
        return max(0.0, float(at) - time.time()) + 1  # the reset happens within that second
    return None


def not_the_api(forge: str, url: str, came: str, hint: str) -> ForgeError:
    """Make the error for an answer that is not the forge's: another server's page, a redirect to another host.

    Waiting does not help.
    """
    message = f"what answers at {url} is not {forge}'s API: {came}"
    return ForgeError("invalid", message, f"--api-url may be wrong: {hint}")


def no_answer(forge: str, error: BaseException) -> ForgeError:
    """Make the error for a request without an answer, with the root cause from below the layers that passed it on."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return ForgeError("unavailable", f"{forge} gave no answer: {str(error) or type(error).__name__}")
