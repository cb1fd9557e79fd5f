"""Facts about the operators behind kernels that the records of a Trace need, by name."""

import functools
import operator
from collections.abc import Iterable

import torch
from torch._ops import OpOverload


def facts_of(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Give `seeded` and `without_overload` of a Trace with kernels of these names."""
    overloads = {name: _overload(name) for name in names}
    known = {name: overload for name, overload in overloads.items() if overload is not None}
    seeded = {name for name, overload in known.items() if torch.Tag.nondeterministic_seeded in overload.tags}
    return {"seeded": frozenset(seeded), "without_overload": frozenset(overloads.keys() - known)}


@functools.cache
def _overload(name: str) -> OpOverload | None:
    """Return an operator as a policy of selective checkpointing sees it; None for other kernels."""
    try:
        overload = operator.attrgetter(name)(torch.ops)
    except AttributeError:
        return None
    return overload if isinstance(overload, OpOverload) else None
