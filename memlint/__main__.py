"""`python -m memlint`."""

from memlint.base.garbage import long_lived
from memlint.base.quick_dataclasses import quick_dataclasses

with long_lived(), quick_dataclasses():
    from memlint.cli import main

main()
