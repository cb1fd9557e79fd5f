"""Comments on pull and merge requests, and Reports that come from strangers."""
