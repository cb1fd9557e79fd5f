"""From what a user typed to Workloads."""
