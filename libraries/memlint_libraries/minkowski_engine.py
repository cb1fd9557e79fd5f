"""MinkowskiEngine, of which nothing is known: what a program uses of it is named. docs/libraries.md says why."""

from memlint.libraries.library import Library

library = Library("MinkowskiEngine", distribution="MinkowskiEngine", version="unknown")
