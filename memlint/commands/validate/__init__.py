"""`memlint validate`: Workloads measured on a real device and held against their Estimates."""
