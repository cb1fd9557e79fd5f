"""The comments of a GitHub pull request, by PyGithub."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import requests
from github import Auth, Github, GithubException
from github.GithubException import BadAttributeException
from github.GithubObject import GithubObject

from memlint.commands.comment.protocol import Comment, ForgeError, not_the_api, root_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from github.IssueComment import IssueComment

    from memlint.commands.comment.ci import Head

ACTIONS = "github-actions[bot]"
"""Who comments with the token of a workflow."""
_TIMEOUT = 20
_BETWEEN_WRITES = 1.0
"""Seconds, as GitHub's documentation asks for."""
_RIGHT_URL = "that of GitHub is https://api.github.com, that of GitHub Enterprise Server ends with /api/v3."
_NOT_GITHUB = (AssertionError, AttributeError, BadAttributeException, KeyError, RuntimeError, TypeError, ValueError)
"""What PyGithub raises for answers that are not GitHub's: another server's page, a redirection to another host."""


class GitHub:
    """A repository (`owner/name`), and one of its pull requests. Without a number there are only `pull_requests`."""

    name = "GitHub"
    can_hide = True

    def __init__(
        self, api_url: str, token: str, repository: str, number: int = 0, *, between_writes: float = _BETWEEN_WRITES
    ) -> None:
        # Nothing is sent again on its own: posting looks first whether it was carried out.
        self._github = Github(
            auth=Auth.Token(token),
            base_url=api_url,
            per_page=100,
            timeout=_TIMEOUT,
            retry=None,
            seconds_between_requests=None,
            seconds_between_writes=between_writes,
            user_agent="memlint",
            lazy=True,
        )
        self._repository = self._github.get_repo(repository)
        self._pull = self._repository.get_issue(number)
        self._place = f"{repository}#{number}" if number else repository
        self._author = ""

    def pull_requests(self, head: Head) -> list[int]:
        """Numbers of the open pull requests whose newest commit is `head`."""
        with self._asking():
            found = [
                GithubObject.raw_data.__get__(pull)
                for pull in self._repository.get_pulls(state="open", head=f"{head.owner}:{head.branch}")
            ]
            return [
                pull["number"]
                for pull in found
                if pull["head"]["sha"] == head.sha
                and ((pull["head"]["repo"] or {}).get("full_name") or "").casefold() == head.repository.casefold()
            ]

    def author(self) -> str:
        """Whose token it is. That of a workflow or an app may not ask in the usual way."""
        if not self._author:
            try:
                with self._asking():
                    self._author = _name(self._github.get_user().login)
            except ForgeError as error:
                if error.trouble != "not allowed":
                    raise
                self._author = self._viewer()
        return self._author

    def comments(self) -> list[Comment]:
        """All comments of the pull request's conversation, the oldest first."""
        with self._asking():
            return [_comment(comment) for comment in self._pull.get_comments()]

    def create(self, body: str) -> Comment:
        """Add a comment to the conversation."""
        with self._asking():
            return _comment(self._pull.create_comment(body))

    def edit(self, comment: Comment, body: str) -> None:
        """Give a comment another body."""
        with self._asking():
            self._pull.get_comment(comment.id).edit(body)

    def delete(self, comment: Comment) -> None:
        """Remove a comment."""
        with self._asking():
            self._pull.get_comment(comment.id).delete()

    def hide(self, comment: Comment) -> None:
        """Minimize a comment as outdated."""
        with self._asking():
            self._github.requester.graphql_named_mutation(
                "minimizeComment",
                {"subjectId": comment.handle, "classifier": "OUTDATED"},
                "minimizedComment { isMinimized }",
            )

    def _viewer(self) -> str:
        try:
            with self._asking():
                _, data = self._github.requester.graphql_query("query { viewer { login } }", {})
                return _name(data["data"]["viewer"]["login"])
        except ForgeError as error:
            if error.trouble in ("limited", "unavailable"):
                raise
            return ACTIONS

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except GithubException as error:
            raise _error(error, self._place, self._github.requester.base_url) from error
        except requests.RequestException as error:
            raise ForgeError("unavailable", f"GitHub gave no answer: {root_of(error)}") from error
        except _NOT_GITHUB as error:
            came = "it sends something else than GitHub's JSON"
            raise not_the_api(self.name, self._github.requester.base_url, came, _RIGHT_URL) from error


def _comment(comment: IssueComment) -> Comment:
    # IssueComment.raw_data would ask for each comment again
    raw: dict[str, Any] = GithubObject.raw_data.__get__(comment)
    if not isinstance(raw["id"], int):
        raise TypeError
    return Comment(
        id=raw["id"],
        body=raw.get("body") or "",
        author=(raw.get("user") or {}).get("login") or "",
        url=raw.get("html_url") or "",
        is_hidden=raw.get("minimized") is not None,
        handle=raw.get("node_id") or "",
    )


def _name(login: object) -> str:
    if not isinstance(login, str) or not login:
        raise TypeError
    return login


def _error(error: GithubException, place: str, url: str) -> ForgeError:
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    said = _said(error)
    text = f"{said} (status {error.status})" if said else f"status {error.status}"
    if _is_limited(error.status, said, headers):
        return ForgeError("limited", f"GitHub limits how much may be asked: {text}", seconds=_seconds_to_wait(headers))
    if error.status >= 500 or error.status == 408:
        return ForgeError("unavailable", f"GitHub fails: {text}")
    if not (isinstance(error.data, dict) and error.data.keys() & {"message", "errors"}):
        kind = headers.get("content-type", "something without a type")
        return not_the_api("GitHub", url, f"it sends {kind} with status {error.status}", _RIGHT_URL)
    if error.status == 401:
        return ForgeError("invalid", f"GitHub does not know the token: {text}", "Set GITHUB_TOKEN to a valid token.")
    if error.status == 403 or "FORBIDDEN" in _types(error):
        return ForgeError(
            "not allowed",
            f"GitHub does not allow it: {text}",
            "The job needs `permissions: pull-requests: write`; a pull request from a fork gives no such token.",
        )
    if error.status == 404:
        return ForgeError(
            "not found", f"GitHub does not find {place}: {text}", "It does not exist, or the token cannot see it."
        )
    return ForgeError("invalid", f"GitHub refuses the comment on {place}: {text}")


def _said(error: GithubException) -> str:
    """What GitHub says, with what it says of each field."""
    data = error.data if isinstance(error.data, dict) else {}
    details = [entry for entry in data.get("errors") or () if isinstance(entry, dict)]
    parts = [data.get("message"), *(detail.get("message") for detail in details)]
    return ": ".join(part for part in parts if isinstance(part, str))


def _types(error: GithubException) -> set[str]:
    """The kinds of the errors of a GraphQL answer."""
    data = error.data if isinstance(error.data, dict) else {}
    return {str(entry.get("type")) for entry in data.get("errors") or () if isinstance(entry, dict)}


def _is_limited(status: int, said: str, headers: Mapping[str, str]) -> bool:
    if status == 429:
        return True
    exhausted = "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0"
    return status == 403 and (exhausted or "rate limit" in said.lower())


def _seconds_to_wait(headers: Mapping[str, str]) -> float | None:
    """From the headers, None where they do not say."""
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    reset = headers.get("x-ratelimit-reset", "")
    if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
        return max(0.0, float(reset) - time.time()) + 1  # it is reset at some time of that second
    return None
