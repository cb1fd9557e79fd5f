"""Batches of data that memlint made up: a few samples stand for all of a large one, and one for those that fail."""

from __future__ import annotations

import functools
import itertools
import mmap
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from memlint.accelerator import state
from memlint.accelerator.private import SampleFetcher
from memlint.base.after_import import after_import
from memlint.base.ownership import is_users
from memlint.base.patching import patched
from memlint.workloads.notes import fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_FEW = 8
"""Samples that stand for all of a batch."""
_TRIES = 16
"""Samples that are tried where one fails."""
_RETRIES = 4
"""Samples that a data set takes in place of one that fails, each within the handler of the last one's error."""
_DEPTH = 4
"""Data sets within one another that are looked into."""
_IS_WATCHED = "_memlint_watched"
_NBYTES = 2**26
"""The size from which a batch is large."""
_PLAIN = (bool, int, float, str, bytes, type(None), np.generic)


def replace_batches(replacing: Replacing) -> None:
    """Let loaders load only a few samples of each large batch, where data was made up and the samples are alike.

    Where a sample fails, or the samples of a batch do not fit together, the largest of some others stands for all.
    """
    fetch_all = SampleFetcher.fetch

    def fetch(fetcher: Any, numbers: Any) -> Any:
        for kind in set(_kinds(fetcher.dataset)) if fake_data else ():
            replacing.put(kind, "__getitem__", _with_few_retries(kind.__getitem__))
        if not fetcher.auto_collation or getattr(fetcher.dataset, "__getitems__", None):
            return fetch_all(fetcher, numbers)
        numbers = list(numbers)
        try:
            return fetch_some(fetcher, numbers)
        except Exception:
            sample = _largest(fetcher.dataset, numbers) if fake_data else None
            if sample is None:
                raise
            with suppress(Exception):
                batch = fetcher.collate_fn([_copy(sample) for _ in numbers])
                state.assume("one sample that is made up stands for those of a batch that fail, or fit no others")
                return batch
            raise

    def fetch_some(fetcher: Any, numbers: Sequence[Any]) -> Any:
        dataset = fetcher.dataset
        samples = [dataset[number] for number in numbers[:_FEW]]
        if not fake_data or not _is_large(samples, len(numbers)):
            return fetcher.collate_fn(samples + [dataset[number] for number in numbers[_FEW:]])
        state.assume(f"{_FEW} samples that are made up stand for all of a batch of {len(numbers):,}")
        with patched([(torch, "stack", _stacking(torch.stack))]):
            return fetcher.collate_fn([_copy(samples[i % _FEW]) for i in range(len(numbers))])

    replacing.put(SampleFetcher, "fetch", fetch)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        after_import(f"{package}.loops.fit_loop", functools.partial(_let_validation_come_later, replacing=replacing))


class _FailsAgainError(BaseException):
    """A sample fails, as those do that were taken in its place; no handler of errors catches it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


def _kinds(dataset: Any, depth: int = _DEPTH) -> Iterator[Any]:
    """Yield the classes of the user's, of a data set and those in it, whose samples may still be taken again."""
    kind, get = type(dataset), getattr(type(dataset), "__getitem__", None)
    if isinstance(get, FunctionType) and is_users(get.__code__.co_filename) and not hasattr(get, _IS_WATCHED):
        yield kind
    several = getattr(dataset, "datasets", None)
    for each in (getattr(dataset, "dataset", None), *(several if isinstance(several, list | tuple) else ())):
        if depth and isinstance(each, Dataset):
            yield from _kinds(each, depth - 1)


def _with_few_retries(get: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a method that takes a sample, or raises its error where those that its handler takes instead fail alike.

    `except Exception: return self[random.randrange(len(self))]` would never end where every sample is made up.
    """
    depth = 0

    @functools.wraps(get)
    def getting(dataset: Any, number: Any) -> Any:
        nonlocal depth
        handled = sys.exception()
        if depth >= _RETRIES and handled is not None:
            raise _FailsAgainError(handled)
        depth += 1
        try:
            return get(dataset, number)
        except _FailsAgainError as failure:
            if depth > 1:
                raise
            raise failure.error from None
        finally:
            depth -= 1

    setattr(getting, _IS_WATCHED, True)
    return getting


def _let_validation_come_later(module: Any, replacing: Replacing) -> None:
    """Let Lightning validate after more batches than a loader has whose data was made up."""
    loop = vars(module)["_FitLoop"]
    prepare = loop.setup_data

    @functools.wraps(prepare)
    def prepared(self: Any) -> None:
        trainer = self.trainer
        if fake_data and isinstance(interval := getattr(trainer, "val_check_interval", None), int):
            state.assume(f"validation comes after {interval} batches, of which the data that is made up has fewer")
            trainer.check_val_every_n_epoch = None
        prepare(self)

    replacing.put(loop, "setup_data", prepared)


def _largest(dataset: Any, numbers: Sequence[Any]) -> Any:
    """Return the largest of some samples of a dataset that do not fail, as random parts of images do; None without.

    Where all of them do the first one counts: a dataset may say that it has more than what was made up for it.
    """
    samples = []
    for number in itertools.islice(itertools.cycle(numbers), _TRIES):
        with suppress(Exception):
            samples.append(dataset[number])
    with suppress(Exception):
        samples = samples or [dataset[0]]
    return max(samples, key=lambda sample: sum(form[1] for form in _form(sample) if form is not None), default=None)


def _is_large(samples: Sequence[Any], num_samples: int) -> bool:
    """Return True if as many samples as these few, which are alike, are large, and can be told to be."""
    if num_samples <= _FEW:
        return False
    forms = [list(_form(sample)) for sample in samples]
    is_known = all(form == forms[0] and None not in form for form in forms)
    return is_known and num_samples * sum(form[1] for form in forms[0] if form is not None) >= _NBYTES


def _form(value: Any) -> Iterator[tuple[Any, int] | None]:
    """Yield the form and the size in bytes of each part of a sample; None for an object that cannot be looked into."""
    is_tensor = type(value) is torch.Tensor and value.device.type == "cpu" and value.layout is torch.strided
    if is_tensor or type(value) is np.ndarray:
        yield (value.shape, value.dtype), value.nbytes
    elif type(value) is dict:
        yield tuple(value), 0
        yield from itertools.chain.from_iterable(map(_form, value.values()))
    elif type(value) in (list, tuple):
        yield len(value), 0
        yield from itertools.chain.from_iterable(map(_form, value))
    else:
        yield (type(value), 0) if isinstance(value, _PLAIN) else None


def _copy(value: Any) -> Any:
    """Return a copy of a sample that shares its tensors and arrays: a program may take values out of its own."""
    if type(value) is dict:
        return {key: _copy(each) for key, each in value.items()}
    return type(value)(map(_copy, value)) if type(value) in (list, tuple) else value


def _stacking(stack: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return `torch.stack` that makes of a few tensors in turn one whose other rows are zero and take no memory."""

    def stacked(tensors: Any, dim: int = 0, *, out: torch.Tensor | None = None) -> torch.Tensor:
        if dim or out is not None or not isinstance(tensors, list | tuple) or not _are_few(tensors):
            return stack(tensors, dim, out=out)
        first = stack(tensors[:_FEW])
        memory = mmap.mmap(-1, len(tensors) * tensors[0].nbytes)  # of pages that come when they are written
        whole = torch.frombuffer(memory, dtype=first.dtype).view(len(tensors), *first.shape[1:])
        whole[:_FEW] = first
        return whole

    return stacked


def _are_few(tensors: Sequence[Any]) -> bool:
    """Return True for tensors that are a few in turn, and large together."""
    if len(tensors) <= _FEW or len(tensors) * getattr(tensors[0], "nbytes", 0) < _NBYTES:
        return False
    return all(
        type(each) is torch.Tensor
        and not each.requires_grad
        and (each.data_ptr(), each.shape, each.dtype) == (like.data_ptr(), like.shape, like.dtype)
        for each, like in zip(tensors, itertools.cycle(tensors[:_FEW]), strict=False)
    )
