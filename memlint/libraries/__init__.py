"""Stand-ins for third-party packages whose kernels need a GPU: how programs find them, and the most common ones."""
