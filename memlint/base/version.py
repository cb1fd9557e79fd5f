"""The version of memlint, and of what it writes."""

__version__ = "0.1.0"
