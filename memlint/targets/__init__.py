"""Workloads and Scripts: plain records of what is analysed, and how users name and declare them."""
