"""Packages whose kernels need a GPU, a file each: what they take of it, read in their sources."""
