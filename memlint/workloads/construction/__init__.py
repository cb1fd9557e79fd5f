"""From a Workload to a Program that takes a step of it."""
