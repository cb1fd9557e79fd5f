"""The page of benchmark results leaves out no benchmark and hides no miss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.claims import verdict
from benchmarks.performance import NAMED, RUN, Outcome, page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
COMMANDS = set(re.findall(r"python (benchmarks/\w+\.py)", (ROOT / "benchmarks" / "README.md").read_text()))


def test_every_command_in_the_readme_is_run_or_named() -> None:
    outcomes = [Outcome(benchmark, benchmark.command) for benchmark in RUN]
    text = page([], outcomes)
    assert {command for command in COMMANDS if command not in text} == set()
    assert {f"benchmarks/{each.name}.py" for each in (*RUN, *NAMED)} <= COMMANDS


def test_the_page_kept_names_every_command() -> None:
    if not PAGE.exists():
        pytest.skip("docs/performance.md is written by a run of all benchmarks")
    text = PAGE.read_text()
    assert {command for command in COMMANDS if command not in text} == set()


def test_a_claim_that_was_missed_is_the_first_to_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    verdict("It is fast", "a second", held=True)
    verdict("It is small", "a lot", held=False)
    outcome = Outcome(RUN[0], RUN[0].command, f"| a table |\n{capsys.readouterr().out}")
    claims, table = page([], [outcome]).split("## Claims")[1].split("## Tracing")
    assert claims.split("\n- ")[1:] == [
        "**missed**: It is small; measured: a lot",
        "held: It is fast; measured: a second\n\n",
    ]
    assert "| a table |" in table
    assert "measured" not in table


def test_what_failed_is_said() -> None:
    outcome = Outcome(RUN[0], RUN[0].command, "half a table", "Failed with exit status 1.")
    assert "Failed with exit status 1.\n\nhalf a table" in page([], [outcome])
