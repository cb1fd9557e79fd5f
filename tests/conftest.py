"""Property tests draw the same examples each time; --hypothesis-profile=default draws others.

What decides on colours, and where a forge's variables tell programs that it runs them, is taken out of the environment:
tests say themselves what they want of it. Ctrl-C counts, though a shell that starts tests in the background has them, and
what they start, ignore it.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

_OF_THE_OUTSIDE = ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "NO_COLOR", "CI", "GITLAB_CI")
for name in list(os.environ):
    if name in _OF_THE_OUTSIDE or name.startswith(("GITHUB_", "CI_")):
        del os.environ[name]

signal.signal(signal.SIGINT, signal.default_int_handler)
