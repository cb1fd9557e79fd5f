"""Foundations for every package: errors, units, the cache, and ownership of files. Imports nothing of memlint."""
