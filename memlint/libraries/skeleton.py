"""What to type for an op that memlint does not know."""

SKELETON = 'memlint.op("{name}", shapes=lambda x: x.shape, saves=["x"], workspace=0, backward_workspace=0)'
"""To be filled in, with the qualified name of the op."""
