"""Comments on pull and merge requests, made from Reports that may come from strangers."""
