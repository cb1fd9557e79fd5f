"""Serving engines: what they will do with a GPU's memory, from a model's own parameters and layers by their own rules.

model      what a child says of a model: its parameters, what its layers keep of a request, the profile run's peak
options    how an engine is started
weights    what one rank loads, through PyTorch's caching allocator
cache      pages and groups of the cache, and how many blocks of them there are
served     what an engine will log, whether it starts, and what to change
engines/   one module for each engine: its rules, each with source and version
"""
