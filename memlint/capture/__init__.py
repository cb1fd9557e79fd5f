"""Captures: everything that one run of a program said, as a record and as a file. Imports no torch."""
