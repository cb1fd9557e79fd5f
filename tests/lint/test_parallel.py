"""Checking with helpers: the same findings in the same order, whatever becomes of the helpers."""

from __future__ import annotations

import psutil
import pytest

from memlint.lint import processes as helpers
from memlint.lint.processes import HELPER_NBYTES, Orders, check_paths, check_with_helpers, num_helpers
from memlint.lint.registry import load_rules
from memlint.lint.runner import Checker, concerns

RULES = load_rules().rules
LEAK = "import torch\n\ndef evaluate(model, loader):\n    model.eval()\n    for x in loader:\n        print(model(x))\n"


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Thirty files, one of them broken, and helpers that pay for themselves at once."""
    for number in range(30):
        (tmp_path / f"{number:02}.py").write_text("\n" * number + LEAK + "# é" * (number % 3))
    (tmp_path / "30.py").write_text("import torch\ndef f(:\n")
    monkeypatch.setattr(helpers, "HELPER_NBYTES", 100)
    monkeypatch.setattr(helpers, "_BATCH_NBYTES", 300)
    return tmp_path


def test_findings_are_those_of_one_process_in_the_same_order(project):
    expected = check_paths([project], RULES)
    assert [finding.line for finding in expected] == [*range(5, 35), 2]
    assert check_paths([project], RULES, jobs=3) == expected


def test_helpers_fill_the_cache_and_are_not_needed_when_it_is_full(project, monkeypatch):
    expected = check_paths([project], RULES)
    assert check_paths([project], RULES, jobs=3, cache_root=project) == expected
    assert len(list((project / ".memlint_cache" / "source").iterdir())) == 31
    monkeypatch.setattr(helpers, "_Helper", None)
    assert check_paths([project], RULES, jobs=3, cache_root=project) == expected


@pytest.mark.parametrize(
    "boot",
    [
        "raise SystemExit(3)",
        "import os; os.kill(os.getpid(), 9)",
        "print('no JSON', flush=True); input()",
        "print('[[]]', flush=True); input()",
        "import sys; sys.stdin.readline(); print('[[{}], [{}], [{}]]', flush=True)",
        "import sys; sys.stdin.readline(); sys.stdin.readline()",
    ],
)
def test_what_a_helper_leaves_undone_is_done_here(project, monkeypatch, boot):
    expected = check_paths([project], RULES)
    monkeypatch.setattr(helpers, "_BOOT", boot)
    assert check_paths([project], RULES, jobs=3) == expected


def test_a_helper_does_work(project):
    """With a check of its own that only waits for the others, everything comes from the helper."""
    files = [(str(file), 1000) for file in sorted(project.glob("*.py"))]
    orders = Orders(tuple(rule.code for rule in RULES), (), None, None)
    done_here = []

    def wait(path):
        import time

        time.sleep(0.5)
        done_here.append(path)
        return Checker(RULES).read(path)

    found = check_with_helpers(files, wait, orders, 1)
    assert [len(each) for each in found] == [1] * 31
    assert len(done_here) < 31


def test_what_a_rule_prints_does_not_get_into_the_answers(project, tmp_path):
    rules = tmp_path / "rules"
    rules.mkdir()
    headings = "\n\n".join(f"    ## {heading}" for heading in __import__("memlint.lint.rule").lint.rule.HEADINGS)
    (rules / "noisy.py").write_text(
        "from memlint.lint.rule import Severity, SourceRule\nfrom memlint.lint.rule import Severity, SourceRule\n"
        "from memlint.source.text import Source\n\nprint('loading')\n\n"
        f'class Noisy(SourceRule):\n    """Noise.\n\n{headings}\n    """\n\n'
        "    code, name, summary, severity = 'ABC100', 'noisy', 'Noise.', Severity.WARNING\n\n"
        "    def check(self, source: Source):\n        print('checking')\n"
        "        yield self.finding(source, source.tree.body[0], 'm', 'f')\n"
    )
    registry = load_rules(paths=[rules])
    assert registry.problems == ()
    expected = check_paths([project], [registry["ABC100"]])
    assert len(expected) == 30
    assert check_paths([project], [registry["ABC100"]], jobs=2, rule_paths=[rules]) == expected


def test_a_rule_that_a_helper_does_not_know_is_run_here(project):
    class Own(type(load_rules()["MEM404"])):
        code = "ABC100"

    found = check_paths([project], [Own()], jobs=2)
    assert {finding.code for finding in found} == {"ABC100"}
    assert len(found) == 30


def test_helpers_are_started_only_where_they_pay():
    assert num_helpers([], 8) == 0
    assert num_helpers([HELPER_NBYTES - 1], 8) == 0
    assert num_helpers([HELPER_NBYTES, HELPER_NBYTES], 8) == 2
    assert num_helpers([HELPER_NBYTES] * 50, 2) == 1
    assert num_helpers([HELPER_NBYTES] * 50, 1) == 0


def test_no_process_is_left(project):
    assert len(check_paths([project], RULES, jobs=3)) == 31
    ours = [child for child in psutil.Process().children() if "memlint.lint.processes" in " ".join(child.cmdline())]
    assert ours == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("import torch as t", True),
        ("import pytorch_lightning as pl", True),
        ("from transformers import Trainer", True),
        ("import torchvision", True),
        ("x = 1  # memlint: ignore[MEM101] why", True),
        ("x = 1  # NOQA: MEM101", True),
        ("import numpy as np\n\ndef evaluate(model): ...", False),
        ("", False),
    ],
)
def test_files_that_have_nothing_to_do_with_pytorch_are_left_alone(text, wanted):
    assert concerns(text.encode(), RULES) is wanted


def test_a_rule_may_ask_for_every_file():
    class Curious(type(load_rules()["MEM404"])):
        words = ()

    assert concerns(b"", [Curious()])
    assert not concerns(b"", [load_rules()["MEM404"]])
