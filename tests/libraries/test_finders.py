"""A library that is not installed is found by programs that import it, and by nobody who merely asks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys

import pytest
import torch

from memlint.base.errors import TraceError
from memlint.libraries.finders import Finder
from memlint.libraries.library import Library

LIBRARY = Library("memlint_absent", distribution="memlint-absent", version="1.2.3", extensions=("memlint_absent_cuda",))


@LIBRARY.provides("memlint_absent", "memlint_absent.inner")
def known():
    return 3


LIBRARY.ops["memlint_absent::known"] = known


@LIBRARY.provides("memlint_absent", "memlint_absent.product")
def product():
    return 4


@pytest.fixture
def finder(monkeypatch):
    finder = Finder([LIBRARY])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    finder.install()
    yield finder
    for name in [name for name in sys.modules if name.startswith("memlint_absent")]:
        del sys.modules[name]
    vars(torch.ops.memlint_absent).pop("known", None)


def is_there():
    return importlib.util.find_spec("memlint_absent") is not None


def versions():
    return [each.version for each in importlib.metadata.distributions() if each.metadata["Name"] == "memlint-absent"]


def test_a_function_keeps_its_name_where_a_module_has_it_too(finder):
    import memlint_absent
    from memlint_absent.product import other, product

    assert memlint_absent.product() == product() == 4
    with pytest.raises(TraceError, match=r"memlint_absent\.product\.other"):
        other()


def test_who_asks_finds_nothing_until_the_program_imports_it(finder):
    assert not is_there()
    assert not versions()
    assert not hasattr(torch.ops.memlint_absent, "known")
    import memlint_absent
    from memlint_absent.inner import known as inner

    assert memlint_absent.known() == inner() == torch.ops.memlint_absent.known() == 3
    from memlint_absent import inner as module

    assert module.known() == 3
    assert memlint_absent.__version__ == "1.2.3"
    assert is_there()
    assert importlib.metadata.version("memlint_absent") == "1.2.3"
    assert importlib.metadata.packages_distributions()["memlint_absent"] == ["memlint-absent"]


def test_a_package_that_tries_to_import_it_does_without(finder, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "memlint_chooser.py").write_text(
        "try:\n    import memlint_absent\nexcept ImportError:\n    memlint_absent = None\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    import memlint_chooser

    assert memlint_chooser.memlint_absent is None
    del sys.modules["memlint_chooser"]


def test_a_package_finds_what_the_program_imports_after_it(finder, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "memlint_chooser.py").write_text(
        "import importlib.util\n"
        "is_there = importlib.util.find_spec('memlint_absent') is not None\n"
        "try:\n    import memlint_absent\nexcept ImportError:\n    memlint_absent = None\n"
    )
    (tmp_path / "memlint_program.py").write_text("import memlint_chooser\nfrom memlint_absent.inner import known\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.syspath_prepend(str(tmp_path))
    import memlint_program

    assert not memlint_program.memlint_chooser.is_there
    assert memlint_program.memlint_chooser.memlint_absent.known() == memlint_program.known() == 3
    del sys.modules["memlint_chooser"], sys.modules["memlint_program"]


def test_what_is_not_known_can_be_named_but_not_used(finder):
    from memlint_absent.layers import Attention

    assert not isinstance(3, Attention)
    with pytest.raises(
        TraceError, match=r"memlint_absent\.layers\.Attention is used, and memlint-absent is not installed"
    ) as error:
        Attention(dim=4)
    assert "memlint.op" in error.value.hint
    with pytest.raises(TraceError, match=r"Attention\.apply"):
        Attention.apply(3)


def test_a_file_does_without_what_it_can_do_without_where_nothing_of_that_is_modelled(finder):
    try:
        from memlint_absent import amp
        from memlint_absent.parallel import Parallel
    except ImportError:
        amp = Parallel = None
    assert amp is Parallel is None
    try:
        from memlint_absent.layers import Attention
        from memlint_absent.product import product
    except ImportError:
        product = Attention = None
    assert product() == 4
    assert Attention is not None


def test_one_that_is_installed_is_itself_but_for_what_is_known(finder, tmp_path, monkeypatch):
    package = tmp_path / "memlint_absent"
    package.mkdir()
    (package / "__init__.py").write_text("from memlint_absent.inner import known, other\n__version__ = '9'\n")
    (package / "inner.py").write_text(
        "import memlint_absent_cuda\ndef known():\n    return memlint_absent_cuda.run()\ndef other():\n    return known()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import memlint_absent

    assert memlint_absent.known() == memlint_absent.other() == torch.ops.memlint_absent.known() == 3
    assert memlint_absent.__version__ == "9"
    assert not versions()


def test_a_package_finds_what_a_file_of_the_program_says_that_it_requires(finder, tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "memlint_chooser.py").write_text(
        "try:\n    import memlint_absent\nexcept ImportError:\n    memlint_absent = None\n"
    )
    program = (
        "import memlint_chooser\nif not memlint_chooser.memlint_absent:\n    exit(\"This {} 'memlint-absent>=1'\")\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    for name, verb in (("memlint_first", "requires"), ("memlint_second", "mentions")):
        (tmp_path / f"{name}.py").write_text(program.format(verb))
    monkeypatch.syspath_prepend(str(tmp_path))
    import memlint_first

    assert memlint_first.memlint_chooser.memlint_absent.known() == 3
    for name in ("memlint_chooser", "memlint_first", "memlint_absent", "memlint_absent.inner"):
        sys.modules.pop(name, None)
    finder._used.clear()
    with pytest.raises(SystemExit, match="mentions"):
        importlib.import_module("memlint_second")
    sys.modules.pop("memlint_chooser", None)


def test_an_installed_package_that_is_known_may_keep_what_it_has(monkeypatch, tmp_path):
    library = Library("memlint_kept", distribution="memlint-kept", version="1")
    library.keeps_installed = True
    library.provides("memlint_kept")(known)
    (tmp_path / "memlint_kept.py").write_text("def known():\n    return 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    Finder([library]).install()
    import memlint_kept

    assert memlint_kept.known() == 5
    del sys.modules["memlint_kept"]
