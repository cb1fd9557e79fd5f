"""From a Trace to bytes: the timeline of Buffers, their lifetimes, and the estimate. Imports no torch."""
