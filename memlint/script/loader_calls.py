"""Calls of a model with a batch of the script's own training data, the likeliest first."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

Call = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional arguments, and those by name."""


def calls_with(batch: object, num_fed: int | None) -> Iterator[Call]:
    """Yield ways to call a model with a batch; `num_fed` is the number of its inputs in the text of the loop, if known.

    Labels stand behind what a model is fed, and a list of crops or of images may be fed as a whole.
    """
    if isinstance(batch, torch.Tensor):
        yield (batch,), {}
    elif isinstance(batch, Mapping):
        yield (), dict(batch)
        yield (batch,), {}
        yield from (((each,), {}) for each in batch.values() if isinstance(each, torch.Tensor))
    elif isinstance(batch, list | tuple) and batch:
        if num_fed is not None and 1 < num_fed <= len(batch):
            yield tuple(batch[:num_fed]), {}
        elif _are_alike(batch):
            yield (batch,), {}
        yield from calls_with(batch[0], None)


def _are_alike(items: list[Any] | tuple[Any, ...]) -> bool:
    """Return True for tensors of the same number of dimensions: crops, and no images with their labels."""
    are_tensors = len(items) > 1 and all(isinstance(each, torch.Tensor) for each in items)
    return are_tensors and len({each.dim() for each in items}) == 1
