"""Explanations of recordings of a GPU: what held the memory, why it failed, and what would have helped."""
