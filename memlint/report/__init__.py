"""The Report model, and one renderer per format."""
