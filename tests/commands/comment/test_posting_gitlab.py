"""One right note, against a server that speaks GitLab's API and remembers what it is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from memlint.base.errors import UsageError
from memlint.commands.comment.forge import ForgeError
from memlint.commands.comment.gitlab import GitLab
from memlint.commands.comment.marker import marked, marker_of
from memlint.commands.comment.posting import Behavior, Draft, Posted, post
from tests.commands.comment.drafts import draft
from tests.commands.comment.fake_github import Fault
from tests.commands.comment.fake_gitlab import LIMIT, TOKEN, FakeGitLab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_httpserver import HTTPServer


@pytest.fixture
def gitlab(httpserver: HTTPServer) -> Iterator[FakeGitLab]:
    fake = FakeGitLab(httpserver.url_for("/"))
    httpserver.expect_request(re.compile(".*")).respond_with_handler(fake)
    yield fake
    httpserver.check()


def give(
    fake: FakeGitLab, what: Draft, wait: Callable[[float], None] = lambda _seconds: None, project: str = "42"
) -> Posted:
    return post(GitLab(fake.url, TOKEN, project, 7), what, wait=wait)


def never(_seconds: float) -> None:
    pytest.fail("waiting does not help")


def texts(fake: FakeGitLab, login: str = "project_42_bot") -> list[str]:
    return [
        note["body"].partition("\n\n<!--")[0] for note in fake.notes.values() if note["author"]["username"] == login
    ]


def marked_text(text: str, tag: str = "default") -> str:
    return marked(text, marker_of(text, tag))


@pytest.mark.parametrize("project", ["42", "acme/models"])
def test_a_note_is_made_then_edited_then_left_alone(gitlab: FakeGitLab, project: str) -> None:
    gitlab.add("assigned to @reviewer", "reviewer", system=True)

    actions = [give(gitlab, draft(text, order=(run, 1)), project=project).action for run, text in enumerate("abb")]

    assert actions == ["created", "updated", "unchanged"]
    assert texts(gitlab) == ["b"]


def test_an_older_run_never_overwrites_a_newer_one(gitlab: FakeGitLab) -> None:
    give(gitlab, draft("new", order=(12, 100)))

    assert give(gitlab, draft("old", order=(11, 900))).action == "outdated"
    assert texts(gitlab) == ["new"]


def test_a_marker_in_the_note_of_somebody_else_counts_for_nothing(gitlab: FakeGitLab) -> None:
    gitlab.add(marked_text("planted"), "attacker")

    assert give(gitlab, draft("true")).action == "created"
    assert texts(gitlab, "attacker") == ["planted"]


@pytest.mark.parametrize("ours_at", [0, 20, 44])
def test_every_page_is_read_and_the_token_stays_with_the_server(gitlab: FakeGitLab, ours_at: int) -> None:
    gitlab.largest_page = 10
    for number in range(45):
        if number == ours_at:
            gitlab.add(marked_text("old"))
        else:
            gitlab.add(f"note {number}", "reviewer")

    assert give(gitlab, draft("new")).action == "updated"
    assert texts(gitlab) == ["new"]
    assert gitlab.requests.count(("GET", "/api/v4/projects/42/merge_requests/7/notes")) == 5


def test_tags_keep_the_notes_of_several_jobs_apart(gitlab: FakeGitLab) -> None:
    for tag in ("a100", "h100", "a100"):
        give(gitlab, draft(f"{tag} peak", tag=tag))

    assert texts(gitlab) == ["a100 peak", "h100 peak"]


def test_delete_and_new_leaves_one(gitlab: FakeGitLab) -> None:
    for run in range(3):
        assert give(gitlab, draft(f"run {run}", order=(run, 1), behavior="delete-and-new")).action == "created"

    assert texts(gitlab) == ["run 2"]


def test_hiding_is_refused_before_anything_is_posted(gitlab: FakeGitLab) -> None:
    with pytest.raises(UsageError, match="GitLab cannot hide comments"):
        give(gitlab, draft(behavior="hide-and-new"))

    assert gitlab.requests == []


def test_a_token_that_may_not_write_is_told_apart(gitlab: FakeGitLab) -> None:
    gitlab.faults.append(Fault("POST", 403, "403 Forbidden"))

    with pytest.raises(ForgeError, match="403 Forbidden") as caught:
        give(gitlab, draft(), never)

    assert caught.value.trouble == "not allowed"


def test_a_token_that_is_not_known_names_the_variable(gitlab: FakeGitLab) -> None:
    gitlab.faults.append(Fault("GET", 401, "401 Unauthorized"))

    with pytest.raises(ForgeError, match="401 Unauthorized") as caught:
        give(gitlab, draft(), never)

    assert "GITLAB_TOKEN" in caught.value.hint


def test_a_merge_request_that_is_not_there_is_named(gitlab: FakeGitLab) -> None:
    with pytest.raises(ForgeError, match="acme/other!7") as caught:
        give(gitlab, draft(), never, project="acme/other")

    assert caught.value.trouble == "not found"


def test_a_note_that_is_too_long_is_told_and_not_sent_again(gitlab: FakeGitLab) -> None:
    with pytest.raises(ForgeError, match="is too long") as caught:
        give(gitlab, draft("x" * LIMIT), never)

    assert caught.value.trouble == "invalid"
    assert gitlab.sent("POST") == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [0, 500, 502])
def test_a_failing_server_is_asked_again(gitlab: FakeGitLab, method: str, status: int) -> None:
    gitlab.faults += [Fault(method, status, "Bad gateway")] * 2
    waits: list[float] = []

    assert give(gitlab, draft(), waits.append).action == "created"

    assert waits == [2.0, 4.0]
    assert len(gitlab.notes) == 1


@pytest.mark.parametrize("behavior", ["update", "new", "delete-and-new"])
@pytest.mark.parametrize("status", [0, 502])
def test_an_answer_that_was_lost_never_posts_twice(gitlab: FakeGitLab, behavior: Behavior, status: int) -> None:
    gitlab.faults.append(Fault("POST", status, after_storing=True))

    assert give(gitlab, draft("new", behavior=behavior)).action == "created"
    assert texts(gitlab) == ["new"]


@pytest.mark.parametrize(
    ("headers", "expected"), [({"Retry-After": "23"}, [23.0]), ({"RateLimit-Reset": "1"}, [1.0]), ({}, [60.0, 120.0])]
)
def test_a_rate_limit_is_waited_out(gitlab: FakeGitLab, headers: dict[str, str], expected: list[float]) -> None:
    gitlab.faults += [Fault("POST", 429, "Retry later", headers)] * len(expected)
    waits: list[float] = []

    assert give(gitlab, draft(), waits.append).action == "created"

    assert waits == expected
    assert len(gitlab.notes) == 1


def test_a_server_that_says_when_it_is_back_is_given_that_long(gitlab: FakeGitLab) -> None:
    gitlab.faults.append(Fault("POST", 503, "Unavailable", {"Retry-After": "9", "RateLimit-Reset": "1"}))
    gitlab.faults.append(Fault("POST", 503, "Unavailable", {"RateLimit-Reset": "1"}))
    waits: list[float] = []

    assert give(gitlab, draft(), waits.append).action == "created"

    assert waits == [9.0, 4.0]


def test_a_redirection_to_another_host_does_not_get_the_token(httpserver: HTTPServer) -> None:
    notes = "/api/v4/projects/42/merge_requests/7/notes"
    elsewhere = f"http://localhost.localdomain:{httpserver.port}{notes}"
    httpserver.expect_request(notes).respond_with_data("", 302, {"Location": elsewhere})

    with pytest.raises(ForgeError, match=r"redirects to http://localhost\.localdomain"):
        post(GitLab(httpserver.url_for("/").rstrip("/"), TOKEN, "42", 7), draft(), wait=never)

    assert len(httpserver.log) == 1


@pytest.mark.parametrize("answer", ["<html>a proxy</html>", "{}", "[1]", '[{"id": "no number"}]', "[["])
def test_an_answer_that_is_not_gitlabs_is_told(httpserver: Any, answer: str) -> None:
    httpserver.expect_request("/api/v4/projects/42/merge_requests/7/notes").respond_with_data(
        answer, content_type="application/json"
    )

    with pytest.raises(
        ForgeError, match=r"is not GitLab's API: it sends application/json that is not GitLab's"
    ) as caught:
        post(GitLab(httpserver.url_for("/").rstrip("/"), TOKEN, "42", 7), draft(), wait=never)

    assert "--api-url may be wrong" in caught.value.hint


@pytest.mark.parametrize("status", [200, 401, 403, 404])
def test_a_page_is_told_at_once(httpserver: HTTPServer, status: int) -> None:
    httpserver.expect_request(re.compile(".*")).respond_with_data("<html>x</html>", status, content_type="text/html")

    with pytest.raises(ForgeError, match=r"is not GitLab's API: it sends text/html") as caught:
        post(GitLab(httpserver.url_for("/").rstrip("/"), TOKEN, "42", 7), draft(), wait=never)

    assert caught.value.trouble == "invalid"


def test_a_page_with_which_a_server_fails_is_waited_out(httpserver: HTTPServer) -> None:
    httpserver.expect_request(re.compile(".*")).respond_with_data("<html>whoops</html>", 502)
    waits: list[float] = []

    with pytest.raises(ForgeError, match=r"GitLab fails"):
        post(GitLab(httpserver.url_for("/").rstrip("/"), TOKEN, "42", 7), draft(), wait=waits.append)

    assert len(waits) == 5
