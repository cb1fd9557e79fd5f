"""What the child process of `memlint check` does: from one target to Workloads, Estimates and findings."""
