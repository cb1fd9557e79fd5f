"""One right comment on a request: find what is there, decide, do it, and begin again when the forge fails.

Every attempt starts by reading the comments. An answer that was lost after the forge had done what it was asked is
therefore found, and nothing is posted twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memlint.base.errors import UsageError
from memlint.commands.comment.marker import marked, read_marker
from memlint.commands.comment.protocol import ForgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memlint.commands.comment.marker import Marker
    from memlint.commands.comment.protocol import Comment, Forge

Behavior = Literal["update", "new", "hide-and-new", "delete-and-new"]
Action = Literal["created", "updated", "unchanged", "outdated", "not due"]

_ATTEMPTS = 6
_PATIENCE = 300.0
"""Seconds to wait in all."""
_LIMITED = 60.0
"""Seconds to wait at first where a forge limits requests without saying for how long; doubled each time. GitHub's
documentation asks for a minute at least."""
_UNAVAILABLE = 2.0
"""Seconds to wait at first where a forge fails or does not answer; doubled each time."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The comment a request should have."""

    text: str
    marker: Marker
    behavior: Behavior = "update"
    is_due: bool = True
    """Whether a comment is made where there is none. One that exists is brought up to date in any case."""

    @property
    def body(self) -> str:
        """What is posted."""
        return marked(self.text, self.marker)


@dataclass(frozen=True, slots=True)
class Found:
    """A comment of ours, and its marker."""

    comment: Comment
    marker: Marker


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order: create, edit, then hide or delete what was there before."""

    action: Action
    create: bool = False
    edit: Comment | None = None
    hide: tuple[Comment, ...] = ()
    delete: tuple[Comment, ...] = ()
    keep: Comment | None = None
    """The comment that says what is wanted already."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done."""

    action: Action
    url: str = ""
    """Of the comment, empty where the forge gave none or there is none."""
    left: str = ""
    """Why earlier comments could not be hidden or deleted."""


def post(forge: Forge, wanted: Wanted, *, wait: Callable[[float], None]) -> Outcome:
    """Give the request its comment. `wait` waits that many seconds.

    Raises ForgeError when the forge refuses or goes on failing, UsageError for a behavior it does not have.
    """
    if wanted.behavior == "hide-and-new" and not forge.can_hide:
        raise UsageError(f"{forge.name} cannot hide comments", "Use --behavior update or delete-and-new.")
    known: frozenset[int] | None = None
    waited = 0.0
    for attempt in range(_ATTEMPTS):
        try:
            ours = _ours(forge, wanted.marker.tag)
            if known is None:
                known = frozenset(found.comment.id for found in ours)
            return _carry_out(forge, wanted, plan(ours, wanted, known))
        except ForgeError as error:
            seconds = _seconds(error, attempt)
            if seconds is None or attempt == _ATTEMPTS - 1:
                raise
            if waited + seconds > _PATIENCE:
                raise ForgeError(
                    error.trouble,
                    f"{error.message}; the next attempt would be in {seconds:.0f} seconds",
                    "Run the job again later.",
                ) from error
        wait(seconds)
        waited += seconds
    raise AssertionError  # the last attempt returns or raises


def plan(ours: Sequence[Found], wanted: Wanted, known: frozenset[int]) -> Plan:
    """What to do where `ours` is there; `known` are the ids of what was there before this run wrote anything."""
    order = wanted.marker.order
    if order is not None and any(found.marker.order is not None and found.marker.order > order for found in ours):
        return Plan("outdated")
    ours = sorted(ours, key=lambda found: found.comment.id)
    if wanted.behavior == "update":
        return _update([found for found in ours if not found.comment.is_hidden], wanted, known)
    posted = [found for found in ours if _is_of_this_run(found, wanted.marker, known)]
    if posted:
        keep = posted[-1].comment
        action: Action = "unchanged" if keep.id in known else "created"
    elif ours or wanted.is_due:
        keep, action = None, "created"
    else:
        return Plan("not due")
    others = tuple(found.comment for found in ours if found.comment is not keep)
    return Plan(
        action,
        create=keep is None,
        hide=tuple(other for other in others if not other.is_hidden) if wanted.behavior == "hide-and-new" else (),
        delete=others if wanted.behavior == "delete-and-new" else (),
        keep=keep,
    )


def _update(candidates: Sequence[Found], wanted: Wanted, known: frozenset[int]) -> Plan:
    """The newest of several is the one to bring up to date. A hidden one has had its time."""
    if not candidates:
        return Plan("created", create=True) if wanted.is_due else Plan("not due")
    newest = candidates[-1]
    if newest.marker.digest != wanted.marker.digest:
        return Plan("updated", edit=newest.comment)
    if newest.comment.id not in known:
        return Plan("created", keep=newest.comment)
    # An older run that is still under way must find that a newer one says the same.
    is_newer = wanted.marker.order is not None and newest.marker.order != wanted.marker.order
    return Plan("unchanged", edit=newest.comment if is_newer else None, keep=newest.comment)


def _is_of_this_run(found: Found, marker: Marker, known: frozenset[int]) -> bool:
    """Whether this run has posted it, in an attempt whose answer was lost or in an earlier call, and it is shown."""
    is_new = found.comment.id not in known
    same_run = marker.order is not None and found.marker.order == marker.order
    says_it = found.marker.digest == marker.digest and not found.comment.is_hidden
    return says_it and (is_new or same_run)


def _ours(forge: Forge, tag: str) -> list[Found]:
    found = [
        Found(comment, marker)
        for comment in forge.comments()
        if (marker := read_marker(comment.body)) is not None and marker.tag == tag
    ]
    author = forge.author() if found else ""
    return [one for one in found if one.comment.author.casefold() == author.casefold()]


def _carry_out(forge: Forge, wanted: Wanted, what: Plan) -> Outcome:
    comment = what.keep
    if what.create:
        comment = forge.create(wanted.body)
    elif what.edit is not None:
        comment = what.edit
        _edit(forge, comment, wanted.body)
    url = comment.url if comment is not None else ""
    for act, earlier in ((forge.hide, what.hide), (forge.delete, what.delete)):
        for one in earlier:
            try:
                act(one)
            except ForgeError as error:
                if error.trouble in ("limited", "unavailable"):
                    raise
                if error.trouble != "not found":  # what is gone needs nothing
                    return Outcome(what.action, url, left=error.message)
    return Outcome(what.action, url)


def _edit(forge: Forge, comment: Comment, body: str) -> None:
    try:
        forge.edit(comment, body)
    except ForgeError as error:
        if error.trouble == "not found":  # removed since the comments were read: read them again
            raise ForgeError("unavailable", error.message, error.hint, seconds=0.0) from error
        raise


def _seconds(error: ForgeError, attempt: int) -> float | None:
    """How long to wait before the next attempt; None where waiting does not help."""
    first = {"limited": _LIMITED, "unavailable": _UNAVAILABLE}.get(error.trouble)
    if first is None or error.seconds is not None:
        return error.seconds
    return first * 2.0**attempt
