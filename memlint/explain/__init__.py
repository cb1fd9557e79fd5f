"""Explanations of runs on real GPUs: of recordings, and of messages about memory that ran out."""
