"""Rules about the allocator, the runtime and distributed training."""
