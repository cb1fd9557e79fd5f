"""User code runs here: one child process per request, with limits, and its every death a clear error."""
