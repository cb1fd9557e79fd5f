"""The facts about a model that a serving engine needs: its parameters and layers, and the peak of its profile run.

describe       parameters, and what each layer keeps of a request
rank_config    the config of what one rank of an engine runs
profile_run    the engine's step that finds how much memory is left, on the virtual accelerator
"""
