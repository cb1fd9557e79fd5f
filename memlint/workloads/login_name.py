"""The name of the user who has logged in, which scripts put into paths: also where no terminal says it."""

import getpass
import os


def name_without_terminal() -> None:
    """Let `os.getlogin` give the user's name where the process has no terminal, as one that a person starts has."""
    ask = os.getlogin

    def login() -> str:
        try:
            return ask()
        except OSError:
            return getpass.getuser()

    os.getlogin = login
