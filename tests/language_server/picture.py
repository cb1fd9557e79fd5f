"""The picture of an editor in the documentation, drawn from what the language server answers.

`python -m tests.language_server.picture docs/pictures/editor.png` renews it; it needs Chromium.
"""

from __future__ import annotations

import asyncio
import html
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from lsprotocol import types

from tests.language_server.client import Editor

ROOT = Path(__file__).parents[2]
EVALUATION = """

def evaluate(model, loader):
    model.eval()
    for tokens in loader:
        print(model(tokens).mean().item())
"""
_LENS, _HINT, _HOVER = "#6a737d", "#57606a", "#f6f8fa"
_STYLE = (
    "body{margin:0;background:white;font:13px/20px 'DejaVu Sans Mono',monospace;color:#24292f;width:1180px;overflow:hidden}"
    ".line{white-space:pre;padding-left:56px;position:relative;overflow:hidden;text-overflow:ellipsis}"
    ".number{position:absolute;left:0;width:40px;text-align:right;color:#8c959f}"
    f".lens{{color:{_LENS};font-size:11px;padding-left:56px;white-space:pre}}"
    f".hint{{color:{_HINT};background:#eaeef2;border-radius:3px;padding:0 4px;margin-left:8px;font-size:12px}}"
    ".found{text-decoration:underline wavy #bf8700}"
    f".hover{{margin:2px 56px 6px;padding:6px 10px;background:{_HOVER};border:1px solid #d0d7de;width:900px;"
    "font:12px/18px 'DejaVu Sans',sans-serif}.hover table{font-size:12px}.hover td,.hover th{padding:0 12px 0 0;text-align:left}"
)


async def drawn(name: str, text: str, ranges: list[range], hovered: str, **options: object) -> str:
    """Give the HTML of the lines in `ranges`, from 1, with the hover of the line that has `hovered` in it."""
    with tempfile.TemporaryDirectory() as folder:
        editor = Editor(Path(folder))
        await editor.start(**options)
        try:
            editor.open(name, text)
            editor.save(name)
            await editor.traced(1)
            lenses, hints = dict(await editor.lenses(name)), dict(await editor.hints(name))
            found = editor.diagnostics(name) or []
            lines = text.splitlines()
            line = next(number for number, each in enumerate(lines) if hovered in each)
            details = await editor.hover(name, line)
        finally:
            await editor.stop()
    warned = {each.range.start.line: each for each in found if each.severity == types.DiagnosticSeverity.Warning}
    parts = [f"<html><head><meta charset='utf-8'><style>{_STYLE}</style></head><body>"]
    for number in (each - 1 for part in ranges for each in part):
        if number not in warned and any(number + 1 == part[0] for part in ranges[1:]):
            parts.append("<div class='lens'> ...</div>")
        content = html.escape(lines[number])
        if number in lenses:
            parts.append(f"<div class='lens'>{html.escape(lenses[number])}</div>")
        if number in warned:
            indent = len(lines[number]) - len(lines[number].lstrip())
            content = f"{content[:indent]}<span class='found'>{content[indent:]}</span>"
        if number in hints:
            content += f"<span class='hint'>{html.escape(hints[number])}</span>"
        if number in warned:
            content += f"<span class='hint'>{html.escape(_cut(warned[number].message))}</span>"
        parts.append(f"<div class='line'><span class='number'>{number + 1}</span>{content or ' '}</div>")
        if number == line:
            parts.append(f"<div class='hover'>{_table(details)}</div>")
    return "\n".join([*parts, "</body></html>"])


def _cut(message: str, most: int = 60) -> str:
    """Give the first line of a message, as much of it as an editor has room for."""
    line = message.partition("\n")[0]
    return line if len(line) <= most else f"{line[:most]}..."


def _table(markdown: str) -> str:
    """Give the Markdown of a hover as HTML: bold words, code and one table."""
    rows, head = [], []
    for line in markdown.splitlines():
        if line.startswith("|---") or not line.strip():
            continue
        if line.startswith("|"):
            cells = [html.escape(cell.strip().replace("`", "")) for cell in line.strip("|").split("|")]
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
        else:
            head.append(html.escape(line).replace("**", ""))
    return f"{'<br>'.join(head)}<table>{''.join(rows)}</table>"


def main(target: str) -> None:
    """Draw it with Chromium, which is called `chromium` or as CHROMIUM says."""
    text = (ROOT / "fixtures" / "models" / "gpt2.py").read_text(encoding="utf-8") + EVALUATION
    shown = [range(34, 54), range(69, 73), range(92, 108)]
    page = asyncio.run(drawn("gpt2.py", text, shown, "self.down(self.activation", batch=8, gpu="a100-80gb"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "editor.html")
        file.write_text(page, encoding="utf-8")
        shot = [shutil.which("chromium") or "chromium", "--headless", "--no-sandbox", "--disable-gpu"]
        height = 20 * page.count("<div class='line'>") + 180
        options = [f"--window-size=1180,{height}", f"--screenshot={Path(target).absolute()}", file.as_uri()]
        subprocess.run([*shot, *options], check=True, capture_output=True)


if __name__ == "__main__":
    main(sys.argv[1])
