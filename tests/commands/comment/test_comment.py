"""The command, from report files to what a forge has in the end."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from memlint.base.version import install_command
from memlint.cli import main
from memlint.report.model import Budget
from tests.commands.comment.fake_github import TOKEN, FakeGitHub, Fault
from tests.commands.comment.fake_gitlab import FakeGitLab
from tests.compare.samples import GIB, MIB, failed, finding, report, workload

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result
    from pytest_httpserver import HTTPServer

    from memlint.report.model import Report

pytestmark = pytest.mark.usefixtures("copied_pythons")

BASE = report(workload("gpt", 8 * GIB), workload("unet", 20 * GIB))
HEAD = report(workload("gpt", 9 * GIB + 512 * MIB), workload("unet", 20 * GIB))


@pytest.fixture(autouse=True)
def nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memlint.commands.comment.github._BETWEEN_WRITES", 0.0)
    monkeypatch.setattr("time.sleep", lambda _seconds: None)


class Job:
    """A job of GitHub Actions on pull request 7, with two reports."""

    def __init__(self, folder: Path, github: FakeGitHub | None) -> None:
        self.folder = folder
        self.summary = folder / "summary.md"
        self.environment: dict[str, str | None] = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_API_URL": github.url if github is not None else "http://127.0.0.1:9",
            "GITHUB_REPOSITORY": "acme/models",
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_TOKEN": TOKEN,
        }
        for name in ("CI_PROJECT_ID", "CI_MERGE_REQUEST_IID", "CI_API_V4_URL", "GITLAB_TOKEN"):
            self.environment[name] = None
        self.event("pull_request", {"pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": None}}})
        self.is_run(1)
        self.write("base.json", BASE)
        self.write("head.json", HEAD)

    def write(self, name: str, what: Report) -> None:
        (self.folder / name).write_text(what.model_dump_json())

    def event(self, name: str, event: dict[str, Any]) -> None:
        (self.folder / "event.json").write_text(json.dumps(event))
        self.environment |= {"GITHUB_EVENT_NAME": name, "GITHUB_EVENT_PATH": str(self.folder / "event.json")}

    def is_run(self, number: int, attempt: int = 1) -> None:
        self.environment |= {"GITHUB_RUN_ID": str(number), "GITHUB_RUN_ATTEMPT": str(attempt)}

    def comment(self, *arguments: str, forge: str = "github", base: bool = True) -> Result:
        sides = [
            "--head",
            str(self.folder / "head.json"),
            *(["--base", str(self.folder / "base.json")] if base else []),
        ]
        return CliRunner(env=self.environment).invoke(main, ["comment", forge, *sides, *arguments])


@pytest.fixture
def job(tmp_path: Path, github: FakeGitHub) -> Job:
    return Job(tmp_path, github)


@pytest.fixture
def offline(tmp_path: Path) -> Job:
    return Job(tmp_path, None)


def test_a_pull_request_gets_its_comment_and_the_job_its_summary(job: Job, github: FakeGitHub) -> None:
    result = job.comment()

    assert result.exit_code == 0, result.output
    assert "made the comment: https://github.com/acme/models/pull/7#issuecomment-" in result.output
    [body] = github.bodies()
    assert body.startswith("### memlint: peak GPU memory +1.50 GiB in 1 of 2 workloads")
    assert "aaaaaaaaaaaa" in body
    assert (
        job.summary.read_text().strip() == body.replace("\r\n", "\n").partition("\n\n<!-- memlint comment")[0].strip()
    )


def test_each_push_brings_the_comment_up_to_date_and_only_a_push_does(job: Job, github: FakeGitHub) -> None:
    job.comment()
    again = job.comment()
    job.write("head.json", report(workload("gpt", 8 * GIB), workload("unet", 20 * GIB)))
    job.is_run(2)
    fixed = job.comment()
    job.is_run(1)
    late = job.comment()

    assert "the comment says this already" in again.output
    assert "updated the comment" in fixed.output
    assert "a newer run has written it" in late.output
    [body] = github.bodies()
    assert "unchanged in 2 workloads" in body


def test_a_dry_run_prints_the_comment_and_needs_neither_token_nor_network(offline: Job) -> None:
    offline.environment["GITHUB_TOKEN"] = None

    result = offline.comment("--dry-run")

    assert result.exit_code == 0
    assert result.stdout.startswith("### memlint: peak GPU memory +1.50 GiB")
    assert "<!--" not in result.stdout
    assert not offline.summary.exists()


def test_a_report_that_several_patterns_match_counts_once(offline: Job) -> None:
    plain = offline.comment("--dry-run").stdout
    again = offline.comment(
        "--dry-run", "--head", str(offline.folder / "hea*.json"), "--head", str(offline.folder / "." / "head.json")
    )

    assert again.stdout == plain


def test_the_markdown_goes_into_a_file_as_well(job: Job, tmp_path: Path, github: FakeGitHub) -> None:
    result = job.comment("-o", str(tmp_path / "body.md"))

    assert result.exit_code == 0
    assert (tmp_path / "body.md").read_text() == job.summary.read_text().removesuffix("\n")
    assert len(github.bodies()) == 1


def test_a_fork_whose_token_may_not_write_fails_no_job_and_loses_nothing(job: Job, github: FakeGitHub) -> None:
    github.faults.append(Fault("POST", 403, "Resource not accessible by integration"))

    result = job.comment()

    assert result.exit_code == 0
    assert "no comment: GitHub does not allow it: Resource not accessible by integration (status 403)" in result.stderr
    assert "### memlint: peak GPU memory +1.50 GiB" in result.stdout
    assert "### memlint: peak GPU memory +1.50 GiB" in job.summary.read_text()


def test_what_is_printed_into_a_log_of_github_is_no_command(job: Job, github: FakeGitHub) -> None:
    job.write("head.json", report(workload("gpt ##[add-mask]x", 9 * GIB), workload("::set-output name=a::b", 9 * GIB)))
    github.faults.append(Fault("POST", 403, "Resource not accessible by integration"))

    lines = job.comment().stdout.splitlines()

    assert lines[0].startswith("::stop-commands::")
    assert lines[-1] == f"::{lines[0].removeprefix('::stop-commands::')}::"
    assert any("##[add-mask]" in line for line in lines)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("POST", 404, "Not Found"), "GitHub does not find acme/models#7: Not Found (status 404)"),
        (
            Fault("POST", 422, "Validation Failed", errors=[{"code": "x", "message": "Body is too long"}]),
            "Body is too long",
        ),
        (Fault("GET", 401, "Bad credentials"), "GitHub does not know the token: Bad credentials (status 401)"),
        (Fault("POST", 403, "rate limit", {"retry-after": "3600"}), "the next attempt would be in 3600 seconds"),
    ],
)
def test_what_went_wrong_is_told_and_the_markdown_is_not_lost(
    job: Job, github: FakeGitHub, fault: Fault, said: str
) -> None:
    github.faults.append(fault)

    result = job.comment()

    assert result.exit_code == 2
    assert "the comment could not be posted" in result.stderr
    assert said in result.stderr
    assert "### memlint: peak GPU memory +1.50 GiB" in result.stdout
    assert "+1.50 GiB" in job.summary.read_text()
    assert TOKEN not in result.output


def test_nobody_listening_is_told_after_some_attempts(offline: Job) -> None:
    result = offline.comment()

    assert result.exit_code == 2
    assert "the forge is busy: trying again in 2 s" in result.stderr
    assert "GitHub gave no answer" in result.stderr


def test_without_a_token_the_variable_is_named(job: Job, github: FakeGitHub) -> None:
    job.environment["GITHUB_TOKEN"] = ""
    job.event("pull_request", {"pull_request": {"number": 7, "head": {"repo": {"full_name": "acme/models"}}}})

    result = job.comment()

    assert result.exit_code == 2
    assert "there is no GITHUB_TOKEN in the environment" in result.stderr
    assert github.requests == []


@pytest.mark.parametrize(
    ("when", "head", "is_made"),
    [
        ("always", BASE, True),
        ("change", BASE, False),
        ("change", report(workload("gpt", 8 * GIB), workload("unet", 20 * GIB), findings=[finding("new")]), True),
        ("change", report(workload("gpt", 7 * GIB), workload("unet", 20 * GIB)), True),
        ("increase", report(workload("gpt", 7 * GIB), workload("unet", 20 * GIB)), False),
        ("increase", HEAD, True),
        ("increase", report(failed("gpt"), workload("unet", 20 * GIB)), True),
        ("budget", HEAD, False),
        ("budget", report(*HEAD.workloads, gpt=Budget(max=9 * GIB)), True),
    ],
)
def test_when_a_first_comment_is_made(job: Job, github: FakeGitHub, when: str, head: Report, is_made: bool) -> None:
    job.write("head.json", head)

    result = job.comment("--comment-on", when)

    assert result.exit_code == 0
    assert len(github.bodies()) == is_made
    assert ("made no comment: nothing it is wanted for has changed" in result.output) == (not is_made)


def test_a_comment_that_is_there_is_brought_up_to_date_whatever_it_is_wanted_for(job: Job, github: FakeGitHub) -> None:
    job.comment("--comment-on", "increase")
    job.write("head.json", BASE)
    job.is_run(2)
    job.comment("--comment-on", "increase")

    [body] = github.bodies()
    assert "unchanged in 2 workloads" in body


def test_the_reports_of_a_matrix_are_one_comment(job: Job, github: FakeGitHub, tmp_path: Path) -> None:
    for side, gpt in (("base", 8 * GIB), ("head", 10 * GIB)):
        (tmp_path / side).mkdir()
        job.write(f"{side}/a.json", report(workload("gpt", gpt), gpt=Budget(max=9 * GIB)))
        job.write(f"{side}/b.json", report(workload("unet", 20 * GIB), torch="2.10.0", any=Budget(max=24 * GIB)))

    result = CliRunner(env=job.environment).invoke(
        main, ["comment", "github", "--head", f"{tmp_path}/head/*.json", "--base", f"{tmp_path}/base/*.json"]
    )

    assert result.exit_code == 0, result.output
    [body] = github.bodies()
    assert body.startswith("### memlint: budget exceeded in 1 of 2 workloads, peak GPU memory +2.00 GiB")


def test_without_a_base_all_is_new(job: Job, github: FakeGitHub) -> None:
    assert job.comment(base=False).exit_code == 0
    assert "nothing to compare with" in github.bodies()[0]


@pytest.mark.parametrize("arguments", [("--head", "none/*.json"), ("--base", "none.json")])
def test_a_report_that_is_not_there_is_named(job: Job, github: FakeGitHub, arguments: tuple[str, str]) -> None:
    result = job.comment(*arguments)

    assert result.exit_code == 2
    assert f"there is no file {arguments[1]}" in result.stderr
    assert github.requests == []


def test_a_report_that_is_none_is_refused_with_the_reason(job: Job, github: FakeGitHub) -> None:
    (job.folder / "head.json").write_text('{"version": 99}')

    result = job.comment()

    assert result.exit_code == 2
    assert "a newer memlint wrote it" in result.stderr
    assert github.requests == []


def test_the_number_in_a_report_is_never_taken(job: Job, github: FakeGitHub) -> None:
    job.event("push", {"ref": "refs/heads/main"})
    document = json.loads(HEAD.model_dump_json()) | {"number": 7, "pull_request": 7}
    (job.folder / "head.json").write_text(json.dumps(document))

    result = job.comment()

    assert result.exit_code == 2
    assert "the pull request to comment on is not known" in result.stderr
    assert "--pull-request NUMBER" in result.stderr
    assert github.requests == []


@pytest.mark.parametrize("tag", ["", "a b", "--", "x" * 65, "-->", "tag\n"])
def test_a_tag_that_would_break_the_marker_is_refused(job: Job, github: FakeGitHub, tag: str) -> None:
    result = job.comment(f"--tag={tag}")

    assert result.exit_code == 2
    assert "is not a tag" in result.stderr
    assert github.requests == []


def test_the_token_never_travels_in_clear(job: Job) -> None:
    result = job.comment("--api-url", "http://ghe.example/api/v3")

    assert result.exit_code == 2
    assert "the token would be sent unencrypted" in result.stderr


def test_another_repository_needs_a_number_of_its_own(job: Job, github: FakeGitHub) -> None:
    assert "the pull request to comment on is not known" in job.comment("--repo", "acme/other").stderr

    github.repository = "acme/other"
    assert job.comment("--repo", "acme/other", "--pull-request", "7").exit_code == 0
    assert len(github.bodies()) == 1


def test_a_summary_without_room_or_place_is_told_and_the_comment_made(job: Job, github: FakeGitHub) -> None:
    job.summary.write_bytes(b"x" * 2**20)
    full = job.comment()
    job.environment["GITHUB_STEP_SUMMARY"] = str(job.folder / "none" / "summary.md")
    lost = job.comment()

    assert (full.exit_code, lost.exit_code) == (0, 0)
    assert "the job's summary has no room for it" in full.stderr
    assert "cannot be written: No such file or directory" in lost.stderr
    assert job.summary.stat().st_size == 2**20
    assert len(github.bodies()) == 1


def test_a_merge_request_gets_its_note(offline: Job, httpserver: HTTPServer) -> None:
    gitlab = FakeGitLab(httpserver.url_for("/"))
    httpserver.expect_request(re.compile(".*")).respond_with_handler(gitlab)
    offline.environment |= {
        "CI_API_V4_URL": f"{gitlab.url}/api/v4", "CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_PROJECT_ID": "42",
        "CI_MERGE_REQUEST_IID": "7", "CI_PIPELINE_ID": "3", "CI_JOB_ID": "9", "GITLAB_TOKEN": TOKEN,
    }  # fmt: skip

    said = [offline.comment(forge="gitlab").output.strip() for _ in range(2)]

    assert said == ["made the comment", "the comment says this already"]
    [note] = gitlab.notes.values()
    assert note["body"].startswith("### memlint: peak GPU memory +1.50 GiB")
    assert "run=3.9" in note["body"]


@pytest.mark.parametrize(("forge", "package"), [("github", "github"), ("gitlab", "gitlab")])
def test_without_the_forges_package_it_says_what_to_install(
    offline: Job, monkeypatch: pytest.MonkeyPatch, forge: str, package: str
) -> None:
    offline.environment |= {"GITLAB_TOKEN": TOKEN, "CI_PROJECT_ID": "42"}
    monkeypatch.delitem(sys.modules, f"memlint.commands.comment.{forge}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    result = offline.comment(forge=forge)

    assert result.exit_code == 2
    assert install_command(forge) in result.stderr


def test_gitlab_without_hide_and_new_says_so(offline: Job) -> None:
    offline.environment |= {
        "CI_PROJECT_ID": "42", "CI_MERGE_REQUEST_IID": "7", "CI_API_V4_URL": "http://127.0.0.1:9/api/v4", "GITLAB_TOKEN": TOKEN
    }  # fmt: skip

    result = offline.comment("--behavior", "hide-and-new", forge="gitlab")

    assert result.exit_code == 2
    assert "GitLab cannot hide comments" in result.stderr


def test_a_pipeline_of_a_fork_has_no_token_and_does_not_fail(offline: Job) -> None:
    offline.environment |= {
        "CI_PROJECT_ID": "99", "CI_MERGE_REQUEST_PROJECT_ID": "42", "CI_MERGE_REQUEST_SOURCE_PROJECT_ID": "99", "CI_MERGE_REQUEST_IID": "7"
    }  # fmt: skip

    result = offline.comment(forge="gitlab")

    assert result.exit_code == 0
    assert "there is no GITLAB_TOKEN, as in runs for a fork" in result.stderr
    assert "### memlint: peak GPU memory +1.50 GiB" in result.stdout


def pull(
    number: int, sha: str = "a" * 40, repository: str | None = "fork/models", state: str = "open"
) -> dict[str, Any]:
    owner = (repository or "fork/").partition("/")[0]
    here = {"full_name": repository} if repository else None
    return {"number": number, "state": state, "head": {"sha": sha, "label": f"{owner}:topic", "repo": here}}


class TestAfterAnalysis:
    """`workflow_run`, where the commit decides."""

    @pytest.fixture
    def job(self, tmp_path: Path, github: FakeGitHub) -> Job:
        job = Job(tmp_path, github)
        job.event("workflow_run", {"workflow_run": {
            "id": 50, "run_attempt": 1, "head_sha": "a" * 40, "head_branch": "topic",
            "head_repository": {"full_name": "fork/models"}, "pull_requests": [{"number": 666}],
        }})  # fmt: skip
        return job

    def test_the_request_is_the_one_that_ends_with_the_commit(self, job: Job, github: FakeGitHub) -> None:
        github.pulls = [pull(3, repository="fork/other"), pull(5, sha="b" * 40), pull(6, state="closed"), pull(7)]

        result = job.comment()

        assert result.exit_code == 0, result.output
        assert len(github.bodies()) == 1
        assert "run=50.1" in github.bodies()[0]

    @pytest.mark.parametrize(
        "pulls", [[], [pull(7, sha="b" * 40)], [pull(7, state="closed")], [pull(7, repository=None)]]
    )
    def test_a_request_that_has_gone_on_gets_no_comment(
        self, job: Job, github: FakeGitHub, pulls: list[dict[str, Any]]
    ) -> None:
        github.pulls = pulls

        result = job.comment()

        assert result.exit_code == 0
        assert "made no comment: no open pull request ends with commit aaaaaaaaaaaa" in result.output
        assert github.sent("POST") == 0
        assert "+1.50 GiB" in job.summary.read_text()

    def test_a_number_that_is_given_must_be_one_of_the_commits(self, job: Job, github: FakeGitHub) -> None:
        github.pulls = [pull(7), pull(8)]

        several = job.comment()
        wrong = job.comment("--pull-request", "9")
        right = job.comment("--pull-request", "7")

        assert "several pull requests end with the commit that was analysed: 7, 8" in several.stderr
        assert "pull request 9 does not end with the commit" in wrong.stderr
        assert (several.exit_code, wrong.exit_code, right.exit_code) == (2, 2, 0)
        assert len(github.bodies()) == 1
