"""Two Reports side by side: what changed, what grew, and whether the budgets allow it."""
