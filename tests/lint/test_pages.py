"""Pages of rules."""

import pytest

from memlint.base.errors import UsageError
from memlint.lint import pages
from memlint.lint.pages import DIRECTORY, built_in_pages
from memlint.lint.pages import page as page_of
from memlint.lint.registry import CODE, load_rules
from memlint.lint.rule import HEADINGS


def test_the_pages_in_docs_are_those_of_the_rules():
    pages = built_in_pages()
    written = {
        file.name: file.read_text(encoding="utf-8")
        for file in DIRECTORY.glob("*.md")
        if file.name in pages or CODE.fullmatch(file.stem)
    }
    assert written == pages, "run: python -m memlint.lint.pages"


def test_without_the_rules_no_page_is_written_or_removed(monkeypatch, tmp_path):
    monkeypatch.setattr(pages, "entry_points", lambda **_: [])
    monkeypatch.setattr(pages, "DIRECTORY", tmp_path)
    (tmp_path / "MEM101.md").write_text("a page")
    with pytest.raises(UsageError, match="not installed"):
        pages.main()
    assert (tmp_path / "MEM101.md").read_text() == "a page"


def test_a_page_has_every_heading_in_order_and_the_cases():
    page = page_of(load_rules()["mem404"])
    positions = [page.index(f"\n## {heading}\n") for heading in HEADINGS]
    assert positions == sorted(positions)
    assert "for images, labels in loader:" in page.partition("## Use instead")[0]
    assert "@torch.inference_mode()" in page.partition("## Use instead")[2]


def test_the_page_of_an_unknown_rule_is_an_error():
    with pytest.raises(UsageError, match="MEM440"):
        load_rules()["MEM440"]
