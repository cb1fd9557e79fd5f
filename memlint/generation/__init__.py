"""Generations that are longer than what is traced: from the prefill and a few rounds of decoding to all of them.

`rounds` cuts a trace into its rounds, each a small program that begins with what the rounds before have left open.
`pieces` are rounds by their number, learned from three of these. `extension` holds them against a trace of the last
ones and gives the events of all, `shown` the trace that stands for it. `traces` decides what is traced.
"""
