"""A process without a terminal answers who has logged in."""

import getpass
import os

from memlint.workloads.login_name import name_without_terminal


def test_who_has_logged_in_is_said_without_a_terminal(monkeypatch):
    def login():
        raise OSError(6, "No such device or address")

    monkeypatch.setattr(os, "getlogin", login)
    name_without_terminal()
    assert os.getlogin() == getpass.getuser()
