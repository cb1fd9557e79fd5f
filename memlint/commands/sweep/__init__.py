"""`memlint sweep`: the peaks of Workloads at many sizes, dtypes and GPUs."""
