"""Measurements of a step's memory on real devices, and their distance from the Estimate."""
