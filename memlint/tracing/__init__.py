"""From kernels on the virtual accelerator to a Trace.

`records` holds the records and imports no torch; `recorder` makes them and does.
"""
