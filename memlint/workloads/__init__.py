"""Workloads: what is analysed, and how to run one step of it.

spec       what a Workload is (no torch)
declare    how a user writes one in a Python file (no torch)
pyproject  how a user writes one in pyproject.toml, and `--init` does (no torch)
discover   from what was typed to Workloads; target, loading and huggingface are what it needs
guess      arguments and inputs that nobody declared: from names, layers, configs and trials
build      from a Workload to a model, its inputs and its optimizer, and the Program that takes a step
"""
