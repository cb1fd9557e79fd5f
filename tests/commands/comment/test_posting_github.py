"""One right comment, against a server that speaks GitHub's API and remembers what it is told."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from memlint.commands.comment.forge import ForgeError
from memlint.commands.comment.github import GitHub
from memlint.commands.comment.marker import Order, marked, marker_of, read_marker
from memlint.commands.comment.posting import Behavior, Draft, Posted, post
from tests.commands.comment.drafts import draft
from tests.commands.comment.fake_github import ACTIONS, TOKEN, FakeGitHub, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
FORK = "Resource not accessible by integration"


def give(fake: FakeGitHub, what: Draft, wait: Callable[[float], None] = lambda _seconds: None) -> Posted:
    forge = GitHub(fake.url, TOKEN, fake.repository, fake.number, between_writes=0.0)
    return post(forge, what, wait=wait)


def never(_seconds: float) -> None:
    pytest.fail("waiting does not help")


def texts(fake: FakeGitHub) -> list[str]:
    """What readers see of our comments."""
    return [body.replace("\r\n", "\n").partition("\n\n<!--")[0] for body in fake.bodies()]


def marked_text(text: str, *, tag: str = "default", order: Order | None = None) -> str:
    return marked(text, marker_of(text, tag, order))


def test_the_first_comment_is_made_and_its_place_told(github: FakeGitHub) -> None:
    github.add("Nice work!", "reviewer")

    outcome = give(github, draft())

    assert outcome.action == "created"
    assert outcome.url == f"https://github.com/acme/models/pull/7#issuecomment-{max(github.comments)}"
    assert texts(github) == ["## peak +1.4 GiB"]


def test_a_comment_that_is_there_is_edited_in_place(github: FakeGitHub) -> None:
    first = give(github, draft("old", order=(1, 1)))
    github.add("ok", "reviewer")

    second = give(github, draft("new", order=(2, 1)))

    assert (second.action, second.url) == ("updated", first.url)
    assert texts(github) == ["new"]
    assert github.sent("POST") - github.requests.count(("POST", "/graphql")) == 1


def test_a_comment_that_says_the_same_is_left_alone(github: FakeGitHub) -> None:
    give(github, draft("same", order=(1, 1)))

    outcome = give(github, draft("same", order=(1, 1)))

    assert outcome.action == "unchanged"
    assert outcome.url
    assert github.sent("PATCH") == 0
    assert texts(github) == ["same"]


def test_an_older_run_never_overwrites_a_newer_one(github: FakeGitHub) -> None:
    give(github, draft("new", order=(12, 1)))

    for order in ((9, 7), (11, 2)):
        for behavior in ("update", "new", "hide-and-new", "delete-and-new"):
            assert give(github, draft("old", order=order, behavior=behavior)).action == "outdated"

    assert texts(github) == ["new"]


def test_an_older_run_never_overwrites_what_a_newer_one_found_to_be_right(github: FakeGitHub) -> None:
    give(github, draft("as before", order=(1, 1)))
    assert give(github, draft("as before", order=(3, 1))).action == "unchanged"

    assert give(github, draft("grown", order=(2, 1))).action == "outdated"

    assert texts(github) == ["as before"]


def test_another_attempt_of_the_same_run_is_newer(github: FakeGitHub) -> None:
    give(github, draft("first attempt", order=(12, 1)))

    assert give(github, draft("second attempt", order=(12, 2))).action == "updated"


def test_without_an_order_on_either_side_the_last_one_counts(github: FakeGitHub) -> None:
    give(github, draft("from a pipeline", order=(12, 1)))
    assert give(github, draft("by hand")).action == "updated"
    assert give(github, draft("from an older pipeline", order=(3, 1))).action == "updated"


def test_a_first_comment_is_made_only_when_it_is_due(github: FakeGitHub) -> None:
    for behavior in ("update", "new", "hide-and-new", "delete-and-new"):
        assert give(github, draft(is_due=False, behavior=behavior)).action == "not due"
    assert github.bodies() == []

    give(github, draft("grown"))
    assert give(github, draft("back to normal", is_due=False)).action == "updated"
    assert texts(github) == ["back to normal"]


def test_a_marker_in_the_comment_of_somebody_else_counts_for_nothing(github: FakeGitHub) -> None:
    planted = github.add(marked_text("planted", order=(10**15, 1)), "attacker")

    assert give(github, draft("true", order=(1, 1))).action == "created"

    assert texts(github) == ["true"]
    assert "planted" in github.comments[planted]["body"]


def test_a_quoted_marker_is_no_marker(github: FakeGitHub) -> None:
    quoted = "\n".join(f"> {line}" for line in marked_text("quoted").splitlines())
    github.add(f"{marked_text('quoted')}\nSee above.")
    github.add(quoted)

    assert give(github, draft()).action == "created"


@pytest.mark.parametrize("login", ["octocat", "my-app[bot]"])
@pytest.mark.parametrize("may_ask_who", [True, False])
def test_the_comment_is_found_whoever_the_token_belongs_to(github: FakeGitHub, login: str, may_ask_who: bool) -> None:
    github.login, github.may_ask_who = login, may_ask_who

    assert [give(github, draft(text)).action for text in ("old", "new")] == ["created", "updated"]


def test_a_server_that_answers_neither_question_takes_the_workflow_for_the_author(github: FakeGitHub) -> None:
    give(github, draft("old"))
    github.faults.append(Fault("GRAPHQL", message="FORBIDDEN"))

    assert give(github, draft("new")).action == "updated"


@pytest.mark.parametrize("ours_at", [None, 0, 20, 44])
def test_every_page_of_a_long_conversation_is_read(github: FakeGitHub, ours_at: int | None) -> None:
    github.largest_page = 10
    for number in range(45):
        if number == ours_at:
            github.add(marked_text("old"))
        else:
            github.add(f"comment {number}", "reviewer")

    outcome = give(github, draft("new"))

    assert outcome.action == ("created" if ours_at is None else "updated")
    assert texts(github) == ["new"]
    assert github.requests.count(("GET", "/repos/acme/models/issues/7/comments")) == 5


def test_the_newest_of_two_is_updated(github: FakeGitHub) -> None:
    older, newer = github.add(marked_text("a")), github.add(marked_text("b"))

    give(github, draft("new"))

    assert github.comments[older]["body"].startswith("a")
    assert github.comments[newer]["body"].startswith("new")


def test_a_hidden_comment_is_not_brought_back(github: FakeGitHub) -> None:
    github.add(marked_text("old"), hidden=True)

    assert give(github, draft("new")).action == "created"


def test_tags_keep_the_comments_of_several_jobs_apart(github: FakeGitHub) -> None:
    def leg(tag: str) -> list[str]:
        return [give(github, draft(f"{tag} {run}", tag=tag, order=(run, 1))).action for run in (1, 2)]

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(leg, ["a100", "h100"])) == [["created", "updated"]] * 2

    assert sorted(texts(github)) == ["a100 2", "h100 2"]


def test_new_leaves_earlier_comments_as_they_are(github: FakeGitHub) -> None:
    for run, text in enumerate(("same", "same", "other")):
        assert give(github, draft(text, order=(run, 1), behavior="new")).action == "created"
    assert texts(github) == ["same", "same", "other"]


def test_new_posts_no_second_time_for_the_same_run(github: FakeGitHub) -> None:
    actions = [give(github, draft(order=(1, 1), behavior="new")).action for _ in range(2)]

    assert actions == ["created", "unchanged"]
    assert len(texts(github)) == 1


def test_hide_and_new_hides_what_was_there_once(github: FakeGitHub) -> None:
    github.add(marked_text("other job", tag="other"))
    for run in range(3):
        give(github, draft(f"run {run}", order=(run, 1), behavior="hide-and-new"))

    hidden = [one["body"].split("\r\n")[0] for one in github.comments.values() if one["minimized"]]
    assert hidden == ["run 0", "run 1"]
    assert len(github.hidden_by_graphql) == 2


def test_delete_and_new_leaves_one(github: FakeGitHub) -> None:
    github.add(marked_text("other job", tag="other"))
    github.add(marked_text("planted"), "attacker")
    for run in range(3):
        give(github, draft(f"run {run}", order=(run, 1), behavior="delete-and-new"))

    assert texts(github) == ["other job", "run 2"]
    assert len(github.comments) == 3


def test_what_cannot_be_hidden_is_told_and_the_new_comment_stands(github: FakeGitHub) -> None:
    github.add(marked_text("old"))
    # the first question asks who we are
    github.faults += [Fault("GRAPHQL", message="NOT_MEANT"), Fault("GRAPHQL", message="FORBIDDEN")]

    outcome = give(github, draft("new", behavior="hide-and-new"))

    assert outcome.action == "created"
    assert "it is not allowed" in outcome.left
    assert texts(github) == ["old", "new"]


def test_a_token_that_may_not_write_is_told_apart(github: FakeGitHub) -> None:
    github.faults.append(Fault("POST", 403, FORK, {"x-ratelimit-remaining": "4999"}))

    with pytest.raises(ForgeError, match="Resource not accessible") as caught:
        give(github, draft(), wait=lambda _seconds: pytest.fail("waiting does not help"))

    assert caught.value.trouble == "not allowed"
    assert github.bodies() == []


def test_a_pull_request_that_is_not_there_is_named(github: FakeGitHub) -> None:
    github.number = 8
    forge = GitHub(github.url, TOKEN, github.repository, 7, between_writes=0.0)

    with pytest.raises(ForgeError, match="acme/models#7") as caught:
        post(forge, draft(), wait=lambda _seconds: pytest.fail("waiting does not help"))

    assert caught.value.trouble == "not found"


def test_a_body_that_is_too_long_is_told_and_not_sent_again(github: FakeGitHub) -> None:
    with pytest.raises(ForgeError, match=r"Body is too long \(maximum is 65536 characters\)") as caught:
        give(github, draft("x" * 70_000), wait=lambda _seconds: pytest.fail("waiting does not help"))

    assert caught.value.trouble == "invalid"
    assert github.sent("POST") == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("status", [0, 500, 502, 503])
def test_a_failing_server_is_asked_again(github: FakeGitHub, method: str, status: int) -> None:
    github.faults += [Fault(method, status, "Server Error")] * 2
    waits: list[float] = []

    assert give(github, draft(), waits.append).action == "created"

    assert waits == [2.0, 4.0]
    assert texts(github) == ["## peak +1.4 GiB"]


def test_an_edit_that_failed_is_made_again(github: FakeGitHub) -> None:
    give(github, draft("old"))
    github.faults.append(Fault("PATCH", 502, "Bad gateway"))

    assert give(github, draft("new")).action == "updated"
    assert texts(github) == ["new"]


@pytest.mark.parametrize("behavior", ["update", "new", "hide-and-new", "delete-and-new"])
@pytest.mark.parametrize("status", [0, 502])
def test_an_answer_that_was_lost_never_posts_twice(github: FakeGitHub, behavior: Behavior, status: int) -> None:
    github.add(marked_text("old"), hidden=behavior == "update")
    github.faults.append(Fault("POST", status, after_storing=True))

    assert give(github, draft("new", behavior=behavior)).action == "created"

    assert texts(github).count("new") == 1
    assert ("old" in texts(github)) == (behavior != "delete-and-new")


def test_an_answer_that_comes_too_late_never_posts_twice(github: FakeGitHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlint.commands.comment.github._TIMEOUT", 1)
    github.faults.append(Fault("POST", 502, after_storing=True, delay=1.2))

    assert give(github, draft()).action == "created"

    assert len(github.comments) == 1


def test_a_comment_that_vanishes_before_it_is_edited_is_made_anew(github: FakeGitHub) -> None:
    github.add(marked_text("old"))
    github.faults.append(Fault("PATCH", 404, "Not Found"))
    github.before["PATCH"] = github.comments.clear

    assert give(github, draft("new")).action == "created"
    assert texts(github) == ["new"]


@pytest.mark.parametrize("status", [403, 429])
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param(lambda: {"retry-after": "17"}, [17.0], id="retry-after"),
        pytest.param(
            lambda: {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 50)}, [50.0], id="reset"
        ),
        pytest.param(lambda: {"x-ratelimit-remaining": "12", "x-ratelimit-reset": "9"}, [60.0, 120.0], id="neither"),
    ],
)
def test_a_rate_limit_is_waited_out_for_as_long_as_it_says(
    github: FakeGitHub, status: int, headers: Callable[[], dict[str, str]], expected: list[float]
) -> None:
    github.faults += [Fault("POST", status, SECONDARY, headers())] * len(expected)
    waits: list[float] = []

    assert give(github, draft(), waits.append).action == "created"

    assert waits == pytest.approx(expected, abs=3)
    assert len(github.comments) == 1


def test_a_rate_limit_that_lasts_too_long_is_told(github: FakeGitHub) -> None:
    github.faults.append(Fault("POST", 403, "API rate limit exceeded for installation.", {"retry-after": "1800"}))

    with pytest.raises(ForgeError, match=r"API rate limit exceeded .* in 1800 seconds") as caught:
        give(github, draft(), wait=lambda _seconds: pytest.fail("nobody waits half an hour"))

    assert caught.value.hint


@pytest.mark.parametrize(("after", "expected"), [("9", 9.0), ("Fri, 06 Nov 2020 08:49:37 GMT", 0.0)])
def test_a_server_that_says_when_it_is_back_is_given_that_long(github: FakeGitHub, after: str, expected: float) -> None:
    exhausted = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 100)}
    github.faults.append(Fault("POST", 503, "Unavailable", {"retry-after": after, **exhausted}))
    github.faults.append(Fault("POST", 503, "Unavailable", exhausted))
    waits: list[float] = []

    assert give(github, draft(), waits.append).action == "created"

    assert waits == [expected, 4.0]
    assert len(github.comments) == 1


def test_a_server_that_goes_on_failing_is_given_up(github: FakeGitHub) -> None:
    github.faults += [Fault("POST", 500, "Server Error")] * 50
    waits: list[float] = []

    with pytest.raises(ForgeError, match=r"GitHub fails: Server Error \(status 500\)"):
        give(github, draft(), waits.append)

    assert 4 <= len(waits) <= 8
    assert sum(waits) <= 300


def test_nobody_listening_is_told_with_the_reason() -> None:
    forge = GitHub("http://127.0.0.1:9", TOKEN, "acme/models", 7)

    with pytest.raises(ForgeError, match=r"GitHub gave no answer: .*refused"):
        post(forge, draft(), wait=lambda _seconds: None)


@pytest.mark.parametrize(
    "answer", ["<html>a proxy</html>", "[]", "{}", "[1]", '[{"id": "no number"}]', "[[", "null", ""]
)
def test_an_answer_that_is_not_githubs_is_told(httpserver: Any, answer: str) -> None:
    httpserver.expect_request("/repos/acme/models/issues/7/comments").respond_with_data(answer)
    forge = GitHub(httpserver.url_for("/").rstrip("/"), TOKEN, "acme/models", 7, between_writes=0.0)

    with pytest.raises(ForgeError, match="is not GitHub's API: it sends something else than GitHub's JSON") as caught:
        post(forge, draft(), wait=never)

    assert "--api-url may be wrong" in caught.value.hint


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
@pytest.mark.parametrize("page", ["<html>not here</html>", "", '{"error": "no"}'])
def test_a_refusal_that_is_not_githubs_is_told_at_once(httpserver: Any, status: int, page: str) -> None:
    httpserver.expect_request(re.compile(".*")).respond_with_data(page, status, content_type="text/html")
    forge = GitHub(httpserver.url_for("/").rstrip("/"), TOKEN, "acme/models", 7, between_writes=0.0)

    with pytest.raises(ForgeError, match=rf"is not GitHub's API: it sends text/html with status {status}") as caught:
        post(forge, draft(), wait=never)

    assert caught.value.trouble == "invalid"
    assert "--api-url may be wrong" in caught.value.hint


def test_a_page_with_which_a_server_fails_is_waited_out(httpserver: Any) -> None:
    httpserver.expect_request(re.compile(".*")).respond_with_data("<html>unicorn</html>", 502)
    forge = GitHub(httpserver.url_for("/").rstrip("/"), TOKEN, "acme/models", 7, between_writes=0.0)
    waits: list[float] = []

    with pytest.raises(ForgeError, match=r"GitHub fails: status 502"):
        post(forge, draft(), wait=waits.append)

    assert len(waits) == 5


def test_enterprise_server_is_spoken_to_below_its_path(enterprise: FakeGitHub) -> None:
    for run in range(2):
        forge = GitHub(enterprise.url, TOKEN, enterprise.repository, enterprise.number, between_writes=0.0)
        post(forge, draft(f"run {run}", order=(run, 1), behavior="hide-and-new"), wait=lambda _seconds: None)

    assert texts(enterprise) == ["run 0", "run 1"]
    assert len(enterprise.hidden_by_graphql) == 1


def test_what_is_posted_ends_with_a_marker_that_can_be_read(github: FakeGitHub) -> None:
    give(github, draft("text", tag="gpt-small", order=(123, 4)))

    marker = read_marker(github.bodies()[0])
    assert marker is not None
    assert (marker.tag, marker.order) == ("gpt-small", (123, 4))
    assert github.login == ACTIONS
