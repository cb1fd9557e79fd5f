"""The documentation site: links are rewritten for it, and rules are listed by their code."""

from __future__ import annotations

import logging
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

pytest.importorskip("mkdocs")

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://forge.example/memlint"


@pytest.fixture(scope="module")
def site():
    spec = spec_from_file_location("site_hooks", ROOT / "docs" / "site.py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("index.md", "docs/run.md", "run.md"),
        ("index.md", "docs/configuration.md#settings", "configuration.md#settings"),
        ("index.md", "docs/pictures/graph-mlp.png", "pictures/graph-mlp.png"),
        ("index.md", "LICENSE", f"{REPOSITORY}/blob/main/LICENSE"),
        ("index.md", "tests/oracles", f"{REPOSITORY}/tree/main/tests/oracles"),
        ("index.md", "CONTRIBUTING.md", "contributing.md"),
        ("run.md", "distributed.md", "distributed.md"),
        ("run.md", "#models", "#models"),
        ("run.md", "https://pytorch.org/docs/", "https://pytorch.org/docs/"),
        ("run.md", "../README.md#rules", "index.md#rules"),
        ("rules/MEM101.md", "../../CHANGELOG.md", "../changelog.md"),
        ("rules/MEM101.md", "../writing-rules.md", "../writing-rules.md"),
        ("performance.md", "../benchmarks/README.md", f"{REPOSITORY}/blob/main/benchmarks/README.md"),
    ],
)
def test_a_link_leads_to_the_page_or_to_the_repository(site, page, link, expected, caplog):
    assert site.rewritten(f"[text]({link})", page, REPOSITORY) == f"[text]({expected})"
    assert not caplog.records


def test_code_is_left_as_it_is(site):
    text = "```python\nlosses[0](../README.md)\n```\n[text](../README.md)\n"
    assert site.rewritten(text, "run.md", REPOSITORY) == text[: -len("../README.md)\n")] + "index.md)\n"


def test_a_link_to_a_file_that_is_not_there_is_a_warning_that_strict_counts(site, caplog):
    site.rewritten("[text](../fixtures/nothing.md)", "run.md", REPOSITORY)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.name.startswith("mkdocs.")
    assert record.getMessage() == "docs/run.md links to fixtures/nothing.md, which is not there"


RENDERED = "<ul>\n<li><strong>one</strong> <code>**kwargs</code></li>\n</ul>\n<pre>- not a list\n| no table |</pre>\n"


@pytest.mark.parametrize(
    "line", ["- a nested list", "2. a list", "| a | table |", "```python", "[a](b.md)", "<p>## One", "**x**"]
)
def test_markdown_that_is_not_rendered_is_found(site, line):
    assert site.unrendered(RENDERED) == []
    assert site.unrendered(f"{RENDERED}{line}\n{RENDERED}") == [line]


def test_every_rule_is_in_the_navigation_once_below_its_hundred(site):
    sections = [section for each in site.rules_by_hundred() for section in each.items()]
    pages = {page for _, entries in sections for entry in entries for page in entry.values()}
    assert pages == {f"rules/{page.name}" for page in (ROOT / "docs" / "rules").glob("MEM*.md")}
    for title, entries in sections:
        assert all(name.startswith(title[:4]) for entry in entries for name in entry), title


def test_a_hundred_without_a_title_is_an_error(site, monkeypatch):
    monkeypatch.delitem(site.HUNDREDS, "6")
    with pytest.raises(KeyError):
        site.rules_by_hundred()
