"""`memlint comment`: post a comment on a pull or merge request from Report files."""

import glob
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from memlint.base.errors import TargetError, UsageError
from memlint.commands.comment.body import render_body
from memlint.commands.comment.ci import CiContext, checked_repository, checked_url, github_context, gitlab_context
from memlint.commands.comment.forge import Forge, ForgeError
from memlint.commands.comment.marker import marker_of
from memlint.commands.comment.posting import Behavior, Draft, Posted, post
from memlint.compare.changes import compare
from memlint.compare.comparison import Comparison
from memlint.report.model import Report
from memlint.report.reading import read_report
from memlint.report.workloads import merged

ForgeName = Literal["github", "gitlab"]
When = Literal["always", "change", "increase", "budget"]

_SUMMARY = 2**20
"""Bytes that GitHub accepts for the summary of a step."""
_TOKENS = {"github": "GITHUB_TOKEN", "gitlab": "GITLAB_TOKEN"}
_REQUESTS = {"github": "pull request", "gitlab": "merge request"}
_ACTIONS = {
    "created": "made the comment",
    "updated": "updated the comment",
    "unchanged": "the comment says this already",
    "outdated": "left the comment as it is: a newer run has written it",
    "not due": "made no comment: nothing it is wanted for has changed",
}


@dataclass(frozen=True, slots=True)
class CommentOptions:
    """The options that the user typed."""

    head: tuple[str, ...]
    """Report files, or patterns of their names."""
    base: tuple[str, ...] = ()
    repository: str | None = None
    number: int | None = None
    tag: str = "default"
    behavior: Behavior = "update"
    comment_on: When = "always"
    api_url: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class CommentResult:
    """Result of `memlint comment`."""

    body: str
    """The Markdown, without the marker."""
    message: str = ""
    """The action taken, in one line."""
    notes: tuple[str, ...] = ()
    """Secondary actions that failed."""
    problem: ForgeError | None = None
    """Why the comment could not be posted."""

    @property
    def status(self) -> int:
        """The exit status: a token without write access, usual on pull requests from forks, is not a failure."""
        return 2 if self.problem is not None and self.problem.trouble != "not allowed" else 0


def comment(
    forge: ForgeName, options: CommentOptions, environment: Mapping[str, str], wait: Callable[[float], None]
) -> CommentResult:
    """Compare the Reports, and post or update the comment of the request. `wait` waits that many seconds.

    The Markdown first goes into the summary of the job, if there is one. Raises MemlintError for unreadable Reports,
    and if it cannot tell where to post.
    """
    context = (github_context if forge == "github" else gitlab_context)(environment)
    base = _read(options.base) if options.base else None
    comparison = compare(base, _read(options.head), head_commit=context.commit or None)
    body = render_body(comparison)
    marker = marker_of(body, options.tag, context.order)
    draft = Draft(body, marker, options.behavior, is_due=_is_due(comparison, options.comment_on))
    if options.dry_run:
        return CommentResult(body)
    notes = _summarise(body, context.summary)
    try:
        outcome = _post(forge, options, context, draft, wait)
    except ForgeError as error:
        return CommentResult(body, notes=notes, problem=error)
    if outcome is None:
        message = f"made no comment: no open pull request ends with commit {context.commit[:12]}"
        return CommentResult(body, message, notes)
    left = (f"earlier comments are still there: {outcome.left}",) if outcome.left else ()
    url = f": {outcome.url}" if outcome.url else ""
    return CommentResult(body, _ACTIONS[outcome.action] + url, (*notes, *left))


def _post(
    name: ForgeName, options: CommentOptions, context: CiContext, draft: Draft, wait: Callable[[float], None]
) -> Posted | None:
    """Post the draft; None without a request to comment on."""
    repository = checked_repository(options.repository or context.repository, forge=name)
    is_here = repository == context.repository  # the event may belong to another repository
    url = checked_url(options.api_url or context.api_url)
    if not context.token:
        raise _no_token(_TOKENS[name], context)
    number = options.number or (context.number if is_here else None)
    if name == "github":
        from memlint.commands.comment.github import GitHub  # noqa: PLC0415

        make: Callable[[str, str, str, int], Forge] = GitHub
        if context.head is not None and is_here:
            numbers = GitHub(url, context.token, repository).pull_requests(context.head)
            number = _chosen(numbers, options.number)
            if number is None:
                return None
    else:
        from memlint.commands.comment.gitlab import GitLab  # noqa: PLC0415

        make = GitLab
    if number is None:
        request = _REQUESTS[name]
        option = request.replace(" ", "-")
        raise UsageError(f"the {request} to comment on is not known", f"Write --{option} NUMBER.")
    return post(make(url, context.token, repository, number), draft, wait=wait)


def _chosen(numbers: Sequence[int], number: int | None) -> int | None:
    """Return the request among those that end with the analysed commit, or the typed `number`; None without one."""
    if number is not None and number not in numbers:
        raise UsageError(
            f"pull request {number} does not end with the commit that was analysed",
            "Leave --pull-request out: the event names the request.",
        )
    if number is None and len(numbers) > 1:
        raise UsageError(
            f"several pull requests end with the commit that was analysed: {', '.join(map(str, numbers))}",
            "Choose one with --pull-request.",
        )
    return number or next(iter(numbers), None)


def _no_token(variable: str, context: CiContext) -> ForgeError:
    if context.from_fork:
        return ForgeError("not allowed", f"there is no {variable}, as in runs for a fork")
    return ForgeError(
        "invalid",
        f"there is no {variable} in the environment",
        "Give it a token that may write comments, as an environment variable of this step.",
    )


def _read(patterns: Sequence[str]) -> Report:
    # A file that several patterns match counts as one report.
    files = {path.resolve(): path for pattern in patterns for path in _files(pattern)}
    return merged([read_report(path) for path in files.values()])


def _files(pattern: str) -> list[Path]:
    if Path(pattern).exists():
        return [Path(pattern)]
    files = sorted(map(Path, glob.glob(pattern, recursive=True)))  # noqa: PTH207  Path.glob takes no absolute pattern
    if not files:
        raise TargetError(f"there is no file {pattern}", "Write one with `memlint check --output-format json -o FILE`.")
    return files


def _is_due(comparison: Comparison, when: When) -> bool:
    """Return True if the result deserves a first comment; a failed analysis always does."""
    states = {change.state for change in comparison.workloads}
    if when == "always" or comparison.failed:
        return True
    if when == "change":
        return bool(comparison.findings_new or comparison.findings_fixed or states - {"unchanged"})
    return "grown" in states if when == "increase" else bool(comparison.exceeded)


def _summarise(body: str, summary: Path | None) -> tuple[str, ...]:
    """Add the Markdown to the summary of the job. Returns what went wrong."""
    if summary is None:
        return ()
    text = f"{body}\n".encode()
    try:
        if summary.exists() and summary.stat().st_size + len(text) > _SUMMARY:
            return (f"the job's summary has no room for it: GitHub takes {_SUMMARY:,} bytes",)
        with summary.open("ab") as file:
            file.write(text)
    except OSError as error:
        return (f"the job's summary {summary} cannot be written: {error.strerror}",)
    return ()
