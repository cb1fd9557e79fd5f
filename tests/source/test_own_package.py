"""A project's own package is found by the name that the project declares."""

import pytest

from memlint.source.own_package import folder_of_own_package


@pytest.mark.parametrize(
    ("file", "text", "place", "found"),
    [
        ("setup.py", "setup(\n    name='diffusers',\n    package_dir={'': 'src'})\n", "src/diffusers", "src"),
        ("pyproject.toml", '[project]\nname = "my-net"\n', "my_net", ""),
        ("setup.cfg", "[metadata]\nname = net\n", "net", ""),
        ("pyproject.toml", '[project]\nname = "net"\n', "other", None),
        ("README.md", "name = net\n", "net", None),
    ],
)
def test_the_folder_is_that_of_the_declared_package(tmp_path, file, text, place, found):
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "__init__.py").touch()
    (tmp_path / file).write_text(text)
    assert folder_of_own_package(tmp_path) == (None if found is None else tmp_path / found)
