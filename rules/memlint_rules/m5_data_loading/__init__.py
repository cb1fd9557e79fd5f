"""Rules about data loading and host memory."""
