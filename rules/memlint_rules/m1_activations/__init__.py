"""Rules about activations and lifetimes."""
