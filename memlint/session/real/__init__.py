"""Real devices: what a step takes there."""
