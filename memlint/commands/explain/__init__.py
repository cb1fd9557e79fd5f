"""`memlint explain`: a recording, or the message of a run that failed."""
