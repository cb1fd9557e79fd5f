"""Whose file a path is."""

import sys
from types import ModuleType

from memlint.base.ownership import file_of, is_users


def test_what_cython_compiled_is_not_the_users_whatever_it_names_its_source():
    assert not is_users("pandas/_libs/lib.pyx")
    assert is_users("train.py")


def test_a_module_that_is_loaded_lazily_stays_as_it_is():
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(name)

    assert [file_of(Lazy("lazy")), file_of(None), file_of(ModuleType("plain"))] == ["", "", ""]
    assert file_of(sys.modules[__name__]) == __file__
