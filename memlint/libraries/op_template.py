"""The line that a user fills in for an op that memlint does not model."""

OP_TEMPLATE = 'memlint.op("{name}", shapes=lambda x: x.shape, saves=["x"], workspace=0, backward_workspace=0)'
"""`name` is the qualified name of the op."""
