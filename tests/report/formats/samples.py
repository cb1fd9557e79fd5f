"""Reports and rules for the tests of formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlint.lint.rule import Severity, SourceRule
from memlint.report.model import Report
from tests.report.sample import REPORT

if TYPE_CHECKING:
    from memlint.source.text import Source

HOSTILE = (
    "a\nb\r\n::error file=x::y ##[error]z <script>alert(1)</script> </code></td></table> @someone #1 [x](http://x) "
    "](http://x) http://evil.example www.evil.example me@evil.example `x` ``` a|b \\| \0 \x1b[31m \u202e \u2028 ]]> "
    "--> &lt; %0A :,{0} **b** \ud7ff\ufffe"
)
_VOCABULARY = {
    *("mode", "phase", "phases", "outcome", "measure", "level", "category", "effect", "evidence", "kind", "severity"),
    *("confidence", "version", "tool"),
}


class Sample(SourceRule):
    """A rule that the tests explain.

    ## What it does

    Looks for weights that are kept.

    ## References

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
    - https://example.com
    """

    code = "MEM107"
    name = "sample"
    summary = "Weights are kept."
    severity = Severity.WARNING

    def check(self, source: Source) -> Any:
        yield from ()


def hostile(text: str = HOSTILE, report: Report = REPORT) -> Report:
    """A Report with `text` in the place of every string that a file, a model or a message can hold."""
    return Report.model_validate(_with(report.model_dump(), text))


def _with(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {
            key: item if key in _VOCABULARY and isinstance(item, str | list) else _with(item, text)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with(item, text) for item in value]
    return text if isinstance(value, str) else value
