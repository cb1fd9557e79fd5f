"""How a single-GPU model is distributed over several ranks, by the name that users type: `ddp`, `fsdp`, `hsdp:2x4`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from memlint.base.errors import UsageError

NAMES = ("ddp", "fsdp", "fsdp-no-reshard", "hsdp:2x4", "tp:8", "tp:8+fsdp")
_HYBRID = re.compile(r"hsdp:([1-9]\d{0,5})x([1-9]\d{0,5})")
_TENSOR = re.compile(r"tp:([1-9]\d{0,5})(\+fsdp(?:-no-reshard)?)?")
_BY_HAND = ("tp", "pp", "cp", "ep")


class Strategy(NamedTuple):
    """The part of a model that each rank holds."""

    is_sharded: bool
    """True if each rank holds a part of every parameter (fully_shard), False if all of them (DistributedDataParallel).
    """
    reshards: bool = True
    """True if parameters gathered for the forward are gathered again for the backward."""
    replicas: int = 1
    """Number of groups of ranks that hold a whole model each."""
    tensor: int = 1
    """Number of ranks over which each layer is split (tensor parallelism)."""

    @property
    def cuts(self) -> bool:
        """True if no rank holds all parameters."""
        return self.is_sharded or self.tensor > 1

    @classmethod
    def parse(cls, text: str, world_size: int) -> Self:
        """Make the Strategy of a name and a number of ranks. Raises UsageError if the name is unknown or unsuitable."""
        if text == "ddp":
            return cls(is_sharded=False)
        if text in ("fsdp", "fsdp-no-reshard"):
            return cls(is_sharded=True, reshards=text == "fsdp")
        if hybrid := _HYBRID.fullmatch(text):
            replicas, shards = map(int, hybrid.groups())
            if replicas * shards != world_size:
                raise UsageError(
                    f"strategy {text} is of {replicas * shards} ranks, not of {world_size}",
                    f"Say --ranks {replicas * shards}, or write other sizes.",
                )
            return cls(is_sharded=True, replicas=replicas)
        if tensor := _TENSOR.fullmatch(text):
            size = int(tensor[1])
            if world_size % size or (world_size != size and tensor[2] is None):
                raise UsageError(
                    f"strategy {text} cuts layers among {size} of {world_size} ranks",
                    f"Say --ranks {size}, or --strategy tp:{size}+fsdp with a multiple of it.",
                )
            return cls(is_sharded=tensor[2] is not None, reshards=tensor[2] == "+fsdp", tensor=size)
        if re.split(r"[:+]", text)[0] in _BY_HAND:
            raise UsageError(
                f"strategy {text}: only the project knows how its layers are split",
                "Write tp:8 or tp:8+fsdp, or let the function that gives the model spread it, and declare world_size.",
            )
        raise UsageError(f"strategy {text!r} is unknown", f"Write one of {', '.join(NAMES)}.")
