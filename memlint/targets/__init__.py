"""Workloads and Scripts: plain records of the programs to analyse, and how users name and declare them."""
