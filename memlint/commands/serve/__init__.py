"""`memlint serve`: what a serving engine will do with a GPU's memory.

command      from what was typed to the result
search       what to change where an engine does not start, and the cheapest GPU for so many users
text         the result as text, Markdown and JSON
"""
