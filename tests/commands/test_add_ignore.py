"""`--add-ignore`: comments that suppress what they are for, in files that are otherwise the same."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlint.commands.check.add_ignore import add_comments
from memlint.report.model import Finding
from memlint.source.text import Source


def finding(line, code="MEM404", path="a.py", workload=None):
    return Finding(
        code=code,
        path=path,
        line=line,
        column=1,
        message="m",
        severity="warning",
        confidence="heuristic",
        workload=workload,
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def added(text, *findings):
    content = text if isinstance(text, bytes) else text.encode()
    Path("a.py").write_bytes(content)
    return add_comments(findings, [Path("a.py")])


def after():
    return Path("a.py").read_text()


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("x = 1\n", 1, "# memlint: ignore[MEM404]\nx = 1\n"),
        ("x = 1", 1, "# memlint: ignore[MEM404]\nx = 1"),
        ("if x:\n\ty = 1\n", 2, "if x:\n\t# memlint: ignore[MEM404]\n\ty = 1\n"),
        ("x = f(\n    1,\n    2,\n)\n", 3, "# memlint: ignore[MEM404]\nx = f(\n    1,\n    2,\n)\n"),
        ("x = '''\nbut\n'''\n", 2, "# memlint: ignore[MEM404]\nx = '''\nbut\n'''\n"),
        ("x = 1 + \\\n    2\n", 2, "# memlint: ignore[MEM404]\nx = 1 + \\\n    2\n"),
        ("@a\n@b\ndef f():\n    pass\n", 3, "# memlint: ignore[MEM404]\n@a\n@b\ndef f():\n    pass\n"),
        ("if x:\n    y = 1\nelse:\n    y = 2\n", 3, "if x:\n    y = 1\n# memlint: ignore[MEM404]\nelse:\n    y = 2\n"),
        ("a = 1; b = 2\n", 1, "# memlint: ignore[MEM404]\na = 1; b = 2\n"),
        ("#!/usr/bin/python\n# coding: utf-8\nx = 1\n", 3, None),
        ("x = 1  # noqa: MEM101\n", 1, "# memlint: ignore[MEM404]\nx = 1  # noqa: MEM101\n"),
    ],
)
def test_the_comment_stands_above_the_statement(here, text, line, expected):
    assert added(text, finding(line)).left == []
    assert after() == (expected or text.replace("x = 1", "# memlint: ignore[MEM404]\nx = 1"))


def test_codes_are_added_to_a_comment_that_is_there(here):
    added("x = 1  # memlint: ignore[MEM101]  the reason\n", finding(1), finding(1, "MEM402"), finding(1))
    assert after() == "x = 1  # memlint: ignore[MEM101, MEM404, MEM402]  the reason\n"
    added("# memlint: ignore[MEM101] why\n\nx = (\n    1)\n", finding(4))
    assert after() == "# memlint: ignore[MEM101, MEM404] why\n\nx = (\n    1)\n"


def test_several_findings_of_one_statement_share_a_comment(here):
    result = added("x = (\n    1,\n    2)\ny = 1\n", finding(2), finding(3, "MEM402"), finding(4))
    assert after() == "# memlint: ignore[MEM404, MEM402]\nx = (\n    1,\n    2)\n# memlint: ignore[MEM404]\ny = 1\n"
    assert (result.num_findings, result.files) == (3, ["a.py"])


def test_what_a_workload_has_without_a_line_is_suppressed_for_the_file(here):
    added('#!/usr/bin/python\n"""Doc."""\nx = 1\n', finding(1, "MEM301", workload="m"), finding(3))
    assert after() == (
        '#!/usr/bin/python\n# memlint: file-ignore[MEM301]\n"""Doc."""\n# memlint: ignore[MEM404]\nx = 1\n'
    )
    added(after(), finding(1, "MEM010", workload="m"))
    assert "# memlint: file-ignore[MEM301, MEM010]\n" in after()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"x = 1\r\ny = 2\r\n", b"x = 1\r\n# memlint: ignore[MEM404]\r\ny = 2\r\n"),
        (b"x = 1\ry = 2", b"x = 1\r# memlint: ignore[MEM404]\ny = 2"),
        (b"\xef\xbb\xbfx = 1\ny = 2\n", b"\xef\xbb\xbfx = 1\n# memlint: ignore[MEM404]\ny = 2\n"),
        (b"# coding: latin-1\ny = '\xe9'\n", b"# coding: latin-1\n# memlint: ignore[MEM404]\ny = '\xe9'\n"),
        (b"x = 1\n\x0c\ny = 2\n", None),
    ],
    ids=["crlf", "cr", "bom", "latin-1", "form feed"],
)
def test_encoding_and_line_ends_stay(here, content, expected):
    line = content.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n").split("y = ")[0].count("\n") + 1
    assert added(content, finding(line)).left == []
    assert Path("a.py").read_bytes() == (expected or content.replace(b"y =", b"# memlint: ignore[MEM404]\ny ="))


def test_a_comment_in_the_first_line_stays_behind_the_byte_order_mark(here):
    added(b"\xef\xbb\xbfx = 1\n", finding(1))
    assert Path("a.py").read_bytes() == b"\xef\xbb\xbf# memlint: ignore[MEM404]\nx = 1\n"


def test_a_second_time_changes_nothing(here):
    added("x = 1\n", finding(1), finding(1, "MEM301", workload="m"))
    once = after()
    add_comments([finding(3), finding(1, "MEM301", workload="m")], [Path("a.py")])
    assert after() == once


def test_what_cannot_be_suppressed_is_told_and_the_rest_is_done(here):
    Path("b.py").write_text("x = 1\n")
    result = added("x = 1\n\n\n", finding(1), finding(2), finding(1, "MEM003"), finding(1, path="b.py"))
    reasons = {(found.path, found.line, found.code): reason for found, reason in result.left}
    assert reasons == {
        ("a.py", 2, "MEM404"): "no comment can stand there",
        ("a.py", 1, "MEM003"): "memlint's own findings are not suppressed",
        ("b.py", 1, "MEM404"): "its file was not named",
    }
    assert after() == "# memlint: ignore[MEM404]\nx = 1\n\n\n"
    assert Path("b.py").read_text() == "x = 1\n"


def test_a_file_that_cannot_be_read_is_told(here):
    Path("a.py").write_text("def f(:\n")
    assert "is not valid Python" in add_comments([finding(1)], [Path("a.py")]).left[0][1]


ROOT = Path(__file__).parents[2]
REAL = [
    ROOT / name
    for name in (
        "memlint/source/text.py",
        "memlint/cli/check.py",
        "rules/memlint_rules/m6_runtime/mem601_empty_cache_in_loop.py",
    )
]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(REAL), st.lists(st.integers(1, 250), min_size=1, max_size=8), st.booleans())
def test_in_real_files_every_finding_on_code_is_suppressed_and_the_code_is_the_same(file, lines, crlf):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "a.py"
        text = file.read_text()
        copy.write_bytes(text.replace("\n", "\r\n").encode() if crlf else text.encode())
        before = Source.read(copy)
        wanted = [line for line in lines if line <= len(before.lines) and before.lines[line - 1].strip()]
        result = add_comments([finding(line, path=str(copy)) for line in wanted], [copy])
        after = Source.read(copy)
        assert ast.dump(after.tree) == ast.dump(before.tree)
        left = {found.line for found, _reason in result.left}
        moved = [line for line in after.lines if not line.strip().startswith("# memlint: ignore[MEM404]")]
        assert moved == list(before.lines)
        kept = [n for n, line in enumerate(after.lines, 1) if not line.strip().startswith("# memlint: ignore[MEM404]")]
        assert all(after.suppressed("MEM404", kept[line - 1]) for line in wanted if line not in left)
        assert all(before.lines[line - 1].strip().startswith("#") for line in left)
