"""Workflow commands of GitHub Actions, which show problems in the changed files of a pull request.

Syntax: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands; escaping: the toolkit of
Actions. GitHub shows ten commands of each kind for a step.
"""

from memlint.report.escaping import visible
from memlint.report.formats.problems import Problem, problems
from memlint.report.model import Report

_COMMANDS = {"error": "error", "warning": "warning", "info": "notice", "note": "notice"}


def render_github(report: Report) -> str:
    """Return a command for each error, exceeded limit and finding; empty without any."""
    return "".join(_command(problem) + "\n" for problem in problems(report))


def escape_data(text: str) -> str:
    """Escape `text` as the data of a command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """Escape `text` as the value of a property of a command."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def _command(problem: Problem) -> str:
    title = f"{problem.code} ({problem.workload})" if problem.workload else problem.code
    values = {"file": problem.path, "line": problem.line, "col": problem.column, "title": title}
    properties = [f"{key}={escape_property(visible(str(each)))}" for key, each in values.items() if each is not None]
    text = escape_data("\n".join(problem.lines))
    return f"::{_COMMANDS[problem.severity]} {','.join(properties)}::{text}"
