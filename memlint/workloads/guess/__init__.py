"""Arguments and inputs of models for which nobody declared any."""
