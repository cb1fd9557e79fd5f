"""Files are imported with the search path that they expect."""

import sys

import pytest

from memlint.workloads.loading import load_file


@pytest.fixture(autouse=True)
def import_state(monkeypatch):
    """Let modules and the search path be as before, after each test."""
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in sys.modules.keys() - modules:
        del sys.modules[name]


@pytest.mark.parametrize("importing", ["from .parts import Block", "from net.parts import Block"])
def test_a_file_with_the_name_of_its_package_without_init_does_not_hide_it(tmp_path, importing):
    (tmp_path / "models/net").mkdir(parents=True)
    (tmp_path / "models/net/net.py").write_text(f"{importing}\n\nclass Net(Block):\n    pass\n")
    (tmp_path / "models/net/parts.py").write_text("class Block:\n    width = 8\n")
    assert load_file(tmp_path / "models/net/net.py", tmp_path).Net.width == 8
