"""What a change would do to the estimate: edits of lives, and traces of the changed program."""
