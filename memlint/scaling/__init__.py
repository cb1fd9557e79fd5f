"""Other sizes than the one that was traced: a few traces say how every kernel call and storage grows."""
