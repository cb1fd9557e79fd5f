"""`memlint lsp`: findings and bytes in an editor, by the Language Server Protocol."""
