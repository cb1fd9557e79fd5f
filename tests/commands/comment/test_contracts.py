"""Whole conversations through Prism, which holds requests and answers against what the forge has published.

docs/contract-tests.md says how to get Prism and the descriptions.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest
import requests

from memlint.commands.comment.ci import Head
from memlint.commands.comment.github import GitHub
from memlint.commands.comment.gitlab import GitLab
from memlint.commands.comment.marker import marker_of
from memlint.commands.comment.posting import Behavior, Draft, post
from tests.commands.comment.fake_github import TOKEN, FakeGitHub
from tests.commands.comment.fake_gitlab import FakeGitLab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_httpserver import HTTPServer

    from memlint.commands.comment.forge import Forge

pytestmark = pytest.mark.slow

PATIENCE = 120


def named(variable: str) -> str:
    """What an environment variable names; the test is skipped where it is not set."""
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set: see docs/contract-tests.md")
    return value


@contextmanager
def prism(description: str, server: HTTPServer) -> Iterator[str]:
    """The URL of Prism in front of the server: what does not conform is answered with 422 or 500."""
    command = shlex.split(named("MEMLINT_PRISM"))
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    upstream = f"http://127.0.0.1:{server.port}"
    running = subprocess.Popen(
        [*command, "proxy", "--errors", "-h", "127.0.0.1", "-p", str(port), description, upstream],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(url, running)
        yield url
    finally:
        running.terminate()
        running.wait()


def _wait_for(url: str, running: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert running.poll() is None, "Prism has ended"
        try:
            requests.get(f"{url}/nothing", timeout=PATIENCE)
        except requests.ConnectionError:
            time.sleep(0.2)
        else:
            return
    pytest.fail("Prism does not answer")


def never(_seconds: float) -> None:
    pytest.fail("a request or an answer does not conform")


def actions(forge: Forge, *behaviors: Behavior) -> list[str]:
    """What comes of runs one after another."""
    found = []
    for run, behavior in enumerate(behaviors):
        text = f"run {run}"
        found.append(post(forge, Draft(text, marker_of(text, "default", (run, 1)), behavior), wait=never).action)
    return found


def test_conversations_with_github_conform_to_its_description(httpserver: HTTPServer) -> None:
    with prism(named("MEMLINT_GITHUB_OPENAPI"), httpserver) as url:
        fake = FakeGitHub(url)
        fake.may_ask_who = True
        httpserver.expect_request(re.compile(".*")).respond_with_handler(fake)
        for number in range(150):
            fake.add(f"comment {number}", "reviewer")
        forge = GitHub(url, TOKEN, fake.repository, fake.number, between_writes=0.0)

        assert actions(forge, "update", "update", "new", "delete-and-new") == [
            "created",
            "updated",
            "created",
            "created",
        ]
        assert len(fake.bodies()) == 1
        assert forge.pull_requests(Head("a" * 40, "fork/models", "topic")) == []
        assert fake.sent("GET") >= 8
        httpserver.check()

        wrong = requests.post(
            f"{url}/repos/acme/models/issues/7/comments",
            json={"text": "no body"},
            headers={"Authorization": f"token {TOKEN}"},
            timeout=PATIENCE,
        )
        assert wrong.status_code == 422


def test_conversations_with_gitlab_conform_to_its_description(httpserver: HTTPServer) -> None:
    with prism(named("MEMLINT_GITLAB_OPENAPI"), httpserver) as url:
        fake = FakeGitLab(url)
        httpserver.expect_request(re.compile(".*")).respond_with_handler(fake)
        for number in range(150):
            fake.add(f"note {number}", "reviewer")
        forge = GitLab(url, TOKEN, "42", 7)

        # not delete-and-new: the description wants a body in an answer with status 204, which can have none
        assert actions(forge, "update", "update", "new") == ["created", "updated", "created"]
        assert sum(note["author"]["username"] == fake.login for note in fake.notes.values()) == 2
        httpserver.check()

        wrong = requests.post(
            f"{url}/api/v4/projects/42/merge_requests/7/notes",
            json={"text": "no body"},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE,
        )
        assert wrong.status_code in (400, 422)
