"""Comments that take findings away, and comments that take nothing away."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from memlint.lint.diagnostics import DIAGNOSTICS
from memlint.lint.rule import Confidence, Finding, Severity, SourceRule
from memlint.lint.runner import check_source
from memlint.lint.suppression import unused
from memlint.source.text import Source

ROOT = Path(__file__).parents[2]


class Prints(SourceRule):
    """Finds every call of `print`."""

    code, name, summary, severity = "ABC100", "prints", "A print.", Severity.WARNING
    words = ()

    def check(self, source: Source):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name) and node.id == "print":
                yield found(source.path, node.lineno)


class Fails(Prints):
    """Raises."""

    def check(self, source: Source):
        raise ValueError("no")


def found(path, line, code="ABC100"):
    return Finding(
        code=code,
        path=path,
        line=line,
        message="m",
        severity=Severity.WARNING,
        confidence=Confidence.HEURISTIC,
        nbytes=None,
        peak_change=None,
        fix="f",
    )


def checked(text, *rules, codes=("ABC100", "ABC200")):
    findings = check_source(Source.from_text(text, "a.py"), [*DIAGNOSTICS, *(rules or (Prints(),))], codes)
    return [(finding.code, finding.line) for finding in findings]


def test_a_comment_that_takes_something_away_is_used():
    assert checked("print(1)  # memlint: ignore[ABC100] wanted\n") == []
    assert checked("print(1)  # noqa: ABC100\n") == []
    assert checked("def f():  # memlint: ignore[ABC100] wanted\n    pass\n    print(1)\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1  # memlint: ignore[ABC100] wanted\nprint(x)\n",
        "x = 1  # noqa: ABC100\nprint(x)\n",
        "x = 1  # noqa: E501, ABC100\nprint(x)\n",
        "# memlint: ignore[ABC100] wanted\nx = 1\nprint(x)\n",
    ],
)
def test_a_comment_on_lines_without_a_finding_is_unused(text):
    assert checked(text) == [("MEM004", 1), ("ABC100", text.count("\n"))]


def test_each_code_of_a_comment_is_judged_by_itself():
    text = "print(1)  # memlint: ignore[ABC100, ABC200] wanted\n"
    assert checked(text) == []

    class Never(Prints):
        code = "ABC200"

        def check(self, source: Source):
            return iter(())

    findings = check_source(Source.from_text(text, "a.py"), [*DIAGNOSTICS, Prints(), Never()], ())
    (comment,) = findings
    assert comment.message.startswith("ABC200 finds nothing here")
    assert comment.fix == "Remove ABC200 from the comment."


def test_codes_of_rules_that_did_not_run_are_not_judged():
    assert checked("x = 1  # memlint: ignore[ABC200] wanted\n") == []
    assert checked("x = 1  # noqa: E501, ABC200, F401\n") == []


def test_codes_of_rules_that_failed_are_not_judged():
    assert checked("x = 1  # memlint: ignore[ABC100] wanted\n", Fails()) == [("MEM003", 1)]


def test_unused_comments_are_only_reported_where_that_is_wanted():
    source = Source.from_text("x = 1  # memlint: ignore[ABC100] wanted\n", "a.py")
    assert check_source(source, [Prints()], ()) == []


def test_a_comment_for_the_file_covers_all_of_it_wherever_it_stands():
    assert (
        checked("print(1)\nprint(2)\n\n\ndef f():\n    # memlint: file-ignore[ABC100] a script\n    print(3)\n") == []
    )
    assert checked("# memlint: file-ignore[ABC100] a script\nx = 1\n") == [("MEM004", 1)]


def test_a_comment_for_the_file_stands_on_a_line_of_its_own():
    assert checked("print(1)  # memlint: file-ignore[ABC100] a script\nprint(2)\n") == [
        ("ABC100", 1),
        ("MEM002", 1),
        ("ABC100", 2),
    ]


@pytest.mark.parametrize(
    ("comment", "hint"),
    [
        ("ignore", "Name the codes, as in `# memlint: ignore[MEM107] reason`"),
        ("ignore[]", "Name the codes"),
        ("ignore MEM404", "Write `# memlint: ignore[MEM404] reason`, with whole codes in brackets"),
        ("ignore[mem404]", "Write `# memlint: ignore[MEM404] reason`"),
        ("ignore[MEM404 MEM405]", "Write `# memlint: ignore[MEM404, MEM405] reason`"),
        ("ignore[MEM404]: small", "Put a space between `]` and the reason: `# memlint: ignore[MEM404] reason`"),
        ("ignroe[MEM404]", "Did you mean `# memlint: ignore[MEM404] reason`?"),
        ("ignore-file[MEM404]", "Did you mean `# memlint: file-ignore[MEM404] reason`?"),
        ("skip-file", "Did you mean `# memlint: file-ignore[MEM107] reason`?"),
        ("disable=MEM404", "There are `# memlint: ignore[MEM404] reason` and"),
        ("file-ignore[MEM404]", "Put `file-ignore` on a line of its own"),
        ("", "There are `# memlint: ignore[MEM107] reason` and"),
        ("[", "There are"),
    ],
)
def test_a_malformed_comment_says_what_to_write_instead(comment, hint):
    findings = check_source(Source.from_text(f"x = 1  # memlint: {comment}\n", "a.py"), DIAGNOSTICS, ())
    (malformed,) = findings
    assert malformed.code == "MEM002"
    assert malformed.fix.startswith(hint)


def test_without_all_rules_no_code_is_held_for_unknown():
    text = "x = 1  # memlint: ignore[XYZ100] of a plugin\n"
    assert checked(text) == [("MEM002", 1)]
    assert checked(text, codes=()) == []


def test_comments_for_rules_of_traced_steps_are_judged_on_lines_that_ran():
    text = (
        "a = 1  # memlint: ignore[ABC900] x\nb = 2  # memlint: ignore[ABC900] x\nc = 3  # memlint: ignore[ABC900] x\n"
    )
    source = Source.from_text(text, "a.py")
    comments = list(unused(source, [found("a.py", 2, "ABC900")], {"ABC900"}, traced_lines={1, 2}))
    assert [(comment.line, comment.severity) for comment in comments] == [(1, Severity.NOTE)]
    assert "in any workload of this run" in comments[0].message


def test_what_a_comment_covers_is_as_defined_on_every_line_of_real_files():
    """Held against the definition: of all heads on the line that of the statement that begins last."""
    for name in ("memlint/source/text.py", "memlint/source/scopes.py", "tests/lint/test_source.py"):
        source = Source.read(ROOT / name)
        heads = []
        for node in ast.walk(source.tree):
            if isinstance(node, ast.stmt | ast.ExceptHandler):
                whole = isinstance(node, ast.FunctionDef | ast.ClassDef)
                body = getattr(node, "body", None)
                head_end = max(node.lineno, first_line(body[0]) - 1) if body else node.end_lineno
                heads.append((first_line(node), head_end, node.end_lineno if whole else head_end))
        for line in range(1, len(source.lines) + 1):
            innermost = max(((s, e) for s, head, e in heads if s <= line <= head), default=(line, line))
            assert source.covered(line) == innermost, f"{name}:{line}"


def first_line(node):
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def test_a_comment_in_a_case_or_an_else_covers_that_line_only():
    text = "match x:\n    case 1:\n        print(1)\n    case 2:\n        print(2)\nif x:\n    y = 1\nelse:\n    print(3)\n"
    source = Source.from_text(text, "a.py")
    assert [source.covered(line) for line in (1, 2, 4, 6, 8)] == [(1, 1), (2, 2), (4, 4), (6, 6), (8, 8)]


def test_twenty_thousand_comments_take_a_moment():
    """Each is looked up in an index; looking at all of them for each finding would take hours."""
    used, unneeded = "print(1)  # noqa: ABC100\n" * 20_000, "x = 1  # noqa: ABC100\n" * 1_000
    assert len(checked(used + unneeded)) == 1_000
