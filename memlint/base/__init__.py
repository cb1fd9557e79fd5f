"""What every package may use: errors, units, the cache, and whose a file is. Imports nothing of memlint."""
