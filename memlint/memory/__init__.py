"""From a Trace to bytes: the timeline of Buffers, their lives, and the estimate. Imports no torch."""
