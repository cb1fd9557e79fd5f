"""Explanations of a run on a real GPU: what held its memory, why it failed, and what would have helped."""
