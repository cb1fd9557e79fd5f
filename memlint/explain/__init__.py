"""A run that failed: its message, its recording, and a watch beside the next run."""
