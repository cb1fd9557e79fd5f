"""Engines by name, each a module with its rules by version."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from memlint.base.errors import UsageError
from memlint.memory.devices import Device
from memlint.serving.engines import sglang, vllm
from memlint.serving.model import Profile, ProfileOrder, ServedModel
from memlint.serving.options import ServeOptions
from memlint.serving.served import Served

Plan: TypeAlias = Callable[[ServedModel, ServeOptions, Device, Callable[[ProfileOrder], Profile]], Served]


class Engine(NamedTuple):
    """An engine: its rules, and the versions that they were read from."""

    name: str
    plan: Plan
    longest: Callable[[Served, ServedModel], int]
    """The longest text with which it surely starts, other options being the same; 0 if there is none."""
    oldest: tuple[int, ...]
    newest: tuple[int, ...]


ENGINES: Final[Mapping[str, Engine]] = MappingProxyType(
    {
        "vllm": Engine("vllm", vllm.plan, vllm.longest_length, vllm.OLDEST, vllm.NEWEST),
        "sglang": Engine("sglang", sglang.plan, sglang.longest_length, sglang.OLDEST, sglang.NEWEST),
    }
)


def engine_named(name: str) -> Engine:
    """Look an engine up. Raises UsageError."""
    if name not in ENGINES:
        known = ", ".join(ENGINES)
        raise UsageError(f"no engine named {name!r}", f"Choose one of: {known}. Others do not state their rules.")
    return ENGINES[name]
