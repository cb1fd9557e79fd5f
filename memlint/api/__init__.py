"""`memlint.check`, `estimate`, `run` and `fit`: one module each; what takes a model imports PyTorch when called."""
