"""A watch beside a run in the user's own process: it records within bounds, and explains a failure."""
