"""Rules about the budget of a workload."""
