"""`python -m memlint`."""

from memlint.cli import main

main()
