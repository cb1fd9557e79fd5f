"""Correcting files: single edits, rounds, what is written, and the Corrections of every rule."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import replace
from itertools import pairwise
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memlint.base.errors import TargetError
from memlint.lint.edits import offset, under, with_method, without_statement
from memlint.lint.fixes import Fixed, apply, disjoint, fix_file, fix_text, with_line_ends
from memlint.lint.registry import load_rules
from memlint.lint.rule import Applicability, Correction, Edit, Severity, SourceRule
from memlint.lint.runner import check_source
from memlint.source.files import Unreadable
from memlint.source.text import Source

SOURCE_RULES = [rule for rule in load_rules().rules if isinstance(rule, SourceRule)]


def corrections(rule, text):
    return [f.correction for f in check_source(Source.from_text(text, "case.py"), [rule]) if f.correction]


BAD_CASES = [
    pytest.param(rule, case, id=f"{rule.code}-{number}")
    for rule in SOURCE_RULES
    for number, case in enumerate(rule.bad)
    if corrections(rule, case.source)
]


def fixed(rule, text, *, unsafe=True):
    return fix_text(text, "case.py", lambda source: check_source(source, [rule]), unsafe=unsafe)[0]


def comments(text):
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def commented(text):
    """The text with a comment wherever one can stand: behind every line, and on a line of its own before it."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}# above {number}", f"{line}  # behind {number}" if line else ""]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("code", ["MEM205", "MEM401", "MEM402", "MEM404", "MEM405", "MEM601"])
def test_the_first_case_of_these_rules_can_be_corrected(code):
    (rule,) = [rule for rule in SOURCE_RULES if rule.code == code]
    assert corrections(rule, rule.bad[0].source)


@pytest.mark.parametrize(("rule", "case"), BAD_CASES)
def test_a_correction_takes_the_finding_away_and_keeps_every_comment(rule, case):
    for text in (case.source, commented(case.source), case.source.replace("    ", "\t"), case.source.rstrip("\n")):
        better = fixed(rule, text)
        ast.parse(better)
        assert better != text
        assert check_source(Source.from_text(better, "case.py"), [rule]) == []
        assert comments(better) == comments(text)


@pytest.mark.parametrize(("rule", "case"), BAD_CASES)
def test_edits_lie_in_the_text_and_do_not_overlap(rule, case):
    for correction in corrections(rule, case.source):
        edits = sorted(correction.edits)
        assert all(0 <= edit.start <= edit.end <= len(case.source) for edit in edits)
        assert all(first.end <= second.start for first, second in pairwise(edits))


def rule_of(code):
    return next(rule for rule in SOURCE_RULES if rule.code == code)


def loop(body, before="total = 0.0", after="print(total)"):
    """A training loop as people write it; `loss` is what `backward` was called on."""
    return (
        "import torch\nfrom torch.nn import functional as F\n\ndef fit(model, loader, optimizer):\n"
        f"    {before}\n    for x, y in loader:\n        loss = F.mse_loss(model(x), y)\n        loss.backward()\n"
        f"        {body}\n    {after}\n"
    )


@pytest.mark.parametrize(
    ("code", "before", "after"),
    [
        ("MEM401", "total += loss", "total += loss.detach()"),
        ("MEM401", "total += loss / 4", "total += (loss / 4).detach()"),
        ("MEM401", "total = total + (loss)", "total = total + (loss.detach())"),
        ("MEM401", "total = loss * len(x) + total", "total = (loss * len(x)).detach() + total"),
        ("MEM401", "total += F.mse_loss(x, y)", "total += F.mse_loss(x, y).detach()"),
        ("MEM401", "é = '∑∑'; total += loss", "é = '∑∑'; total += loss.detach()"),
        ("MEM401", "total += -loss", "total += (-loss).detach()"),
    ],
)
def test_a_sum_is_corrected_where_it_stands(code, before, after):
    assert fixed(rule_of(code), loop(before), unsafe=False) == loop(after)


@pytest.mark.parametrize(
    "text",
    [
        loop("total += loss", after="return total"),
        loop("total += loss", after="self.total = total"),
        loop("total += loss", after="history.append(total)"),
        loop("total += loss", after="mean = total / 3\n    finish(mean)"),
        loop("total += loss", after="return {'loss': total}"),
        loop("total += loss", after="def late():\n        return total"),
        loop("total += loss", before="global total"),
        loop("total += loss", before="pass").replace("optimizer)", "optimizer, total)"),
        loop("self.total += loss"),
        loop("total += loss")
        .replace("F.mse_loss(model(x), y)", "criterion(model(x), y)")
        .replace("loss.backward()", "engine.backward(loss)"),
    ],
)
def test_a_sum_that_somebody_else_could_differentiate_or_that_may_be_no_tensor_is_no_safe_correction(text):
    rule = rule_of("MEM401")
    assert [correction.applicability for correction in corrections(rule, text)] == [Applicability.UNSAFE]
    assert fixed(rule, text, unsafe=False) == text


@pytest.mark.parametrize(
    "after",
    [
        "print(total)",
        "print(f'{total:.3f}')",
        "logger.info('loss %s', total / 3)",
        "mean = total / 3\n    writer.add_scalar('loss', mean)",
        "return total.item()",
        "return float(total / 3)",
        "return total < 3",
    ],
)
def test_a_sum_that_is_only_looked_at_is_a_safe_correction(after):
    (correction,) = corrections(rule_of("MEM401"), loop("total += loss", after=after))
    assert correction.applicability is Applicability.SAFE


def test_a_list_of_losses_is_corrected_safely_only_where_it_stays_in_the_function():
    rule = rule_of("MEM402")
    text = loop("losses.append(loss)", before="losses = []", after="print(sum(losses))")
    assert fixed(rule, text, unsafe=False) == text.replace("(loss)", "(loss.detach())")
    for after in ("return losses", "finish(losses)", "for each in losses:\n        finish(each)"):
        kept = loop("losses.append(loss)", before="losses = []", after=after)
        assert fixed(rule, kept, unsafe=False) == kept


GUARDED = '''\
import torch

def evaluate(model, loader):
    model.eval()
    # why
    for x in loader:  # each
        if x:
            print("""a
  b
""", f"""c
d{
model(x)
}""",
          model(x))  # done

        # inside
    else:
        print(model)
    return model
'''


def test_a_loop_is_put_under_a_guard_and_strings_keep_their_lines():
    better = fixed(rule_of("MEM404"), GUARDED)
    assert better == GUARDED.replace(
        "    for x in loader", "    with torch.no_grad():\n        for x in loader"
    ).replace("        if x:\n            print(", "            if x:\n                print(").replace(
        "          model(x))", "              model(x))"
    ).replace("        # inside", "            # inside").replace(
        "    else:\n        print(model)", "        else:\n            print(model)"
    )
    assert ast.dump(ast.parse(better).body[1].body[1].body[0]) == ast.dump(ast.parse(GUARDED).body[1].body[1])


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("return [model(x) for x in loader]", "with torch.no_grad():\n        return [model(x) for x in loader]"),
        ("for x in loader: print(model(x))", "with torch.no_grad():\n        for x in loader: print(model(x))"),
        ("for x in loader:\n        yield model(x)", None),
        ("if loader: return [model(x) for x in loader]", None),
        ("y = 1; return [model(x) for x in loader]", None),
        ("return (model(x) for x in loader)", None),
        ("for y in [model(x) for x in loader]:\n        print(y)", None),
    ],
)
def test_a_guard_is_put_only_where_the_whole_statement_can_be(text, better):
    head = "import torch\n\ndef evaluate(model, loader):\n    model.eval()\n    "
    assert fixed(rule_of("MEM404"), head + text) == head + (better or text)


@pytest.mark.parametrize(
    ("imports", "guard"),
    [
        ("import torch as t", "t.no_grad()"),
        ("import torch.nn as nn\nfrom torch import no_grad", "no_grad()"),
        ("from torch import nn", None),
        ("def f():\n    import torch", None),
    ],
)
def test_a_guard_is_written_as_the_file_imports_it(imports, guard):
    text = (
        f"{imports}\n\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x))\n"
    )
    better = fixed(rule_of("MEM404"), text)
    assert (f"    with {guard}:\n" in better) if guard else (better == text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()"),
        ("optimizer.zero_grad(False)", "optimizer.zero_grad()"),
        ("optimizer.zero_grad( set_to_none = False, )", "optimizer.zero_grad()"),
        (
            "optimizer.zero_grad(\n        set_to_none=False  # why\n    )",
            "optimizer.zero_grad(\n        set_to_none=True  # why\n    )",
        ),
        ("for p in model.parameters(): p.grad.data.fill_(0)", "for p in model.parameters(): p.grad = None"),
    ],
)
def test_gradients_are_freed(before, after):
    head = "import torch\n\ndef fit(model, optimizer):\n    "
    assert fixed(rule_of("MEM205"), f"{head}{before}\n") == f"{head}{after}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("        step(x).backward()\n        torch.cuda.empty_cache()\n", "        step(x).backward()\n"),
        (
            "        step(x).backward()\n        torch.cuda.empty_cache()  # why\n",
            "        step(x).backward()\n        # why\n",
        ),
        ("        torch.cuda.empty_cache()\n", "        pass\n"),
        ("        step(x); torch.cuda.empty_cache()\n", "        step(x); torch.cuda.empty_cache()\n"),
        (
            "        with lock:\n            torch.cuda.empty_cache()  # why\n",
            "        with lock:\n            pass  # why\n",
        ),
        ("        step(x)\n        torch.cuda.empty_cache()", "        step(x)\n"),
    ],
)
def test_a_call_that_frees_nothing_is_removed(before, after):
    head = "import torch\n\ndef fit(loader):\n    for x in loader:\n"
    assert fixed(rule_of("MEM601"), head + before) == head + after


class Doubling(SourceRule):
    """Every `a` becomes `bb`, in an overlapping Correction for each pair of them."""

    code, name, summary, severity, words = "ABC100", "doubling", "Doubles.", Severity.WARNING, ()

    def check(self, source: Source):
        text = source.text
        for place, letter in enumerate(text):
            if letter == "a":
                edits = (Edit(place, place + 1, "bb"),) + (
                    (Edit(place + 1, place + 2, "bb"),) if text[place + 1 : place + 2] == "a" else ()
                )
                yield self.finding(
                    source, source.tree.body[0], "m", "f", correction=Correction(edits, Applicability.SAFE)
                )


def test_overlapping_corrections_are_made_in_rounds():
    assert fixed(Doubling(), "aaaaa = 1\n") == "bb" * 5 + " = 1\n"


class Breaking(Doubling):
    code = "ABC200"

    def check(self, source: Source):
        for finding in super().check(source):
            yield replace(finding, correction=Correction((Edit(0, 0, "("),), Applicability.SAFE))
            break


def test_what_would_not_parse_is_never_kept_and_the_rest_is():
    text = "x = 1\na = 1\n"
    assert fixed(Breaking(), text) == text
    better, codes = fix_text(text, "case.py", lambda source: check_source(source, [Breaking(), Doubling()]))
    assert (better, codes) == ("x = 1\nbb = 1\n", ("ABC100",))


class Swinging(Doubling):
    code = "ABC300"

    def check(self, source: Source):
        other = "b" if source.text[0] == "a" else "a"
        yield self.finding(
            source, source.tree.body[0], "m", "f", correction=Correction((Edit(0, 1, other),), Applicability.SAFE)
        )


def test_corrections_that_undo_each_other_come_to_an_end():
    assert fixed(Swinging(), "a = 1\n") in ("a = 1\n", "b = 1\n")


TEXTS = st.text(alphabet="ab\n é", max_size=60)


@st.composite
def texts_with_edits(draw):
    text = draw(TEXTS)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pairs = list(zip(places[::2], places[1::2], strict=False))
    return text, [Edit(start, end, draw(TEXTS)) for start, end in pairs]


@given(texts_with_edits())
def test_edits_change_their_places_and_nothing_else(example):
    text, edits = example
    expected = text
    for edit in reversed(edits):
        expected = expected[: edit.start] + edit.text + expected[edit.end :]
    assert apply(text, edits) == expected


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4)), min_size=1, max_size=3), max_size=8))
def test_of_overlapping_corrections_the_first_is_chosen_and_the_chosen_can_be_made_together(places):
    wanted = []
    for spans in places:
        edits = tuple(Edit(start, start + length, "x") for start, length in spans)
        if disjoint([("A", Correction((edit,), Applicability.SAFE)) for edit in edits]) == [
            ("A", Correction((edit,), Applicability.SAFE)) for edit in sorted(edits)
        ]:
            wanted.append(("A", Correction(edits, Applicability.SAFE)))
    chosen = disjoint(wanted)
    assert bool(chosen) == bool(wanted)
    edits = [edit for _code, correction in chosen for edit in correction.edits]
    assert len(apply("-" * 40, edits)) == 40 + sum(1 - (edit.end - edit.start) for edit in edits)


@given(
    st.lists(
        st.tuples(TEXTS.map(lambda text: text.replace("\n", "")), st.sampled_from(["\n", "\r\n", "\r"])), max_size=12
    ),
    st.data(),
)
def test_lines_that_stay_keep_their_ends(lines, data):
    original = "".join(text + end for text, end in lines)
    normal = original.replace("\r\n", "\n").replace("\r", "\n")
    assert with_line_ends(normal, original) == original
    place = data.draw(st.integers(0, len(normal)))
    better = normal[:place] + "new\n" + normal[place:]
    assert with_line_ends(better, original).replace("\r\n", "\n").replace("\r", "\n") == better


LEAK = loop("total += loss")


@pytest.mark.parametrize(
    "content",
    [
        LEAK.encode(),
        LEAK.replace("\n", "\r\n").encode(),
        LEAK.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + LEAK.encode(),
        b"# coding: latin-1\n# \xe9\n" + LEAK.encode(),
        LEAK.replace("\n", "\r\n", 3).encode(),
        LEAK.rstrip("\n").encode(),
        "é = '∑'\x0c\n".encode() + LEAK.encode(),
    ],
    ids=["plain", "crlf", "cr", "mark", "latin-1", "mixed", "no end", "utf-8"],
)
def test_bytes_that_are_not_concerned_stay_as_they_are(tmp_path, content):
    file = tmp_path / "a.py"
    file.write_bytes(content)
    file.chmod(0o751)
    done = fix_file(str(file), lambda source: check_source(source, [rule_of("MEM401")]))
    assert file.read_bytes() == content
    done.write()
    assert file.read_bytes() == content.replace(b"+= loss", b"+= loss.detach()")
    assert file.stat().st_mode & 0o777 == 0o751
    assert list(tmp_path.iterdir()) == [file]
    assert done.codes == ("MEM401",)


def test_a_file_without_corrections_is_none(tmp_path):
    (tmp_path / "a.py").write_text("a = 1\n")
    assert fix_file(str(tmp_path / "a.py"), lambda source: check_source(source, [rule_of("MEM401")])) is None
    (tmp_path / "b.py").write_text("def f(:\n")
    with pytest.raises(Unreadable):
        fix_file(str(tmp_path / "b.py"), lambda source: [])


def test_a_file_that_changed_or_may_not_be_written_is_left_alone(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("b = 2\n")
    with pytest.raises(TargetError, match="was changed"):
        Fixed(str(file), b"a = 1\n", b"c = 3\n", ("MEM401",)).write()
    assert file.read_text() == "b = 2\n"
    file.unlink()
    with pytest.raises(TargetError, match="cannot be written"):
        Fixed(str(file), b"a = 1\n", b"c = 3\n", ("MEM401",)).write()
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.py").write_text("a = 1\n")
    (tmp_path / "link.py").symlink_to("real.py")
    Fixed(str(tmp_path / "link.py"), b"a = 1\n", b"b = 1\n", ("MEM401",)).write()
    assert (tmp_path / "link.py").is_symlink()
    assert (tmp_path / "real.py").read_text() == "b = 1\n"


def test_a_diff_can_be_applied_by_other_tools():
    diff = Fixed("a.py", b"a = 1\r\nb = 2", b"a = 1\r\nb = 3", ()).diff()
    assert (
        diff
        == "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n a = 1\r\n-b = 2\n\\ No newline at end of file\n+b = 3\n\\ No newline at end of file\n"
    )


def test_columns_count_bytes_as_in_the_syntax_tree():
    source = Source.from_text("é = '∑'; total\n", "a.py")
    name = source.tree.body[1].value
    assert source.text[offset(source, name.lineno, name.col_offset) :] == "total\n"
    assert apply(source.text, with_method(source, name, "f()")) == "é = '∑'; total.f()\n"


def test_a_statement_with_a_comment_inside_is_not_removed():
    source = Source.from_text("f(  # why\n)\ng()\n", "a.py")
    assert without_statement(source, source.tree.body[0]) == ()
    assert apply(source.text, without_statement(source, source.tree.body[1])) == "f(  # why\n)\n"


def test_a_body_that_begins_in_the_header_is_indented_by_four_spaces():
    text = dedent("""\
        for x in (1,
                  2): f(x)
    """)
    source = Source.from_text(text, "a.py")
    assert (
        apply(text, under(source, source.tree.body[0], "g()"))
        == "with g():\n    for x in (1,\n              2): f(x)\n"
    )
