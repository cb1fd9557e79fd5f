"""PyTorch's caching allocator: the reference, its fast twin for peaks, and their settings."""
