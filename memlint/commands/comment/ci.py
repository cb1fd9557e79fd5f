"""What the CI of a forge says of the run: repository, request, how new the run is, where its summary goes.

Nothing here comes out of a Report, which a stranger's code may have written.
"""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memlint.base.errors import UsageError
from memlint.commands.comment.marker import Order

_REPOSITORIES = {
    "github": (re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]+"), "owner/name"),
    "gitlab": (re.compile(r"\d+|\w[\w.-]*(?:/\w[\w.-]*)+"), "group/name, or the project's number"),
}
"""What the name of a repository looks like, and an example."""


@dataclass(frozen=True, slots=True)
class Head:
    """The commit that a finished run of a workflow was about."""

    sha: str
    repository: str
    """`owner/name` it was pushed to: a fork, or the repository itself."""
    branch: str

    @property
    def owner(self) -> str:
        """Whose repository it was pushed to."""
        return self.repository.partition("/")[0]


@dataclass(frozen=True, slots=True)
class CiContext:
    """Where a run is. What is not known is empty or None."""

    api_url: str
    token: str = ""
    repository: str = ""
    number: int | None = None
    """Of the pull or merge request."""
    head: Head | None = None
    """In a workflow that runs after another one: the request is the one whose newest commit this is."""
    commit: str = ""
    """The commit of the request that was analysed."""
    order: Order | None = None
    summary: Path | None = None
    """File whose Markdown is shown with the run."""
    from_fork: bool = False
    """Whether the request comes from a fork, whose runs get no token that may write."""


def github_context(environment: Mapping[str, str]) -> CiContext:
    """What GitHub Actions says. Raises UsageError for an event that cannot be read."""
    event = _event(environment)
    finished = _part(event, "workflow_run") if environment.get("GITHUB_EVENT_NAME") == "workflow_run" else {}
    pull = _part(event, "pull_request")
    repository, summary = environment.get("GITHUB_REPOSITORY", ""), environment.get("GITHUB_STEP_SUMMARY")
    pushed = _part(pull, "head")
    head = _head(finished) if finished else None
    number, commit = pull.get("number"), head.sha if head is not None else pushed.get("sha")
    run = environment.get("GITHUB_RUN_ID"), environment.get("GITHUB_RUN_ATTEMPT")
    return CiContext(
        api_url=environment.get("GITHUB_API_URL") or "https://api.github.com",
        token=environment.get("GITHUB_TOKEN", ""),
        repository=repository,
        number=number if isinstance(number, int) else None,
        head=head,
        commit=commit if isinstance(commit, str) else "",
        order=_order(finished.get("id"), finished.get("run_attempt")) if finished else _order(*run),
        summary=Path(summary) if summary else None,
        from_fork=bool(pull) and _part(pushed, "repo").get("full_name") != repository,
    )


def gitlab_context(environment: Mapping[str, str]) -> CiContext:
    """What GitLab CI says."""
    # the pipeline of a fork runs in the fork; the merge request is in the project it asks to be merged into
    project = environment.get("CI_MERGE_REQUEST_PROJECT_ID") or environment.get("CI_PROJECT_ID", "")
    number = environment.get("CI_MERGE_REQUEST_IID", "")
    return CiContext(
        api_url=environment.get("CI_API_V4_URL") or "https://gitlab.com",
        token=environment.get("GITLAB_TOKEN", ""),
        repository=project,
        number=int(number) if number.isdecimal() else None,
        commit=environment.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or environment.get("CI_COMMIT_SHA", ""),
        order=_order(environment.get("CI_PIPELINE_ID"), environment.get("CI_JOB_ID")),
        from_fork=environment.get("CI_MERGE_REQUEST_SOURCE_PROJECT_ID", project) != project,
    )


def checked_url(url: str) -> str:
    """The URL of an API, without a slash at its end.

    Raises UsageError for one that would let the token travel in clear, or that is none.
    """
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"--api-url {url!r} is not a URL: {error}") from error
    if parts.scheme not in ("https", "http") or not host or parts.username or parts.query or parts.fragment:
        raise UsageError(
            f"--api-url {url!r} is not the URL of an API",
            "Write one as in --api-url https://github.example.com/api/v3.",
        )
    if parts.scheme == "http" and not _is_loopback(host):
        raise UsageError(f"--api-url {url}: the token would travel in clear", f"Write https://{host}.")
    return url.rstrip("/")


def checked_repository(repository: str, *, forge: str) -> str:
    """The name of a repository as it goes into a URL. Raises UsageError where it is missing, or is none."""
    pattern, example = _REPOSITORIES[forge]
    if not repository:
        raise UsageError("which repository is not known", f"Write --repo {example}.")
    if not pattern.fullmatch(repository):
        raise UsageError(f"{repository!r} is not the name of a repository", f"Write --repo {example}.")
    return repository


def _event(environment: Mapping[str, str]) -> dict[str, Any]:
    path = environment.get("GITHUB_EVENT_PATH")
    if not path:
        return {}
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the event in GITHUB_EVENT_PATH cannot be read: {error}", "Unset it, and give --pull-request."
        ) from error
    return event if isinstance(event, dict) else {}


def _head(finished: Mapping[str, Any]) -> Head:
    repository = _part(finished, "head_repository").get("full_name")
    sha, branch = finished.get("head_sha"), finished.get("head_branch")
    if not (isinstance(sha, str) and isinstance(branch, str) and isinstance(repository, str)):
        raise UsageError(
            "the event does not say which commit the finished workflow ran on",
            "The repository it was pushed to is gone, or the event is not that of `on: workflow_run`.",
        )
    return Head(sha, repository, branch)


def _part(event: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _order(run: object, attempt: object) -> Order | None:
    texts = (str(run or ""), str(attempt or ""))
    return (int(texts[0]), int(texts[1])) if all(text.isdecimal() and len(text) <= 18 for text in texts) else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
