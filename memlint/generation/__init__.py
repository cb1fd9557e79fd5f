"""Generations that are longer than what is traced: from the prefill and a few rounds of decoding to all of them.

`rounds` cuts a trace into its rounds, each a small program that begins with what the rounds before have left open.
`extension` learns from three of them how the next ones are, holds that against a trace of the last ones, and gives the
events of all.
"""
