"""Effects of changes on the estimate: edits of lifetimes, and traces of the changed program."""
