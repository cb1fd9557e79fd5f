"""GitLab's notes of a merge request, kept in memory behind HTTP."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from werkzeug import Request, Response

if TYPE_CHECKING:
    from tests.commands.comment.fake_github import Fault

TOKEN = "secret-token"
LIMIT = 1_000_000


class FakeGitLab:
    """Project 42, `acme/models`, and its merge request 7."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.login = "project_42_bot"
        self.notes: dict[int, dict[str, Any]] = {}
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.largest_page = 100
        self._next_id = 1000

    def add(self, body: str, login: str | None = None, *, system: bool = False) -> int:
        """A note that was there before."""
        return self._store(body, login or self.login, system=system)["id"]

    def sent(self, method: str) -> int:
        return sum(sent == method for sent, _path in self.requests)

    def __call__(self, request: Request) -> Response:
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        body = json.loads(request.get_data()) if request.get_data() else None
        self.requests.append((request.method, request.path))
        fault = next((fault for fault in self.faults if fault.method == request.method), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.after_storing:
                self._answer(request, body)
            time.sleep(fault.delay)
            if fault.status == 0:
                request.environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
                return Response()
            return _json({"message": fault.message}, fault.status, fault.headers)
        return self._answer(request, body)

    def _answer(self, request: Request, body: Any) -> Response:
        if request.path == "/api/v4/user":
            return _json({"id": 1, "username": self.login}, 200)
        # werkzeug shows a path that was written acme%2Fmodels as acme/models
        found = re.fullmatch(r"/api/v4/projects/(?:42|acme/models)/merge_requests/7/notes(?:/(\d+))?", request.path)
        if found is None:
            return _json({"message": "404 Not found"}, 404)
        if request.method in ("POST", "PUT") and len(body["body"]) > LIMIT:
            return _json({"message": {"note": [f"is too long (maximum is {LIMIT} characters)"]}}, 400)
        if found[1] is None:
            return (
                _json(self._store(body["body"], self.login), 201) if request.method == "POST" else self._page(request)
            )
        note = self.notes.get(int(found[1]))
        if note is None:
            return _json({"message": "404 Note Not Found"}, 404)
        if request.method == "DELETE":
            del self.notes[note["id"]]
            return Response("", 204)
        note["body"] = body["body"]
        return _json(note, 200)

    def _page(self, request: Request) -> Response:
        assert request.args["order_by"] == "created_at"
        size = min(int(request.args.get("per_page", 20)), self.largest_page)
        page = int(request.args.get("page", 1))
        shown = [note for note in self.notes.values() if not (note["system"] and "activity_filter" in request.args)]
        notes = sorted(shown, key=lambda note: note["id"], reverse=request.args.get("sort") != "asc")
        headers = {"X-Page": str(page), "X-Per-Page": str(size)}
        if page * size < len(notes):
            # behind a proxy GitLab may not know by which address it is reached
            target = (
                f"http://gitlab.internal{request.path}?page={page + 1}&per_page={size}&order_by=created_at&sort=asc"
            )
            headers |= {"Link": f'<{target}>; rel="next"', "X-Next-Page": str(page + 1)}
        return _json(notes[(page - 1) * size : page * size], 200, headers)

    def _store(self, body: str, login: str, *, system: bool = False) -> dict[str, Any]:
        self._next_id += 1
        note = {
            "id": self._next_id,
            "body": body.strip(),
            "author": {"id": 1, "username": login, "name": login},
            "created_at": "2026-11-22T10:00:00.000Z",
            "system": system,
            "noteable_iid": 7,
        }
        self.notes[note["id"]] = note
        return note


def _json(answer: Any, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps(answer), status, {**(headers or {}), "Content-Type": "application/json"})
