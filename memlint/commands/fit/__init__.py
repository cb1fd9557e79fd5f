"""`memlint fit`: the largest batch that fits, as it is and with changes."""
