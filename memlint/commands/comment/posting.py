"""One correct comment on a request: read the comments, decide, act, and start again if the forge fails.

Every attempt starts by reading the comments. So if the forge did its work but the answer was lost, memlint sees the
comment and does not post it twice.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from memlint.base.errors import UsageError
from memlint.commands.comment.forge import Comment, Forge, ForgeError
from memlint.commands.comment.marker import Marker, marked, read_marker

Behavior = Literal["update", "new", "hide-and-new", "delete-and-new"]
Action = Literal["created", "updated", "unchanged", "outdated", "not due"]

_ATTEMPTS = 6
_PATIENCE = 300.0
"""Total seconds to wait."""
_WAIT_WHEN_LIMITED = 60.0
"""Seconds to wait at first if a forge limits requests without saying for how long; doubled each time.

GitHub's documentation asks for a minute at least.
"""
_WAIT_WHEN_UNAVAILABLE = 2.0
"""Seconds to wait at first if a forge fails or does not answer; doubled each time."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The comment that a request should have."""

    text: str
    marker: Marker
    behavior: Behavior = "update"
    is_due: bool = True
    """True to create a comment if there is none. An existing one is updated in any case."""

    @property
    def body(self) -> str:
        """The text to post."""
        return marked(self.text, self.marker)


@dataclass(frozen=True, slots=True)
class OwnComment:
    """One of our comments, and its marker."""

    comment: Comment
    marker: Marker


@dataclass(frozen=True, slots=True)
class Decision:
    """The actions, in this order: create, edit, then hide or delete older comments."""

    action: Action
    create: bool = False
    edit: Comment | None = None
    hide: tuple[Comment, ...] = ()
    delete: tuple[Comment, ...] = ()
    keep: Comment | None = None
    """The comment that already has the text of the draft."""


@dataclass(frozen=True, slots=True)
class Posted:
    """The action taken."""

    action: Action
    url: str = ""
    """Web address of the comment; empty without a comment, or if the forge gave none."""
    left: str = ""
    """Why earlier comments could not be hidden or deleted."""


def post(forge: Forge, draft: Draft, *, wait: Callable[[float], None]) -> Posted:
    """Post or update the comment of the request. `wait` waits that many seconds.

    Raises ForgeError if the forge refuses or keeps failing, UsageError for a behavior that it does not support.
    """
    if draft.behavior == "hide-and-new" and not forge.can_hide:
        raise UsageError(f"{forge.name} cannot hide comments", "Use --behavior update or delete-and-new.")
    known: frozenset[int] | None = None
    waited = 0.0
    for attempt in range(_ATTEMPTS):
        try:
            ours = _read(forge, draft.marker.tag)
            if known is None:
                known = frozenset(own.comment.id for own in ours)
            return _act(forge, draft, decide(ours, draft, known))
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


def _read(forge: Forge, tag: str) -> list[OwnComment]:
    """Return our comments with that tag, the oldest first."""
    markers = [(comment, read_marker(comment.body)) for comment in forge.comments()]
    tagged = [OwnComment(comment, marker) for comment, marker in markers if marker is not None and marker.tag == tag]
    author = forge.author().casefold() if tagged else ""
    ours = (each for each in tagged if each.comment.author.casefold() == author)
    return sorted(ours, key=lambda own: own.comment.id)


def decide(ours: Sequence[OwnComment], draft: Draft, known: frozenset[int]) -> Decision:
    """Decide what to do with `ours`; `known` are the ids of the comments from before this run wrote anything."""
    order = draft.marker.order
    if order is not None and any(own.marker.order is not None and own.marker.order > order for own in ours):
        return Decision("outdated")
    if draft.behavior == "update":
        return _update([own for own in ours if not own.comment.is_hidden], draft, known)
    posted = [own.comment for own in ours if _is_of_this_run(own, draft.marker, known)]
    if not (posted or ours or draft.is_due):
        return Decision("not due")
    keep = posted[-1] if posted else None
    others = tuple(own.comment for own in ours if own.comment is not keep)
    return Decision(
        "unchanged" if keep is not None and keep.id in known else "created",
        create=keep is None,
        hide=tuple(other for other in others if not other.is_hidden) if draft.behavior == "hide-and-new" else (),
        delete=others if draft.behavior == "delete-and-new" else (),
        keep=keep,
    )


def _update(shown: Sequence[OwnComment], draft: Draft, known: frozenset[int]) -> Decision:
    """Update the newest of several comments. Hidden ones stay as they are."""
    if not shown:
        return Decision("created", create=True) if draft.is_due else Decision("not due")
    newest = shown[-1]
    if newest.marker.digest != draft.marker.digest:
        return Decision("updated", edit=newest.comment)
    if newest.comment.id not in known:
        return Decision("created", keep=newest.comment)
    # An older run that is still under way must see that a newer one says the same.
    is_newer = draft.marker.order is not None and newest.marker.order != draft.marker.order
    return Decision("unchanged", edit=newest.comment if is_newer else None, keep=newest.comment)


def _is_of_this_run(own: OwnComment, marker: Marker, known: frozenset[int]) -> bool:
    """Return True if this run posted it, in an attempt whose answer was lost or an earlier call, and it is visible."""
    is_new = own.comment.id not in known
    same_run = marker.order is not None and own.marker.order == marker.order
    says_it = own.marker.digest == marker.digest and not own.comment.is_hidden
    return says_it and (is_new or same_run)


def _act(forge: Forge, draft: Draft, decision: Decision) -> Posted:
    comment = forge.create(draft.body) if decision.create else decision.edit or decision.keep
    if decision.edit is not None:
        _edit(forge, decision.edit, draft.body)
    url = comment.url if comment is not None else ""
    for act, earlier in ((forge.hide, decision.hide), (forge.delete, decision.delete)):
        for each in earlier:
            try:
                act(each)
            except ForgeError as error:
                if error.trouble in ("limited", "unavailable"):
                    raise
                if error.trouble != "not found":  # already deleted
                    return Posted(decision.action, url, left=error.message)
    return Posted(decision.action, url)


def _edit(forge: Forge, comment: Comment, body: str) -> None:
    try:
        forge.edit(comment, body)
    except ForgeError as error:
        if error.trouble == "not found":  # removed since the comments were read: read them again
            raise ForgeError("unavailable", error.message, error.hint, seconds=0.0) from error
        raise


def _seconds(error: ForgeError, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt; None if waiting does not help."""
    first = {"limited": _WAIT_WHEN_LIMITED, "unavailable": _WAIT_WHEN_UNAVAILABLE}.get(error.trouble)
    if first is None or error.seconds is not None:
        return error.seconds
    return first * 2.0**attempt
