"""The status line holds in one line of the terminal, whatever the environment says of its width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from memlint.cli.printing import cut_to_columns

SHOW = """
from memlint.cli.printing import Status
from memlint.commands.parts import Phase
status = Status("analysing")
status.part(Phase("rule MEM101"))
for second in range(2, 5):
    status("a/folder/with/a/long/name/" * 6 + "model.py::Model", float(second))
"""
CONTROL = re.compile(r"\033\[[0-9;?]*[A-Za-z]")


def written_on_terminal(code: str, columns: int, **environment: str) -> str:
    """All that a Python writes to a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment
    subprocess.run(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=variables, check=True, timeout=60
    )
    os.close(theirs)
    content = b""
    while True:
        try:
            part = os.read(ours, 2**16)
        except OSError:  # Linux says so where the other end is closed
            part = b""
        if not part:
            os.close(ours)
            return content.decode()
        content += part


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("environment", [{}, {"COLUMNS": "140"}], ids=["its own width", "COLUMNS of a wider terminal"])
def test_the_status_line_is_never_longer_than_the_terminal_is_wide(environment):
    text = written_on_terminal(SHOW, 80, **environment)
    lines = [CONTROL.sub("", each) for each in text.split("\r")]
    assert "\n" not in text, "a second line could not be wiped away"
    assert max(map(len, lines)) == 79
    assert lines[-1].startswith("analysing a/folder/with")
    assert lines[-1].endswith("...: rule MEM101 (4 s)")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (40, "analysing model.py: rule MEM101 (3 s)"),
        (30, "analysin...: rule MEM101 (3 s)"),
        (22, ": rule MEM101 (3 s)"),
        (5, ": rul"),
        (0, ""),
    ],
)
def test_what_is_being_done_is_cut_last(columns, shown):
    assert cut_to_columns("analysing model.py", ": rule MEM101 (3 s)", columns) == shown


def test_characters_of_east_asia_take_two_columns():
    assert cut_to_columns("分析 模型.py", " (3 s)", 16) == "分析 模... (3 s)"
