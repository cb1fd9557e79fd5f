"""Pages of the documentation show the output that commands give."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.examples import LEFT_OUT, ROOT, difference, examples, place, printed, renewed

pytest.importorskip("torch")

ELSEWHERE = {
    "configuration.md": "tests/integration/test_configuration_docs.py",
    "writing-rules.md": "tests/integration/test_configuration_docs.py",
    "output-formats.md": "tests/report/formats/test_command.py",
    "workloads.md": "tests/workloads/test_dimensions.py",
    "pre-commit.md": "tests/integration/test_pre_commit.py",
}
"""Pages whose examples tests of these files run."""
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RUN_HERE = [page for page in PAGES if "```console" in page.read_text(encoding="utf-8") and page.name not in ELSEWHERE]
FAST = "README.md"


@pytest.mark.usefixtures("copied_pythons")
@pytest.mark.skipif(not version("torch").startswith("2.13."), reason="the pages show what torch 2.13 takes")
@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.name, marks=[] if p.name == FAST else pytest.mark.slow) for p in RUN_HERE]
)
def test_what_a_page_shows_is_what_its_commands_print(page: Path) -> None:
    advice = f"python -m tests.integration.examples {page.relative_to(ROOT)} renews the page"
    with place(page) as directory:
        for example in examples(page):
            if "memlint run " in example.command and find_spec("accelerate") is None:
                continue  # Hugging Face's Trainer needs it
            wrong = difference(example.shown, printed(example.command, directory))
            assert not wrong, f"$ {example.command}: {wrong}\n{advice}"


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_pages_with_tests_of_their_own_are_named_there(page: str, test: str) -> None:
    assert (ROOT / "docs" / page).exists()
    assert page in (ROOT / test).read_text(encoding="utf-8")


LINES = ["first", "a 1", "b 2", "c 3", "last"]


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        (LINES, ""),
        (["first", LEFT_OUT, "c 3", "last"], ""),
        ([LEFT_OUT, "b 2", LEFT_OUT], ""),
        (["first", "a 1", "b 2"], "the end is missing: ['c 3', 'last']"),
        (["first", LEFT_OUT, "c 3"], "these lines are not printed so:\nc 3"),
        ([LEFT_OUT, "c 3", LEFT_OUT, "b 2", LEFT_OUT], "these lines are not printed so:\nb 2"),
        (["a 1", LEFT_OUT], "these lines are not printed so:\na 1"),
    ],
)
def test_lines_are_held_in_their_order_and_to_the_end(shown: list[str], wrong: str) -> None:
    assert difference(shown, LINES) == wrong


@pytest.mark.parametrize(
    ("shown", "today"),
    [
        (["first", "a 7"], LINES),
        (["fist", LEFT_OUT, "c 9", LEFT_OUT], ["first", LEFT_OUT, "c 3", LEFT_OUT]),
        ([LEFT_OUT, "b 9", LEFT_OUT, "lost"], [LEFT_OUT, "b 2", LEFT_OUT, "last"]),
    ],
)
def test_renewing_keeps_what_is_left_out(shown: list[str], today: list[str]) -> None:
    assert renewed(shown, LINES) == today
