"""The Report as one self-contained HTML page."""
