"""Construction of a model from a Workload, and a Program that takes its steps."""
