"""Other sizes than the one that was traced: a few traces say how every kernel call and storage grows.

While a program runs at a few sizes, `recorded_calls` writes down every call of a kernel, split into a form and whole
numbers. `groups` puts calls together whose numbers are the same polynomials (`polynomials`) of the sizes. `scaled` says
with them what the program takes at another size, and `sizes` holds that against one more trace before it is relied on,
and searches the largest batch that fits (`search`).
"""
