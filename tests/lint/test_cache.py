"""The cache of source findings: when it answers, when it does not, and what cannot break it."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from memlint.base import cache as cachedir
from memlint.base.cache import NAME, clean
from memlint.lint import runner
from memlint.lint.cache import Cache, fingerprint_of, from_json, to_json
from memlint.lint.diagnostics import DIAGNOSTICS
from memlint.lint.processes import check_paths
from memlint.lint.registry import load_rules
from memlint.lint.rule import Severity, SourceRule
from memlint.lint.runner import check_source
from memlint.source.text import Source

RULES = load_rules().rules
LEAK = """\
import torch
import torch.nn.functional as F

def fit(model, loader):
    total = 0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        loss.backward()
        total += loss
    print(total)
"""


@pytest.fixture
def checks(monkeypatch):
    """How often a file was really checked."""
    paths = []

    def counted(source, *arguments):
        paths.append(source.path)
        return check_source(source, *arguments)

    monkeypatch.setattr(runner, "check_source", counted)
    return paths


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(LEAK)
    return file


def check(file, root, rules=RULES, codes=None):
    return check_paths([file], rules, codes, cache_root=root)


def test_a_file_that_did_not_change_is_checked_once_and_its_findings_are_the_same(file, tmp_path, checks):
    first = check(file, tmp_path)
    assert [finding.code for finding in first] == ["MEM401"]
    assert first[0].correction is not None
    assert check(file, tmp_path) == first == check_paths([file], RULES)
    assert len(checks) == 2  # one of them without a cache


def test_a_file_without_findings_and_one_that_cannot_be_parsed_are_remembered(tmp_path, checks):
    (tmp_path / "a.py").write_text("import torch\n")
    (tmp_path / "b.py").write_text("import torch\ndef f(:\n")
    for _ in range(2):
        (finding,) = check(tmp_path, tmp_path)
        assert (finding.code, finding.line) == ("MEM001", 2)
    assert len(checks) == 1


def test_other_content_is_checked_anew_and_takes_the_old_ones_place(file, tmp_path, checks):
    check(file, tmp_path)
    file.write_text(LEAK.replace("+= loss", "+= loss.item()"))
    assert check(file, tmp_path) == []
    file.write_text(LEAK)
    assert [finding.code for finding in check(file, tmp_path)] == ["MEM401"]
    assert len(checks) == 3
    assert len(list((tmp_path / NAME / "source").iterdir())) == 1


def test_other_rules_other_codes_and_other_versions_are_checked_anew(file, tmp_path, checks, monkeypatch):
    check(file, tmp_path)
    check(file, tmp_path, RULES[:-1])
    check(file, tmp_path, RULES, ["MEM404"])
    monkeypatch.setattr(cachedir, "_engine", lambda: "0.0.0")
    check(file, tmp_path, RULES, ["MEM404"])
    assert len(checks) == 4


def test_a_rule_whose_module_or_whose_neighbour_changed_is_another_rule(tmp_path, monkeypatch):
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from .words import WORD\nfrom memlint.lint.rule import SourceRule\nclass Mine(SourceRule):\n    code = 'ACM001'\n"
    )
    (package / "words.py").write_text("WORD = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import acme

    before = fingerprint_of([acme.Mine()], None)
    assert fingerprint_of([acme.Mine()], None) == before
    (package / "words.py").write_text("WORD = 2\n")
    assert fingerprint_of([acme.Mine()], None) != before


def test_every_module_of_memlint_and_of_its_rules_counts(tmp_path, monkeypatch):
    counted = {file.name for place in cachedir.OURS for file in place.rglob("*.py")}
    assert {"text.py", "trees.py", "runner.py", "scopes.py", "taint.py", "suppression.py", "units.py"} <= counted
    assert {"mem401_history_accumulation.py", "torch_scatter.py"} <= counted
    (tmp_path / "deep").mkdir()
    module = tmp_path / "deep" / "module.py"
    monkeypatch.setattr(cachedir, "OURS", (tmp_path,))
    engines = set()
    for text in ("a = 1", "a = 2"):
        module.write_text(text)
        engines.add(cachedir._engine.__wrapped__())
    assert len(engines) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"warning"', '"fatal"').replace('"note"', '"fatal"'),
        lambda text: text.replace('"line": 9', '"line": "x"'),
        lambda text: json.dumps({**json.loads(text), "findings": [{}]}),
        lambda text: json.dumps({**json.loads(text), "findings": 3}),
        lambda text: "\ud800".encode("utf-8", "surrogatepass"),
    ],
)
def test_a_damaged_entry_is_none(file, tmp_path, damage, checks):
    first = check(file, tmp_path)
    (entry,) = (tmp_path / NAME / "source").iterdir()
    text = damage(entry.read_text())
    entry.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert check(file, tmp_path) == first
    assert check(file, tmp_path) == first
    assert len(checks) == 2


def test_a_project_can_be_moved_with_its_cache(tmp_path, checks):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.py").write_text(LEAK)
    check(tmp_path / "a" / "train.py", tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    (finding,) = check(tmp_path / "b" / "train.py", tmp_path / "b")
    assert finding.path == str(tmp_path / "b" / "train.py")
    assert len(checks) == 1


def test_two_files_of_one_content_are_two_entries(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(LEAK)
    for _ in range(2):
        assert [finding.path for finding in check(tmp_path, tmp_path)] == [
            str(tmp_path / "a.py"),
            str(tmp_path / "b.py"),
        ]


def test_a_directory_that_cannot_be_written_is_no_error(file, tmp_path):
    (tmp_path / NAME).write_text("no directory")
    assert [finding.code for finding in check(file, tmp_path)] == ["MEM401"]


def test_runs_at_the_same_time_do_not_disturb_each_other(tmp_path):
    for number in range(8):
        (tmp_path / f"{number}.py").write_text(LEAK.replace("total", f"total{number}"))
    expected = check_paths([tmp_path], RULES)
    with ThreadPoolExecutor(6) as pool:
        assert all(found == expected for found in pool.map(lambda _: check(tmp_path, tmp_path), range(12)))
    assert all(entry.suffix == ".json" for entry in (tmp_path / NAME / "source").iterdir())


class Failing(SourceRule):
    code, name, summary, severity, words = "ABC200", "failing", "Fails.", Severity.WARNING, ()

    def check(self, source: Source):
        yield from ()
        raise KeyError("lost")


def test_the_failure_of_a_rule_is_not_remembered(file, tmp_path, checks):
    for _ in range(2):
        assert [finding.code for finding in check(file, tmp_path, [Failing(), *DIAGNOSTICS])] == ["MEM003"]
    assert len(checks) == 2


def test_git_and_backups_leave_it_out(file, tmp_path):
    check(file, tmp_path)
    assert (tmp_path / NAME / ".gitignore").read_text() == "*\n"
    assert (tmp_path / NAME / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")


def test_clean_removes_a_cache_and_nothing_else(file, tmp_path):
    assert clean(tmp_path) is None
    check(file, tmp_path)
    assert clean(tmp_path) == tmp_path / NAME
    assert list(tmp_path.iterdir()) == [file]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "CACHEDIR.TAG").touch()
    (tmp_path / NAME).symlink_to("other")
    assert clean(tmp_path) is None
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    assert clean(tmp_path) is None


def test_findings_survive_json():
    for text in (LEAK, "import torch\nx = 1  # memlint: ignore[MEM999] é\n"):
        for finding in check_source(Source.from_text(text, "a.py"), RULES):
            assert from_json(json.loads(json.dumps(to_json(finding, "a.py"))), "a.py") == finding
            assert from_json(json.loads(json.dumps(to_json(finding, "b.py"))), "b.py") == finding


def test_a_cache_of_one_rule_knows_nothing_for_another(tmp_path, file):
    content = file.read_bytes()
    Cache(tmp_path, "one").write(str(file), content, [])
    assert Cache(tmp_path, "one").read(str(file), content) == []
    assert Cache(tmp_path, "two").read(str(file), content) is None
