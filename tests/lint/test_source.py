"""Reading files, names and suppression comments."""

import ast
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.source.files import Unreadable
from memlint.source.text import Source


def source(text):
    return Source.from_text(text, "example.py")


def written(path, content):
    path.write_bytes(content)
    return path


def test_importing_sources_and_rules_does_not_import_torch():
    code = (
        "import sys, memlint.source.text, memlint.lint.runner, memlint.lint.pages; "
        "from memlint.lint.registry import load_rules; load_rules(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", ""),
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# coding: latin-1\nx = '\xe9'\n", "# coding: latin-1\nx = '\u00e9'\n"),
        (b"x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        (b"x = 1\ry = 2", "x = 1\ny = 2"),
    ],
)
def test_a_file_is_decoded_as_python_decodes_it(tmp_path, content, text):
    assert Source.read(written(tmp_path / "a.py", content)).text == text


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"x = 1\ny = '\xff'\n", 2, "utf-8"),
        (b"# coding: klingon\n", 1, "encoding"),
        (b"x = 1\ndef f(:\n", 2, "not valid Python"),
        (b"x = 1\x00\n", 1, "null"),
        (b"(" * 300 + b")" * 300, 1, "nest"),
        (b"x = " + b"-" * 100_000 + b"1\n", 1, "nested too deeply"),
        pytest.param(
            b"x = " + b"f(" * 90 + b")" * 90 + b"." + b"a." * 100_000 + b"a\n",
            1,
            "",
            marks=pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python parses it since 3.14"),
        ),
        (b"#" * (9 * 2**20), 1, "larger than 8 MiB"),
    ],
    ids=["utf-8", "cookie", "syntax", "null", "parentheses", "minus", "attributes", "large"],
)
def test_what_cannot_be_parsed_is_unreadable_with_line_and_reason(tmp_path, content, line, reason):
    file = written(tmp_path / "a.py", content)
    with pytest.raises(Unreadable) as caught:
        Source.read(file)
    assert caught.value.path == str(file)
    assert caught.value.line == line
    assert reason in caught.value.reason


def test_a_missing_file_a_directory_and_a_pipe_are_unreadable(tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    for name in ("missing.py", "", "pipe.py"):
        with pytest.raises(Unreadable):
            Source.read(tmp_path / name)


def test_a_file_with_invalid_escapes_gives_no_warning(tmp_path, recwarn):
    Source.read(written(tmp_path / "a.py", b"x = '\\d'\n"))
    assert not recwarn


@given(st.text(max_size=200))
def test_any_text_is_either_a_source_or_unreadable(text):
    try:
        read = source(text)
    except Unreadable:
        return
    assert len(read.lines) >= 1
    assert isinstance(read.suppressions, tuple)


@given(st.text(alphabet="# memlint:ignore[MEM107],nqa()\n:x", max_size=120))
def test_any_comment_is_read_without_an_error(text):
    try:
        read = source(text)
        read.suppressions, read.malformed  # noqa: B018
    except Unreadable:
        pass


@pytest.mark.parametrize(
    ("imports", "expression", "name"),
    [
        ("import torch", "torch.no_grad", "torch.no_grad"),
        ("import torch.nn.functional", "torch.nn.functional.relu", "torch.nn.functional.relu"),
        ("import torch.nn.functional as F", "F.relu", "torch.nn.functional.relu"),
        ("from torch import nn as n", "n.Linear", "torch.nn.Linear"),
        ("from torch import no_grad", "no_grad", "torch.no_grad"),
        ("from torch import *", "no_grad", "torch.no_grad"),
        ("from . import layers", "layers.Block", ".layers.Block"),
        ("from ..models.gpt import GPT", "GPT", "..models.gpt.GPT"),
        ("import torch\noff = torch.no_grad", "off", "torch.no_grad"),
        ("def f():\n    import torch as t", "t.cat", "torch.cat"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None", "torch.cat", "torch.cat"),
        ("import torch", "model.eval", None),
        ("import torch", "f().no_grad", None),
    ],
)
def test_names_are_resolved_through_imports_and_aliases(imports, expression, name):
    read = source(f"{imports}\n{expression}\n")
    assert read.qualified_name(read.tree.body[-1].value) == name


def lines_without(text, code="MEM107"):
    read = source(text)
    return [number for number in range(1, len(read.lines) + 1) if read.suppressed(code, number)]


def test_a_comment_at_the_end_of_a_line_covers_its_statement_only():
    assert lines_without("a = 1\nb = 2  # memlint: ignore[MEM107] kept\nc = 3\n") == [2]
    assert lines_without("a = f(\n    1,  # memlint: ignore[MEM107] kept\n    2,\n)\nb = 2\n") == [1, 2, 3, 4]


def test_a_comment_on_its_own_line_covers_the_next_statement():
    assert lines_without("a = 1\n# memlint: ignore[MEM107] kept\n\n# why\nb = f(\n    2\n)\nc = 3\n") == [5, 6, 7]


def test_a_comment_on_a_def_or_class_covers_its_body():
    text = "class A:  # memlint: ignore[MEM107] small\n    def f(self):\n        return 1\n\nx = 1\n"
    assert lines_without(text) == [1, 2, 3]
    text = "@torch.compile\ndef f(  # memlint: ignore[MEM107] small\n    x,\n):\n    return x\n\nx = 1\n"
    assert lines_without(text) == [1, 2, 3, 4, 5]
    text = "# memlint: ignore[MEM107] small\n@torch.compile\ndef f(x):\n    return x\n\nx = 1\n"
    assert lines_without(text) == [2, 3, 4]


def test_a_comment_on_a_loop_covers_its_header_only():
    assert lines_without("for x in (1,\n    2):  # memlint: ignore[MEM107] small\n    y = x\n    z = y\n") == [1, 2]


def test_noqa_with_codes_suppresses_and_without_codes_does_not():
    assert lines_without("a = 1  # noqa: E501, MEM107\n") == [1]
    assert lines_without("a = 1  # NOQA:mem107\n") == [1]
    assert lines_without("a = 1  # noqa\n") == []
    assert lines_without("a = 1  # noqa: E501\n") == []


def test_several_codes_reason_and_place_are_read():
    (read,) = source("a = 1  # type: ignore  # memlint: ignore[MEM107, MEM404] both are kept\n").suppressions
    assert read.codes == ("MEM107", "MEM404")
    assert read.reason == "both are kept"
    assert (read.line, read.column) == (1, 24)


def test_text_in_a_string_is_no_suppression():
    assert source("a = '# memlint: ignore[MEM107] x'\n").suppressions == ()


@pytest.mark.parametrize(
    "comment",
    [
        "# memlint: ignore",
        "# memlint: ignore MEM107",
        "# memlint: ignore[]",
        "# memlint: ignore[mem107]",
        "# memlint: ignroe[MEM107]",
        "# memlint: file-ignore[MEM107]",
        "# memlint:",
    ],
)
def test_what_only_looks_like_a_suppression_is_malformed(comment):
    read = source(f"a = 1  {comment}\n")
    assert read.suppressions == ()
    (malformed,) = read.malformed
    assert (malformed.line, malformed.column, malformed.comment) == (1, 8, comment)


def test_lines_are_those_of_the_syntax_tree_even_with_form_feeds():
    read = source("a = 1\n\x0c\nb = '\x1c\u2028'\nc = 3\n")
    assert read.lines[read.tree.body[2].lineno - 1] == "c = 3"
    assert isinstance(read.tree, ast.Module)


EDITED = '''\
import torch; from torch import nn

@decorated
# a comment
class Model(nn.Module):
    """A string
    of several lines."""

    def forward(self, x): return x

if torch:
    x = """a
b"""; y = 1
else:
    z = (1,
         2)

@decorated
def f(): pass
last = 1
'''


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(EDITED)),
            st.integers(0, 2),
            st.sampled_from(
                ['"""', "'", "(", ")", "\\", ";", " ", "#", "x", "@d", "else:", ":", "\n", "\f", "\\\n", ""]
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_an_edited_text_has_the_tree_of_one_that_is_parsed_whole(edits):
    before = source(EDITED)
    for start, num_removed, text in edits:
        edited = before.text[:start] + text + before.text[start + num_removed :]
        try:
            whole = source(edited)
        except Unreadable:
            with pytest.raises(Unreadable):
                Source.from_text(edited, "example.py", before)
            return
        after = Source.from_text(edited, "example.py", before)
        assert ast.dump(after.tree, include_attributes=True) == ast.dump(whole.tree, include_attributes=True)
        before = after


def test_an_edit_within_a_line_leaves_the_trees_of_other_statements():
    before = source(EDITED)
    after = Source.from_text(EDITED.replace("return x", "return x + 1"), "example.py", before)
    shared = [old is new for old, new in zip(before.tree.body, after.tree.body, strict=True)]
    assert shared == [True, True, False, True, True, True]


@pytest.mark.parametrize(
    "line",
    [
        'x = """noqa: MEM101"""  # noqa: MEM102',
        'x = """\n# noqa: MEM101\n"""; y = 1  # noqa: MEM102',
        'x = """\n# noqa: MEM101 "; y = 1 # noqa: MEM103\n"""; y = 1  # noqa: MEM102',
        'x = ("a # noqa: MEM101"\n  # noqa: MEM102\n  "b")',
        "if (a and\n    b): x = (1,  # noqa: MEM102\n  2)",
        "match x:\n    case 1:\n        pass\n    case '# noqa: MEM101':  # noqa: MEM102\n        pass",
        "try:\n    pass\nfinally:  # noqa: MEM102\n    pass",
        "def f():\n    return 1  # noqa: MEM102\nx = '# noqa: MEM101'",
    ],
)
def test_only_comments_are_suppressions(line):
    assert [comment.codes for comment in source(f"x = 1\n{line}\nx = 1\n").suppressions] == [("MEM102",)]
