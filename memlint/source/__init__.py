"""Python source as text, syntax tree, imports and comments. Imports no torch and runs no user code."""
