"""Whose file a path is."""

from memlint.base.ownership import is_users


def test_what_cython_compiled_is_not_the_users_whatever_it_names_its_source():
    assert not is_users("pandas/_libs/lib.pyx")
    assert is_users("train.py")
