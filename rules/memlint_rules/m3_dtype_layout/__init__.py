"""Rules about dtype, layout and sparsity."""
