"""Other sizes than the traced ones: from a few traces, the growth of every kernel call and storage.

While a program runs at a few sizes, `recorded_calls` writes down every call of a kernel, split into a form and whole
numbers. `groups` puts calls together whose numbers are the same polynomials (`polynomials`) of the sizes. `scaled`
computes from them the program's memory at another size. `sizes` compares that with one more trace before it is relied
on, and searches the largest batch that fits (`search`).
"""
