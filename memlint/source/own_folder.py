"""The folder of a shell script, as the script itself says it: `$(dirname $0)`, `$(cd "$(dirname "$0")/.." && pwd)`."""

import os
import re
from pathlib import Path

_FILE = r"\"?\$\{?(?:0|BASH_SOURCE(?:\[0\])?)\}?\"?"
_RESOLVED = rf"(?:\"?\$\(\s*(?:realpath|readlink)\s+(?:-\w+\s+)?{_FILE}\s*\)\"?|{_FILE})"
_DIRNAME = rf"(?:\$\(\s*dirname\s+(?:--\s+)?{_RESOLVED}\s*\)|`\s*dirname\s+{_FILE}\s*`)"
_NO_OUTPUT = r"(?:\s*&?\d?>\s*/dev/null)*(?:\s*2>&1)?"
_ENTERED = (
    rf"\$\(\s*cd\s+(?:--\s+)?\"?{_DIRNAME}\"?(?P<below>(?:/[\w.-]+)*)/?\"?{_NO_OUTPUT}\s*(?:&&|;)\s*pwd(?:\s+-P)?\s*\)"
)
_ABOVE = rf"\$\(\s*dirname\s+\"?{_DIRNAME}\"?\s*\)"
_FOLDER = re.compile(rf"{_ENTERED}|(?P<above>{_ABOVE})|{_DIRNAME}")


def with_own_folder(text: str, script: Path) -> str:
    """Return the text of the shell script at `script` with its folder, absolute, where the text asks for it."""

    def folder(match: re.Match[str]) -> str:
        place = script.parent.parent if match["above"] else script.parent
        return os.path.normpath(f"{place}{match['below'] or ''}")

    return _FOLDER.sub(folder, text) if "dirname" in text else text
