"""Rules about parameters, gradients and optimizer state."""
