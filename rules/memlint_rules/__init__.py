"""Built-in rules of memlint, a folder for each hundred, loaded through the entry-point group `memlint.rules`."""
