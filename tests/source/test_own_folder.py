"""The folder of a shell script, in the ways in which scripts ask for it."""

from pathlib import Path

import pytest

from memlint.source.own_folder import with_own_folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(dirname $0)/x", "/a/b/c/x"),
        ('"$(dirname "$0")/train.py"', '"/a/b/c/train.py"'),
        ("`dirname $0`", "/a/b/c"),
        ('$(dirname "$(realpath "$0")")', "/a/b/c"),
        ('$(cd "$(dirname "${BASH_SOURCE[0]}")" &>/dev/null && pwd)', "/a/b/c"),
        ('$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )', "/a/b/c"),
        ('$(cd "$(dirname "$0")/.." ; pwd -P)', "/a/b"),
        ('$(dirname "$(dirname "$0")")', "/a/b"),
        ('$(dirname "${checkpoint}")', '$(dirname "${checkpoint}")'),
    ],
)
def test_a_script_asks_for_its_folder(text: str, expected: str) -> None:
    assert with_own_folder(text, Path("/a/b/c/run.sh")) == expected
