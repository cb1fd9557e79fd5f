"""Sends a word to a listener of the test, by TCP or UDP: what a program does that a script has started."""

import socket
import sys

port, word, *kind = sys.argv[1:]
with socket.socket(type=socket.SOCK_DGRAM if kind else socket.SOCK_STREAM) as sender:
    sender.settimeout(5)
    sender.connect(("127.0.0.1", int(port)))
    sender.send(word.encode())
