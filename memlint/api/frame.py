"""The page of a Report in a cell of a notebook."""

import html

from memlint.report.model import Report

_HEIGHT = 1040
"""Pixels: the head and the timeline; the rest is scrolled to."""


def framed(record: Report) -> str:
    """Give an HTML element with the page in it, which loads nothing and may run the page's own script alone."""
    from memlint.report.page.render import render_page  # noqa: PLC0415

    page = html.escape(render_page(record), quote=True)
    return (
        f'<iframe title="memlint" sandbox="allow-scripts" srcdoc="{page}" '
        f'style="width: 100%; height: {_HEIGHT}px; border: 1px solid #8884;"></iframe>'
    )
