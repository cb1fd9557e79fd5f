"""GitHub's comments, kept in memory behind HTTP: what it stores, who may write, how it fails."""

from __future__ import annotations

import json
import re
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from werkzeug import Request, Response

from tests.commands.comment.contract import Contract

if TYPE_CHECKING:
    from collections.abc import Callable

ACTIONS = "github-actions[bot]"
TOKEN = "secret-token"


@dataclass
class Fault:
    """What happens to the next request of a method, instead of or (`after_storing`) besides what was asked."""

    method: str
    status: int = 0
    """0 drops the connection."""
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    after_storing: bool = False
    delay: float = 0.0
    errors: list[dict[str, str]] = field(default_factory=list)


class FakeGitHub:
    """One repository. `comments` are those of pull request `number`."""

    def __init__(self, url: str, *, prefix: str = "", number: int = 7) -> None:
        self.prefix = prefix
        self.url = url.rstrip("/") + prefix
        self.repository = "acme/models"
        self.number = number
        self.comments: dict[int, dict[str, Any]] = {}
        self.pulls: list[dict[str, Any]] = []
        self.login = ACTIONS
        self.may_ask_who = False
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.before: dict[str, Callable[[], None]] = {}
        """What happens before the next request of a method is answered."""
        self.largest_page = 100
        self.contract = Contract()
        self.hidden_by_graphql: list[str] = []
        self._next_id = 1000

    def add(self, body: str, login: str | None = None, *, hidden: bool = False) -> int:
        """A comment that was there before."""
        return self._store(body, login or self.login, hidden=hidden)["id"]

    def bodies(self, login: str | None = None) -> list[str]:
        return [one["body"] for one in self.comments.values() if one["user"]["login"] == (login or self.login)]

    def sent(self, method: str) -> int:
        return sum(sent == method for sent, _path in self.requests)

    def __call__(self, request: Request) -> Response:
        path = request.path.removeprefix(self.prefix)
        body = json.loads(request.get_data()) if request.get_data() else None
        assert request.headers["Authorization"] == f"token {TOKEN}"
        self.requests.append((request.method, path))
        if request.path.endswith("/graphql"):
            return self._graphql(body)
        self.contract.check_request(request.method, path, request.args.to_dict(), body)
        if request.method in self.before:
            self.before.pop(request.method)()
        fault = next((fault for fault in self.faults if fault.method == request.method), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.after_storing:
                self._answer(request, path, body)
            time.sleep(fault.delay)
            return self._fail(request, path, fault)
        answer, headers = self._answer(request, path, body)
        status = {"POST": 201, "DELETE": 204}.get(request.method, 200)
        if isinstance(answer, tuple):
            status, answer = answer
        self.contract.check_answer(request.method, path, status, answer)
        return _json(answer, status, headers)

    def _fail(self, request: Request, path: str, fault: Fault) -> Response:
        if fault.status == 0:
            request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return Response()
        answer: dict[str, Any] = {"message": fault.message, "documentation_url": "https://docs.github.com/rest"}
        if fault.errors:
            answer["errors"] = fault.errors
        self.contract.check_answer(request.method, path, fault.status, answer)
        return _json(answer, fault.status, fault.headers)

    def _answer(self, request: Request, path: str, body: Any) -> tuple[Any, dict[str, str]]:
        place = f"/repos/{self.repository}"
        if path == "/user":
            if self.may_ask_who:
                return _profile(self.login), {}
            return (403, {"message": "Resource not accessible by integration"}), {}
        if path == f"{place}/pulls":
            owner, _, branch = request.args["head"].partition(":")
            return [
                pull
                for pull in self.pulls
                if pull["state"] == request.args["state"] and pull["head"]["label"] == f"{owner}:{branch}"
            ], {}
        if path == f"{place}/issues/{self.number}/comments":
            if request.method == "POST":
                if len(body["body"]) > 65_536:
                    message = "Body is too long (maximum is 65536 characters)"
                    errors = [
                        {"resource": "IssueComment", "code": "unprocessable", "field": "data", "message": message}
                    ]
                    answer = {
                        "message": "Validation Failed",
                        "errors": errors,
                        "documentation_url": "https://docs.github.com",
                    }
                    return (422, answer), {}
                return self._store(body["body"], self.login), {}
            return self._page(request, path)
        found = re.fullmatch(rf"{place}/issues/comments/(\d+)", path)
        if found is None or int(found[1]) not in self.comments:
            return (404, {"message": "Not Found"}), {}
        comment = self.comments[int(found[1])]
        if request.method == "DELETE":
            del self.comments[comment["id"]]
            return None, {}
        comment["body"] = body["body"]
        return comment, {}

    def _page(self, request: Request, path: str) -> tuple[Any, dict[str, str]]:
        size = min(int(request.args.get("per_page", 30)), self.largest_page)
        page = int(request.args.get("page", 1))
        comments = list(self.comments.values())
        last = max(1, -(-len(comments) // size))
        links = {"next": page + 1, "last": last} if page < last else {}
        text = ", ".join(f'<{self.url}{path}?per_page={size}&page={to}>; rel="{rel}"' for rel, to in links.items())
        return comments[(page - 1) * size : page * size], {"Link": text} if text else {}

    def _graphql(self, body: dict[str, Any]) -> Response:
        fault = next((fault for fault in self.faults if fault.method == "GRAPHQL"), None)
        if fault is not None:
            self.faults.remove(fault)
            return _json({"data": None, "errors": [{"type": fault.message, "message": "it is not allowed"}]}, 200, {})
        if "viewer" in body["query"]:
            return _json({"data": {"viewer": {"login": self.login}}}, 200, {})
        wanted = body["variables"]["input"]
        assert "minimizeComment" in body["query"]
        assert wanted["classifier"] == "OUTDATED"
        comment = next(one for one in self.comments.values() if one["node_id"] == wanted["subjectId"])
        comment["minimized"] = {"reason": "outdated"}
        self.hidden_by_graphql.append(comment["node_id"])
        return _json({"data": {"minimizeComment": {"minimizedComment": {"isMinimized": True}}}}, 200, {})

    def _store(self, body: str, login: str, *, hidden: bool = False) -> dict[str, Any]:
        self._next_id += 1
        number = self._next_id
        here = f"https://github.com/{self.repository}"
        api = f"{self.url}/repos/{self.repository}/issues"
        comment = {
            "id": number,
            "node_id": f"IC_{number}",
            "url": f"{api}/comments/{number}",
            "html_url": f"{here}/pull/{self.number}#issuecomment-{number}",
            "issue_url": f"{api}/{self.number}",
            "body": body.replace("\n", "\r\n").rstrip(),
            "user": user(login, number),
            "created_at": "2026-11-22T10:00:00Z",
            "updated_at": "2026-11-22T10:00:00Z",
            "author_association": "NONE",
            "performed_via_github_app": None,
            "minimized": {"reason": "outdated"} if hidden else None,
        }
        self.comments[number] = comment
        return comment


def user(login: str, number: int) -> dict[str, Any]:
    """An account as GitHub's answers show it."""
    name = quote(login)
    url = f"https://api.github.com/users/{name}"
    urls = (
        "followers",
        "following",
        "gists",
        "starred",
        "subscriptions",
        "organizations",
        "repos",
        "events",
        "received_events",
    )
    return {
        "login": login,
        "id": number,
        "node_id": f"U_{number}",
        "avatar_url": f"https://avatars.githubusercontent.com/{name}",
        "gravatar_id": "",
        "url": url,
        "html_url": f"https://github.com/{name}",
        **{f"{each}_url": f"{url}/{each}" for each in urls},
        "type": "Bot" if login.endswith("[bot]") else "User",
        "site_admin": False,
    }


def _profile(login: str) -> dict[str, Any]:
    """What GitHub says of the account that asks."""
    numbers = dict.fromkeys(("public_repos", "public_gists", "followers", "following"), 0)
    unknown = dict.fromkeys(("name", "company", "blog", "location", "email", "hireable", "bio"))
    times = dict.fromkeys(("created_at", "updated_at"), "2026-11-22T10:00:00Z")
    return user(login, 1) | numbers | unknown | times


def _json(answer: Any, status: int, headers: dict[str, str]) -> Response:
    text = "" if answer is None else json.dumps(answer)
    return Response(text, status, {**headers, "Content-Type": "application/json"})
