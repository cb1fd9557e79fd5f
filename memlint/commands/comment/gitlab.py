"""The notes of a GitLab merge request, through python-gitlab."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from gitlab import Gitlab
from gitlab.exceptions import GitlabError

from memlint.commands.comment.forge import Comment, ForgeError, no_answer, not_the_api, refusal, seconds_to_wait

_TIMEOUT = 20
_ONCE: dict[str, Any] = {"obey_rate_limit": False}
"""Options against automatic retries: posting first checks whether the request was carried out."""
_RIGHT_URL = "write the address of the server, as in https://gitlab.example.com."
_HINTS = {
    401: "Set GITLAB_TOKEN to a token with the scope `api`.",
    403: "The token needs the scope `api` and the role Reporter; a pipeline of a fork has no such token.",
}
_NOT_GITLAB = (AttributeError, KeyError, TypeError, ValueError)


class GitLab:
    """A merge request: `project` is `group/name` or a number, `number` the one after the `!`."""

    name = "GitLab"
    can_hide = False

    def __init__(self, api_url: str, token: str, project: str, number: int) -> None:
        session = requests.Session()
        session.hooks["response"].append(self._see)
        self._gitlab = Gitlab(
            api_url.removesuffix("/api/v4"),
            oauth_token=token,  # a bearer token: GitLab accepts all kinds of access tokens so
            per_page=100,
            timeout=_TIMEOUT,
            user_agent="memlint",
            keep_base_url=True,
            session=session,
        )
        request = self._gitlab.projects.get(project, lazy=True).mergerequests.get(number, lazy=True)
        self._notes = request.notes
        self._place = f"{project}!{number}"
        self._headers: Mapping[str, str] = {}
        self._author = ""

    def author(self) -> str:
        if not self._author:
            with self._asking():
                self._author = self._gitlab.http_request("get", "/user", **_ONCE).json()["username"].strip()
        return self._author

    def comments(self) -> list[Comment]:
        with self._asking():
            notes = self._notes.list(
                iterator=True, activity_filter="only_comments", order_by="created_at", sort="asc", **_ONCE
            )
            return [_comment(note.attributes) for note in notes]

    def create(self, body: str) -> Comment:
        with self._asking():
            return _comment(self._notes.create({"body": body}, **_ONCE).attributes)

    def edit(self, comment: Comment, body: str) -> None:
        with self._asking():
            self._notes.update(comment.id, {"body": body}, **_ONCE)

    def delete(self, comment: Comment) -> None:
        with self._asking():
            self._notes.delete(comment.id, **_ONCE)

    def hide(self, comment: Comment) -> None:
        raise ForgeError("invalid", f"GitLab cannot hide note {comment.id}")

    def _see(self, response: requests.Response, **_options: object) -> None:
        """Keep the headers, which python-gitlab's errors lack, and refuse redirects that would leak the token."""
        self._headers = response.headers
        if response.is_redirect:
            source = urlsplit(response.url)
            target = urlsplit(urljoin(response.url, response.headers["location"]))
            if (target.scheme, target.netloc) != (source.scheme, source.netloc):
                raise ForgeError(
                    "invalid",
                    f"{source.scheme}://{source.netloc} redirects to {target.scheme}://{target.netloc}",
                    "Give the API's own address with --api-url.",
                )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except GitlabError as error:
            if error.response_code is None or _is_page(error):
                raise self._not_gitlab() from error
            raise self._refusal(error, error.response_code) from error
        except requests.RequestException as error:
            raise no_answer(self.name, error) from error
        except _NOT_GITLAB as error:
            raise self._not_gitlab() from error

    def _refusal(self, error: GitlabError, status: int) -> ForgeError:
        reason: Any = error.error_message
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        seconds = seconds_to_wait(self._headers, "ratelimit-reset" if status == 429 else "")
        return refusal(self.name, status, reason, self._place, comment="note", hints=_HINTS, seconds=seconds)

    def _not_gitlab(self) -> ForgeError:
        kind = self._headers.get("Content-Type", "something without a type")
        return not_the_api(self.name, self._gitlab.url, f"it sends {kind} that is not GitLab's", _RIGHT_URL)


def _comment(note: Mapping[str, Any]) -> Comment:
    if not isinstance(note["id"], int):
        raise TypeError
    return Comment(id=note["id"], body=note.get("body") or "", author=(note.get("author") or {}).get("username") or "")


def _is_page(error: GitlabError) -> bool:
    """Return True if a refusal is not JSON, which an overloaded GitLab may send."""
    if error.response_code in (408, 429) or (error.response_code or 0) >= 500:
        return False
    try:
        return not isinstance(json.loads(error.response_body or b""), dict)
    except (ValueError, RecursionError):
        return True
