"""Recording of kernels on the virtual accelerator as a Trace.

`records` holds the records and imports no torch; `recorder` makes them and does.
"""
