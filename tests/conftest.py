"""Property tests draw the same examples each time; --hypothesis-profile=default draws others."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
