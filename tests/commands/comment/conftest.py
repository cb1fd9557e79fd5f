from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.commands.comment.fake_github import FakeGitHub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_httpserver import HTTPServer


@pytest.fixture
def github(httpserver: HTTPServer) -> Iterator[FakeGitHub]:
    fake = FakeGitHub(httpserver.url_for("/"))
    httpserver.expect_request(re.compile(".*")).respond_with_handler(fake)
    yield fake
    httpserver.check()  # requests that do not conform fail in the server's thread


@pytest.fixture
def enterprise(httpserver: HTTPServer) -> Iterator[FakeGitHub]:
    """GitHub Enterprise Server, whose API is below a path."""
    fake = FakeGitHub(httpserver.url_for("/"), prefix="/api/v3")
    httpserver.expect_request(re.compile(".*")).respond_with_handler(fake)
    yield fake
    httpserver.check()
