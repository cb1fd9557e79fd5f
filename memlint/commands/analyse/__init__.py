"""The child process of `memlint check`: from one target to Workloads, Estimates and findings."""
