"""The Report as one self-contained HTML page."""

from memlint.report.page.render import render_page

__all__ = ["render_page"]
