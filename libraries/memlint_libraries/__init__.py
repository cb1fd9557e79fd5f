"""Stand-ins that memlint brings, loaded through the entry-point group `memlint.libraries` as anyone's are."""
