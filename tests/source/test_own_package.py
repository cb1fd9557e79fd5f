"""A project's own package is found by the name that the project declares."""

import pytest

from memlint.source.own_package import folder_of_own_package


@pytest.mark.parametrize(
    ("file", "text", "place", "found"),
    [
        ("setup.py", "setup(\n    name='networkx',\n    package_dir={'': 'src'})\n", "src/networkx", "src"),
        ("pyproject.toml", '[project]\nname = "typing-extensions"\n', "typing_extensions", ""),
        ("setup.cfg", "[metadata]\nname = click\n", "click", ""),
        ("pyproject.toml", '[project]\nname = "click"\n', "other", None),
        ("pyproject.toml", '[project]\nname = "of-nobody-else"\n', "of_nobody_else", None),
        ("README.md", "name = click\n", "click", None),
    ],
)
def test_the_folder_is_that_of_the_declared_package(tmp_path, file, text, place, found):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "__init__.py").touch()
    (tmp_path / file).write_text(text)
    assert folder_of_own_package(tmp_path) == (None if found is None else tmp_path / found)
