"""The child of a command: it loads what was typed, and traces it, again and again with Changes, as long as it is asked.

Everything below this package needs torch; nothing above it does.
"""
