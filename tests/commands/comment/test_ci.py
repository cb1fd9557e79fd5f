from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from memlint.base.errors import UsageError
from memlint.commands.comment.ci import (
    Head,
    checked_repository,
    checked_url,
    github_context,
    gitlab_context,
)

if TYPE_CHECKING:
    from pathlib import Path

ACTIONS = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REPOSITORY": "acme/models",
    "GITHUB_API_URL": "https://api.github.com",
    "GITHUB_RUN_ID": "900",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_TOKEN": "token",
}


def actions(tmp_path: Path, name: str, event: Any) -> dict[str, str]:
    file = tmp_path / "event.json"
    file.write_text(event if isinstance(event, str) else json.dumps(event))
    return ACTIONS | {"GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(file)}


def pull_request(repository: str = "acme/models") -> dict[str, Any]:
    return {"number": 7, "pull_request": {"number": 7, "head": {"sha": "abc", "repo": {"full_name": repository}}}}


def finished(**changes: Any) -> dict[str, Any]:
    run = {
        "id": 800,
        "run_number": 3,
        "run_attempt": 1,
        "event": "pull_request",
        "head_sha": "abc",
        "head_branch": "topic",
        "head_repository": {"full_name": "fork/models", "owner": {"login": "fork"}},
        "pull_requests": [],
    }
    return {"action": "completed", "workflow_run": run | changes}


def test_a_pull_request_is_known_from_its_event(tmp_path: Path) -> None:
    here = github_context(
        actions(tmp_path, "pull_request", pull_request()) | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    )

    assert (here.repository, here.number, here.commit, here.order) == ("acme/models", 7, "abc", (900, 2))
    assert here.summary == tmp_path / "summary"
    assert not here.from_fork
    assert here.head is None


@pytest.mark.parametrize("repository", ["fork/models", None])
def test_a_fork_is_known_even_when_it_is_gone(tmp_path: Path, repository: str | None) -> None:
    event = pull_request(repository or "")
    if repository is None:
        event["pull_request"]["head"]["repo"] = None

    assert github_context(actions(tmp_path, "pull_request", event)).from_fork


def test_after_another_workflow_commit_and_order_are_those_of_its_run(tmp_path: Path) -> None:
    here = github_context(actions(tmp_path, "workflow_run", finished()))

    assert here.head == Head("abc", "fork/models", "topic")
    assert here.head.owner == "fork"
    assert (here.number, here.commit, here.order) == (None, "abc", (800, 1))


def test_after_another_workflow_a_fork_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say which commit"):
        github_context(actions(tmp_path, "workflow_run", finished(head_repository=None)))


def test_other_events_have_no_pull_request(tmp_path: Path) -> None:
    here = github_context(actions(tmp_path, "push", {"ref": "refs/heads/main"}))

    assert here.number is None
    assert not here.from_fork


def test_outside_of_ci_nothing_is_known() -> None:
    here = github_context({})

    assert (here.api_url, here.repository, here.number, here.order, here.summary) == (
        "https://api.github.com",
        "",
        None,
        None,
        None,
    )
    assert gitlab_context({}).api_url == "https://gitlab.com"


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\ud800"])
def test_an_event_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    environment = actions(tmp_path, "pull_request", "")
    (tmp_path / "event.json").write_bytes(text.encode("utf-8", "surrogatepass"))

    with pytest.raises(UsageError, match="GITHUB_EVENT_PATH cannot be read"):
        github_context(environment)


@pytest.mark.parametrize("event", [[], "7", {"pull_request": 7}, {"pull_request": {"number": "7", "head": []}}])
def test_an_event_of_another_shape_says_nothing(tmp_path: Path, event: Any) -> None:
    assert github_context(actions(tmp_path, "pull_request", json.dumps(event))).number is None


@pytest.mark.parametrize("attempt", ["", "first", "9" * 30])
def test_an_order_that_is_no_number_is_none(tmp_path: Path, attempt: str) -> None:
    environment = actions(tmp_path, "pull_request", pull_request()) | {"GITHUB_RUN_ATTEMPT": attempt}

    assert github_context(environment).order is None


def test_a_merge_request_is_in_the_project_it_is_to_be_merged_into() -> None:
    here = gitlab_context(
        {
            "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
            "CI_PROJECT_ID": "99",
            "CI_MERGE_REQUEST_PROJECT_ID": "42",
            "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99",
            "CI_MERGE_REQUEST_IID": "7",
            "CI_PIPELINE_ID": "1000",
            "CI_JOB_ID": "5000",
            "CI_COMMIT_SHA": "merged",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "abc",
        }
    )

    assert (here.repository, here.number, here.order, here.commit) == ("42", 7, (1000, 5000), "abc")
    assert here.from_fork
    assert here.token == ""


def test_a_pipeline_of_the_project_itself_is_no_fork() -> None:
    here = gitlab_context(
        {"CI_PROJECT_ID": "42", "CI_MERGE_REQUEST_PROJECT_ID": "42", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "42"}
    )

    assert not here.from_fork
    assert not gitlab_context({"CI_PROJECT_ID": "42"}).from_fork


@pytest.mark.parametrize(
    "url",
    [
        "https://api.github.com",
        "https://ghe.example/api/v3/",
        "http://localhost:8000",
        "http://127.0.0.1",
        "http://127.8.9.1:1",
        "http://[::1]:80/api",
    ],
)
def test_a_token_travels_over_https_or_on_this_machine(url: str) -> None:
    assert checked_url(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "http://ghe.example/api/v3",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
        "http://10.0.0.1",
        "http://0x7f000001.example",
        "http://[::ffff:10.0.0.1]",
    ],
)
def test_a_token_never_travels_in_clear(url: str) -> None:
    with pytest.raises(UsageError, match="unencrypted"):
        checked_url(url)


@pytest.mark.parametrize(
    "url",
    ["", "ghe.example", "ftp://ghe.example", "https://", "https://user:password@ghe.example", "https://ghe.example?a=b",
     "https://ghe.example#a", "https://ghe.example:x", "https://[::1", "file:///etc/passwd", "https:///api/v3"],
)  # fmt: skip
def test_what_is_no_url_of_an_api_is_told(url: str) -> None:
    with pytest.raises(UsageError, match="--api-url"):
        checked_url(url)


@pytest.mark.parametrize(("forge", "name"), [("github", "acme/my.models-2_x"), ("gitlab", "42"), ("gitlab", "a/b/c.d")])
def test_names_of_repositories(forge: str, name: str) -> None:
    assert checked_repository(name, forge=forge) == name


@pytest.mark.parametrize(
    ("forge", "name"),
    [
        ("github", ""),
        ("github", "acme"),
        ("github", "acme/.."),
        ("github", "acme/models/../../user"),
        ("github", "acme/models?x"),
        ("github", "https://github.com/acme/models"),
        ("github", "acme/models\n"),
        ("gitlab", "acme"),
        ("gitlab", "../acme"),
        ("gitlab", "acme/../.."),
        ("gitlab", "acme/models#"),
    ],
)
def test_what_would_lead_elsewhere_is_no_name(forge: str, name: str) -> None:
    with pytest.raises(UsageError, match=r"repository"):
        checked_repository(name, forge=forge)
