"""Which files `per-file-ignores` means, and what is said of codes that no rule has."""

import pytest

from memlint.base.errors import UsageError
from memlint.lint.registry import load_rules
from memlint.lint.selection import FileIgnores, select_rules

RULES = load_rules().rules


def ignored(pattern, path, root, codes=("MEM4",), code="MEM404"):
    return FileIgnores.of({pattern: codes}, root, RULES).ignores(code, root / path)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("train.py", "train.py", True),
        ("train.py", "src/train.py", True),
        ("train.py", "src/pretrain.py", False),
        ("tests/*", "tests/test_a.py", True),
        ("tests/*", "tests/deep/test_a.py", True),
        ("tests/**", "tests/deep/test_a.py", True),
        ("tests/*", "src/tests/test_a.py", False),
        ("**/tests/*", "src/tests/test_a.py", True),
        ("**/tests/*", "tests/test_a.py", True),
        ("./tests/*", "tests/test_a.py", True),
        ("test_*.py", "src/test_a.py", True),
        ("test_[ab].py", "test_c.py", False),
        ("!src/*", "tests/a.py", True),
        ("!src/*", "src/a.py", False),
    ],
)
def test_patterns_match_names_and_paths_below_the_project(tmp_path, pattern, path, expected):
    assert ignored(pattern, path, tmp_path) == expected


def test_codes_are_beginnings_and_all(tmp_path):
    assert ignored("a.py", "a.py", tmp_path, codes=["ALL"], code="MEM002")
    assert ignored("a.py", "a.py", tmp_path, codes=["mem404"])
    assert not ignored("a.py", "a.py", tmp_path, codes=["MEM402"])


def test_a_file_outside_of_the_project_is_matched_by_its_name_only(tmp_path):
    root = tmp_path / "project"
    assert FileIgnores.of({"a.py": ["MEM4"]}, root, RULES).ignores("MEM404", tmp_path / "a.py")
    assert not FileIgnores.of({"lib/*": ["MEM4"]}, root, RULES).ignores("MEM404", tmp_path / "lib" / "a.py")


def test_an_unknown_code_names_the_pattern(tmp_path):
    with pytest.raises(UsageError, match=r'per-file-ignores, "a\.py": there is no rule') as caught:
        FileIgnores.of({"a.py": ["MEM440"]}, tmp_path, RULES)
    assert "MEM404" in caught.value.hint


def test_an_unknown_beginning_shows_those_there_are():
    with pytest.raises(UsageError) as caught:
        select_rules(RULES, extend_select=["MEM9"])
    assert caught.value.message == "extend-select: there is no rule 'MEM9'"
    assert "Codes begin with MEM0, MEM1," in caught.value.hint


def test_extend_select_adds_and_a_longer_ignore_takes_away():
    chosen = select_rules(RULES, ["MEM601"], ["MEM0", "MEM402"], ["MEM40"])
    codes = {rule.code for rule in chosen}
    assert {"MEM601", "MEM401", "MEM404"} <= codes
    assert not {"MEM402", "MEM002", "MEM101"} & codes


def test_where_rules_may_be_missing_only_codes_of_memlint_itself_can_be_wrong():
    assert select_rules(RULES, ["XYZ"], complete=False) == select_rules(RULES, [])
    with pytest.raises(UsageError):
        select_rules(RULES, ["MEM9"], complete=False)
    with pytest.raises(UsageError):
        select_rules(RULES, [" "], complete=False)
