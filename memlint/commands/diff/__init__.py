"""`memlint diff`: comparison of the Reports of two revisions of a project."""
