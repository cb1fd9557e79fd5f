"""`memlint.estimate`, `run` and `fit`: one module each, which imports PyTorch when it is called."""
