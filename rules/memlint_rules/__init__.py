"""Built-in rules of memlint, one module each, loaded through the entry-point group `memlint.rules`."""
