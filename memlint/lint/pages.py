"""The page of each rule, made from its class. `python -m memlint.lint.pages` writes those of the built-in rules.

A page is never edited: the docstring, the attributes and the cases of the rule are what it is made of.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path

from memlint.base.errors import UsageError
from memlint.lint.registry import CODE, GROUP, load_rules, sections
from memlint.lint.rule import FROM_CASES, HEADINGS, Case, Rule

_SUPPRESSION = (
    "Suppress one finding with `# memlint: ignore[{code}] reason` on its line, or on the line of the function or class "
    "around it."
)

_PACKAGE = "memlint_rules"
DIRECTORY = Path(__file__).parents[2] / "docs" / "rules"


def page(rule: Rule) -> str:
    """Make the Markdown page of `rule`."""
    bodies = sections(type(rule))
    opening = bodies.pop("")
    for heading, cases in FROM_CASES.items():
        bodies[heading] = _cases(getattr(rule, cases)) or "It depends on what failed."
    headings = dict.fromkeys((*HEADINGS, *bodies))
    parts = [
        f"# {rule.code}: {rule.name}",
        rule.summary,
        f"Severity: {rule.severity.value}. Looks at: {rule.looks_at}.",
        *([opening] if rule.summary not in (opening, "") else []),
        *(f"## {heading}\n\n{bodies[heading]}" for heading in headings if heading in bodies),
        _SUPPRESSION.format(code=rule.code),
    ]
    return "\n\n".join(parts) + "\n"


def index(rules: Iterable[Rule]) -> str:
    """Make the Markdown page that lists `rules`."""
    rows = [
        f"| [{rule.code}]({rule.code}.md) | {rule.name} | {rule.severity.value} | {rule.looks_at} | {rule.summary} |"
        for rule in rules
    ]
    head = ["# Rules", "", "| code | name | severity | looks at | what it reports |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def built_in_pages() -> dict[str, str]:
    """Make every page that belongs into `docs/rules`: file names and texts. Raises UsageError without the rules."""
    rules = _built_in()
    return {"README.md": index(rules), **{f"{rule.code}.md": page(rule) for rule in rules}}


def _built_in() -> tuple[Rule, ...]:
    plugins = [plugin for plugin in entry_points(group=GROUP) if plugin.value == _PACKAGE]
    if not plugins:
        raise UsageError("the built-in rules are not installed, so there is nothing to write", "pip install -e .")
    return load_rules(plugins).rules


def _cases(cases: Iterable[Case]) -> str:
    texts = []
    for case in cases:
        title = f"{case.title}:\n\n" if case.title else ""
        options = f"With dtype {case.dtype}:\n\n" if case.dtype != "float32" else ""
        texts.append(f"{title}{options}```python\n{case.source.rstrip()}\n```")
    return "\n\n".join(texts)


def main() -> None:
    """Write the pages, and remove those of rules that are gone."""
    pages = built_in_pages()
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for old in DIRECTORY.glob("*.md"):
        if CODE.fullmatch(old.stem) and old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
