"""`memlint diff`: Reports of two revisions of a project, compared."""
