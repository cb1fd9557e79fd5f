"""Modules are patched when the program imports them."""

import importlib
import importlib.util
import inspect
import sys

import pytest

from memlint.base.after_import import after_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Write a module of the name asked for; it is forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(name, text):
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        names.append(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)


def answer_with(value):
    return lambda module: setattr(module, "answer", lambda: value)


def test_a_module_is_patched_once_it_is_imported(module):
    module("patched_late", "def answer():\n    return 1\n")
    after_import("patched_late", answer_with(2))
    assert "patched_late" not in sys.modules
    assert importlib.import_module("patched_late").answer() == 2


def test_a_module_that_is_there_is_patched_at_once(module):
    module("patched_now", "def answer():\n    return 1\n")
    imported = importlib.import_module("patched_now")
    after_import("patched_now", answer_with(2))
    assert imported.answer() == 2


def test_several_patches_follow_each_other(module):
    module("patched_twice", "def answer():\n    return 1\n")
    seen = []
    after_import("patched_twice", answer_with(2))
    after_import("patched_twice", lambda patched: seen.append(patched.answer()))
    importlib.import_module("patched_twice")
    assert seen == [2]


def test_names_taken_from_the_module_are_the_patched_ones(module):
    module("patched_source", "def answer():\n    return 1\n")
    module("patched_reader", "from patched_source import answer\n")
    after_import("patched_source", answer_with(2))
    assert importlib.import_module("patched_reader").answer() == 2


def test_a_module_of_a_package_is_patched_without_importing_the_package_before(module):
    module("patched_package.__init__", "")
    module("patched_package.inner", "def answer():\n    return 1\n")
    after_import("patched_package.inner", answer_with(2))
    assert "patched_package" not in sys.modules
    assert importlib.import_module("patched_package.inner").answer() == 2
    del sys.modules["patched_package"]


def test_the_module_knows_its_own_loader_and_source(module):
    module("patched_source_text", "def answer():\n    return 1\n")
    after_import("patched_source_text", lambda _module: None)
    imported = importlib.import_module("patched_source_text")
    assert type(imported.__loader__).__module__.startswith(("importlib", "_frozen"))
    assert imported.__spec__.loader is imported.__loader__
    assert "return 1" in inspect.getsource(imported)


def test_a_module_that_puts_another_object_in_its_place_is_patched_there(module):
    module(
        "patched_object",
        "import sys, types\nsys.modules[__name__] = types.SimpleNamespace(answer=lambda: 1, __spec__=__spec__)\n",
    )
    after_import("patched_object", answer_with(2))
    assert importlib.import_module("patched_object").answer() == 2


def test_a_module_whose_import_fails_once_is_patched_when_it_succeeds(module):
    module("patched_again", "raise ImportError('not yet')\n")
    after_import("patched_again", answer_with(2))
    with pytest.raises(ImportError, match="not yet"):
        importlib.import_module("patched_again")
    module("patched_again", "def answer():\n    return 'a longer text than before'\n")
    assert importlib.import_module("patched_again").answer() == 2


def test_a_module_that_is_not_there_stays_missing_until_it_is(module):
    after_import("patched_missing", answer_with(2))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("patched_missing")
    module("patched_missing", "def answer():\n    return 1\n")
    assert importlib.import_module("patched_missing").answer() == 2


def test_who_asks_whether_a_module_is_there_takes_no_patch(module):
    module("patched_asked", "def answer():\n    return 1\n")
    after_import("patched_asked", answer_with(2))
    assert importlib.util.find_spec("patched_asked") is not None
    assert importlib.import_module("patched_asked").answer() == 2


def test_a_patch_for_names_that_this_version_has_not_warns_and_the_import_goes_on(module):
    module("patched_old", "def answer():\n    return 1\n")
    after_import("patched_old", lambda found: found.create_reader)
    with pytest.warns(UserWarning, match="does not know this version of patched_old: .*create_reader"):
        assert importlib.import_module("patched_old").answer() == 1
