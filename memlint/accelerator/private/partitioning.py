"""PyTorch's private name for what is saved for the backward of compiled code; see `private/__init__.py`."""

from typing import Any

from torch._functorch import config

partitioner_settings: Any = config
"""Settings of AOTAutograd, among them `activation_memory_budget`; its `patch` changes them for a while."""
