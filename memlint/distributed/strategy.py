"""How a model of one GPU is spread over several ranks, as a person names it: `ddp`, `fsdp`, `hsdp:2x4`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

from memlint.base.errors import UsageError

NAMES = ("ddp", "fsdp", "fsdp-no-reshard", "hsdp:2x4")
_HYBRID = re.compile(r"hsdp:([1-9]\d{0,5})x([1-9]\d{0,5})")
_BY_HAND = ("tp", "pp", "cp", "ep")


class Strategy(NamedTuple):
    """What each rank holds of a model."""

    is_sharded: bool
    """Whether each rank holds a part of every parameter (fully_shard) or all of them (DistributedDataParallel)."""
    reshards: bool = True
    """Whether parameters that were gathered for the forward are gathered anew for the backward."""
    replicas: int = 1
    """Groups of ranks that hold a whole model each."""

    @classmethod
    def parse(cls, text: str, world_size: int) -> Self:
        """Of a name, for so many ranks. Raises UsageError for one that is unknown or does not fit them."""
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
        if re.split(r"[:+]", text)[0] in _BY_HAND:
            raise UsageError(
                f"strategy {text}: nobody but the project knows which layers are cut how",
                "Let the function that gives the model call parallelize_module, and declare world_size.",
            )
        raise UsageError(f"strategy {text!r} is unknown", f"Write one of {', '.join(NAMES)}.")
