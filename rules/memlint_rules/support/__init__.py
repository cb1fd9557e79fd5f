"""Searches and measures that several rules share."""
