"""Workloads: what is analysed, and how to run one step of it.

spec       what a Workload is (no torch)
declare    how a user writes one in a Python file (no torch)
pyproject  how a user writes one in pyproject.toml, and `--init` does (no torch)
find       from what was typed to Workloads: targets, imports of the user's files, models in them
guess      arguments and inputs that nobody declared: from names, layers, configs and trials
build      from a Workload to a model, its inputs and its optimizer, and the Program that takes a step
"""
