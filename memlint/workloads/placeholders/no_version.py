"""Stands for the module in which a project's installation writes its version: each of its names is one."""

__version__ = "0.0.0"


def __getattr__(name: str) -> str:
    if name == "__path__":
        raise AttributeError(name)
    return __version__
