"""`memlint run`: from a script and its arguments to a Report."""
