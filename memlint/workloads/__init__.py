"""Finding, declaring and building Workloads: what is analysed, and how to run one step of it.

records      what a Workload is (no torch)
declare      how a user writes one in a Python file (no torch)
pyproject    how a user writes one in pyproject.toml (no torch)
rendering    a Workload written out as TOML, every assumption explicit (no torch)
module_name  under which name Python imports a file (no torch)
loading      importing the user's file
discover     from a target to Workloads
construct    from a Workload to a model
dimensions   sizes other than the batch that it has
inputs       example inputs inferred from layers and signatures
huggingface  the same for Hugging Face configs
loss         the scalar that is trained on
program      one step of a Workload, as a user would write it
"""
