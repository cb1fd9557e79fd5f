"""Hooks of mkdocs: pages outside docs/, links that leave docs/, and the rules in the navigation.

Links in the documentation are written for GitHub, relative to the file that contains them. Where a link leads out of
docs/, the site links to the file in the repository, or to the page made of that file. Markdown that GitHub renders and
mkdocs does not, such as a nested list with an indentation of two, is a warning.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES_OF_THE_ROOT = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository's root that are pages of the site."""
HUNDREDS = {
    "0": "memlint itself",
    "1": "Activations and lifetimes",
    "2": "Parameters, gradients, optimizer",
    "3": "Dtype, layout, sparsity",
    "4": "Training loop",
    "5": "Data loading, host memory",
    "6": "Allocator, runtime, distributed",
}
"""Titles of the hundreds of rule codes."""
RULES = "rules/README.md"
_FENCE_OR_LINK = re.compile(r"^(?P<fence> *`{3,}).*?^(?P=fence)$|\]\((?P<target>[^)#\s]+)", re.DOTALL | re.MULTILINE)
_CODE_OR_COMMENT = re.compile(r"<(pre|code)\b.*?</\1>|<!--.*?-->", re.DOTALL)
_MARKDOWN = re.compile(r"^\s*(?:(?:<p>)?(?:- |\d+\. |\||#+ ).*)|.*(?:```|\*\*|\]\().*", re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.memlint")  # --strict counts warnings of loggers below "mkdocs"


def on_config(config: MkDocsConfig) -> None:
    """List the rules by hundreds below the entry of their index."""
    assert config.nav is not None
    for entry in config.nav:
        if RULES in entry.get("Rules", []):
            entry["Rules"] += rules_by_hundred()


def rules_by_hundred() -> list[dict[str, list[dict[str, str]]]]:
    """Entries of the navigation: `[{"MEM1 Activations and lifetimes": [{"MEM101 ...": "rules/MEM101.md"}]}, ...]`."""
    sections: dict[str, list[dict[str, str]]] = {}
    for page in sorted((ROOT / "docs" / "rules").glob("MEM*.md")):
        hundred = page.stem[3]
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ").replace(":", "", 1)
        sections.setdefault(f"MEM{hundred} {HUNDREDS[hundred]}", []).append({title: f"rules/{page.name}"})
    return [{title: pages} for title, pages in sections.items()]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made of files in the repository's root."""
    for source, page in PAGES_OF_THE_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Rewrite the links of a page for the site. A link to a missing file is a warning, an error with `--strict`."""
    assert config.repo_url is not None
    return rewritten(markdown, page.file.src_uri, config.repo_url.rstrip("/"))


def on_page_content(html: str, page: Page, **_: Any) -> None:
    """Warn of Markdown that was not rendered, which `--strict` makes an error."""
    for text in unrendered(html):
        _log.warning("%s: this Markdown is not rendered: %s", page.file.src_uri, text)


def unrendered(html: str) -> list[str]:
    """Lines of `html` that look like Markdown, outside of code: lists, tables, headings, fences, links, bold text."""
    return [match[0].strip() for match in _MARKDOWN.finditer(_CODE_OR_COMMENT.sub("", html))]


def rewritten(markdown: str, page: str, repository: str) -> str:
    """Rewrite the links of `markdown`, which is `page` of the site, for the site; code blocks stay as they are."""
    sources = {target: source for source, target in PAGES_OF_THE_ROOT.items()}
    source = Path(sources.get(page, f"docs/{page}"))

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if match["fence"] or re.match(r"[a-z]+:", target):
            return match[0]
        path = os.path.normpath(source.parent / target).replace(os.sep, "/")
        if not (ROOT / path).exists():
            _log.warning("%s links to %s, which is not there", source, path)
        if path in PAGES_OF_THE_ROOT or path.startswith("docs/"):
            path = PAGES_OF_THE_ROOT.get(path) or path.removeprefix("docs/")
            return f"]({os.path.relpath(path, Path(page).parent).replace(os.sep, '/')}"
        return f"]({repository}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"

    return _FENCE_OR_LINK.sub(link, markdown)
