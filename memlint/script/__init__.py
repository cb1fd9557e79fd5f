"""An unmodified training script as a Workload: it is run for a few steps, and declares itself."""
