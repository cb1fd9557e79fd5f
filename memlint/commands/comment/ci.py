"""Facts about the run from the forge's CI: repository, request, order of runs, place of the summary.

Nothing here comes from a Report, which a stranger's code may have written.
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
"""Pattern of a repository's name, and an example."""


@dataclass(frozen=True, slots=True)
class Head:
    """The commit that triggered a finished workflow run."""

    sha: str
    repository: str
    """Repository that it was pushed to, as `owner/name`: a fork, or the repository itself."""
    branch: str

    @property
    def owner(self) -> str:
        """Owner of that repository."""
        return self.repository.partition("/")[0]


@dataclass(frozen=True, slots=True)
class CiContext:
    """The CI run, and the request that it belongs to. Unknown fields are empty or None."""

    api_url: str
    token: str = ""
    repository: str = ""
    number: int | None = None
    """Number of the pull or merge request."""
    head: Head | None = None
    """The newest commit of the request, in a workflow that runs after another one."""
    commit: str = ""
    """The analysed commit of the request."""
    order: Order | None = None
    summary: Path | None = None
    """File for Markdown that the forge shows with the run."""
    from_fork: bool = False
    """True if the request comes from a fork, whose runs get no token with write access."""


def github_context(environment: Mapping[str, str]) -> CiContext:
    """Read the environment of GitHub Actions. Raises UsageError for an unreadable event."""
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
    """Read the environment of GitLab CI."""
    # A fork's pipeline runs in the fork; the merge request belongs to the project that it targets.
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
    """Return the URL of an API, without a slash at its end.

    Raises UsageError for an invalid URL, and for one that would send the token unencrypted.
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
        raise UsageError(f"--api-url {url}: the token would be sent unencrypted", f"Write https://{host}.")
    return url.rstrip("/")


def checked_repository(repository: str, *, forge: str) -> str:
    """Return the name of a repository as part of a URL. Raises UsageError if it is missing or invalid."""
    pattern, example = _REPOSITORIES[forge]
    if not repository:
        raise UsageError("the repository is not known", f"Write --repo {example}.")
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
