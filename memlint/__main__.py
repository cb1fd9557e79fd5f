"""`python -m memlint`."""

from memlint.base.garbage import long_lived

with long_lived():
    from memlint.cli import main

main()
