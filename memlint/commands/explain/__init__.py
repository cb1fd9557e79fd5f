"""`memlint explain`: from files of a run to what they explain."""
