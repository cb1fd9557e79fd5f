"""The comments of a GitHub pull request, through PyGithub."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import requests
from github import Auth, Github, GithubException
from github.GithubException import BadAttributeException
from github.GithubObject import GithubObject
from github.IssueComment import IssueComment

from memlint.commands.comment.ci import Head
from memlint.commands.comment.forge import Comment, ForgeError, no_answer, not_the_api, refusal, seconds_to_wait

ACTIONS = "github-actions[bot]"
"""Author of the comments made with a workflow's token."""
_TIMEOUT = 20
_BETWEEN_WRITES = 1.0
"""Seconds between writes, as GitHub's documentation recommends."""
_RIGHT_URL = "that of GitHub is https://api.github.com, that of GitHub Enterprise Server ends with /api/v3."
_HINTS = {
    401: "Set GITHUB_TOKEN to a valid token.",
    403: "The job needs `permissions: pull-requests: write`; a pull request from a fork gives no such token.",
}
_NOT_GITHUB = (AssertionError, AttributeError, BadAttributeException, KeyError, RuntimeError, TypeError, ValueError)
"""Exceptions of PyGithub for answers that are not GitHub's: another server's page, a redirect to another host."""


class GitHub:
    """A repository (`owner/name`) and one of its pull requests. Without a number, only `pull_requests` works."""

    name = "GitHub"
    can_hide = True

    def __init__(
        self, api_url: str, token: str, repository: str, number: int = 0, *, between_writes: float = _BETWEEN_WRITES
    ) -> None:
        # No automatic retries: posting first checks whether the request was carried out.
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
        """Return the numbers of the open pull requests whose newest commit is `head`."""
        with self._asking():
            pulls = self._repository.get_pulls(state="open", head=f"{head.owner}:{head.branch}")
            return [
                pull["number"]
                for pull in map(GithubObject.raw_data.__get__, pulls)
                if pull["head"]["sha"] == head.sha
                and ((pull["head"]["repo"] or {}).get("full_name") or "").casefold() == head.repository.casefold()
            ]

    def author(self) -> str:
        """Owner of the token. The token of a workflow or an app cannot ask in the usual way."""
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
        with self._asking():
            return [_comment(comment) for comment in self._pull.get_comments()]

    def create(self, body: str) -> Comment:
        with self._asking():
            return _comment(self._pull.create_comment(body))

    def edit(self, comment: Comment, body: str) -> None:
        with self._asking():
            self._pull.get_comment(comment.id).edit(body)

    def delete(self, comment: Comment) -> None:
        with self._asking():
            self._pull.get_comment(comment.id).delete()

    def hide(self, comment: Comment) -> None:
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
            raise no_answer(self.name, error) from error
        except _NOT_GITHUB as error:
            came = "it sends something else than GitHub's JSON"
            raise not_the_api(self.name, self._github.requester.base_url, came, _RIGHT_URL) from error


def _comment(comment: IssueComment) -> Comment:
    # IssueComment.raw_data would request each comment again.
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
    data = error.data if isinstance(error.data, dict) else {}
    details = [entry for entry in data.get("errors") or () if isinstance(entry, dict)]  # of fields, or of GraphQL
    reasons = [data.get("message"), *(detail.get("message") for detail in details)]
    reason = ": ".join(text for text in reasons if isinstance(text, str))
    is_exhausted = headers.get("x-ratelimit-remaining") == "0"
    has_limit = "retry-after" in headers or is_exhausted or "rate limit" in reason.lower()
    is_limited = error.status == 429 or (error.status == 403 and has_limit)
    may_be_a_page = not is_limited and error.status < 500 and error.status != 408
    if may_be_a_page and not data.keys() & {"message", "errors"}:
        kind = headers.get("content-type", "something without a type")
        return not_the_api("GitHub", url, f"it sends {kind} with status {error.status}", _RIGHT_URL)
    is_forbidden = may_be_a_page and error.status != 401 and "FORBIDDEN" in (d.get("type") for d in details)
    meaning = 429 if is_limited else 403 if is_forbidden else 0
    seconds = seconds_to_wait(headers, "x-ratelimit-reset" if is_limited and is_exhausted else "")
    return refusal(
        "GitHub", error.status, reason, place, comment="comment", hints=_HINTS, meaning=meaning, seconds=seconds
    )
