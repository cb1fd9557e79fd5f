"""Baselines: what stays known, what is new, and what is gone."""

import json
from pathlib import Path

import pytest

from memlint.base.errors import UsageError
from memlint.lint.baseline import Baseline, Entry
from memlint.report.model import Finding


def finding(path, line, code="MEM404"):
    return Finding(
        code=code, path=str(path), line=line, column=1, message="m", severity="warning", confidence="heuristic"
    )


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("first()\nloop()\nlast()\nloop()\n")
    return Path("a.py")


def written(findings, name="known.json"):
    Baseline.of(findings, Path(name)).write()
    return Baseline.read(Path(name))


def test_what_is_known_stays_known_when_lines_move(file):
    known = written([finding(file, 2)])
    file.write_text("import os\n\n\n" + file.read_text().replace("loop()\nlast()", "    loop()\nlast()"))
    assert known.split([finding(file, 5)]) == ([], {})


def test_what_is_about_a_whole_file_stays_known_whatever_its_first_line_is(file):
    known = written([finding(file, 1, "MEM301")])
    assert list(known.counts) == [Entry("a.py", "MEM301", "")]
    file.write_text("# a new comment\n" + file.read_text())
    assert known.split([finding(file, 1, "MEM301")]) == ([], {})
    assert known.split([finding(file, 1, "MEM302")])[0] == [finding(file, 1, "MEM302")]
    assert known.stale(known.counts, lambda _path, _code: False) == []


def test_a_baseline_with_the_text_of_line_1_is_still_read(file):
    old = {"version": 1, "findings": [{"path": "a.py", "code": "MEM301", "text": "first()", "count": 1}]}
    Path("old.json").write_text(json.dumps(old))
    known = Baseline.read(Path("old.json"))
    assert known.split([finding(file, 1, "MEM301")]) == ([], {})
    assert known.split([finding(file, 1, "MEM301")] * 2)[0] == [finding(file, 1, "MEM301")]


def test_one_more_of_the_same_line_is_new(file):
    known = written([finding(file, 2)])
    assert known.split([finding(file, 2), finding(file, 4)]) == ([finding(file, 4)], {})
    assert written([finding(file, 2), finding(file, 4)]).split([finding(file, 2), finding(file, 4)])[0] == []


def test_another_rule_line_or_file_is_new(file):
    known = written([finding(file, 2)])
    Path("b.py").write_text(file.read_text())
    for other in (finding(file, 2, "MEM402"), finding(file, 1), finding("b.py", 2)):
        new, missing = known.split([other])
        assert new == [other]
        assert missing == {Entry("a.py", "MEM404", "loop()"): 1}


def test_a_run_that_left_something_out_says_so_whatever_is_known(file):
    broken = [finding(file, 1, "MEM001"), finding(file, 1, "MEM003")]
    known = written([*broken, finding(file, 2)])
    assert [entry.code for entry in known.counts] == ["MEM404"]
    known.counts[Entry("a.py", "MEM001", "first()")] = 1
    assert known.split(broken)[0] == broken


def test_paths_count_from_the_baseline_wherever_memlint_runs(file, tmp_path, monkeypatch):
    Path("sub").mkdir()
    known = written([finding(file.resolve(), 2)])
    assert json.loads(Path("known.json").read_text())["findings"] == [
        {"path": "a.py", "code": "MEM404", "text": "loop()", "count": 1}
    ]
    monkeypatch.chdir("sub")
    known = Baseline.read(Path("../known.json"))
    assert known.split([finding("../a.py", 2)]) == ([], {})


def test_writing_it_again_gives_the_same_bytes(file):
    findings = [finding(file, 4), finding(file, 2), finding(file, 1, "MEM402")]
    written(findings)
    before = Path("known.json").read_bytes()
    written(reversed(findings))
    assert Path("known.json").read_bytes() == before


def test_what_is_gone_for_certain_is_stale(file):
    Path("gone.py").write_text("import os\nloop()\n")
    file.write_text("import os\n" + file.read_text())
    known = written([finding(file, 2), finding(file, 3), finding("gone.py", 2), finding(file, 4, "MEM402")])
    Path("gone.py").unlink()
    file.write_text("loop()\nlast()\n")
    _new, missing = known.split([])

    def judged(path, code):
        return code == "MEM402"

    stale = {(entry.path, entry.text) for entry, _count in known.stale(missing, judged)}
    assert stale == {("gone.py", "loop()"), ("a.py", "first()"), ("a.py", "last()")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no baseline: Invalid JSON"),
        ("[]", "is no baseline: "),
        ('{"version": 2, "findings": []}', "is no baseline: version: Input should be 1"),
        ('{"version": 1, "findings": [{"path": "a.py"}]}', "findings.0.code: Field required"),
        ('{"version": 1, "findings": [{"path": "a", "code": "A", "text": "", "count": 0}]}', "findings.0.count"),
    ],
)
def test_a_file_that_is_no_baseline_is_one_clear_message(tmp_path, text, message):
    (tmp_path / "b.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        Baseline.read(tmp_path / "b.json")
    assert message in caught.value.message
    assert "--write-baseline" in caught.value.hint


def test_a_missing_baseline_says_how_to_write_one(tmp_path):
    with pytest.raises(UsageError, match=r"none\.json does not exist"):
        Baseline.read(tmp_path / "none.json")
    with pytest.raises(UsageError, match="cannot be written"):
        Baseline.of([], tmp_path / "none" / "b.json").write()
