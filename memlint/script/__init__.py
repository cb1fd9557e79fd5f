"""An unmodified training script as a Workload: memlint runs it for a few steps and observes what it declares."""
