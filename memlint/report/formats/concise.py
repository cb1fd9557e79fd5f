"""One line for each problem, `path:line:column: CODE message`, as other linters print them."""

from memlint.report.escaping import inert, visible
from memlint.report.formats.problems import Problem, problems
from memlint.report.model import Report


def render_concise(report: Report) -> str:
    """Return a line for each error, exceeded limit and finding; empty without any."""
    return "".join(inert(f"{_place(each)}: {each.code} {each.message}") + "\n" for each in problems(report))


def _place(problem: Problem) -> str:
    # GitHub's runner takes a line that begins with two colons for a command.
    return visible(f"./{problem.place}" if problem.path.lstrip().startswith("::") else problem.place)
