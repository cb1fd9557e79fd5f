"""Tasks carried out by the workers of a Ray cluster."""
