"""An unmodified training script as a Workload: what it computes is simulated, what it would change is left alone."""
