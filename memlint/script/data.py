"""Data loaders that load in this process, however many workers they have, and give no more batches than are needed.

A loader keeps everything that it was told, such as its number of workers: libraries make loaders anew of what they read
there. Only what iterates over it is that of a loader without workers.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loading
from torch.utils.data._utils import worker as workers

from memlint.accelerator import state
from memlint.script.replacing import Replacing

_get_iterator = DataLoader._get_iterator
_length = DataLoader.__len__
_next = loading._BaseDataLoaderIter.__next__


@contextlib.contextmanager
def loaders_in_process(limit: int | None = None) -> Iterator[None]:
    """Let every DataLoader load its batches here; with `limit` it has that many at most, and so says its length."""

    def length(loader: DataLoader[Any]) -> int:
        num_batches = _length(loader)
        return num_batches if limit is None else min(num_batches, limit)

    def next_batch(iterator: Any) -> Any:
        if limit is not None and iterator._num_yielded >= limit:
            raise StopIteration
        return _next(iterator)

    with Replacing() as replacing:
        replacing.put(DataLoader, "__iter__", _iterator)  # of persistent workers too: each epoch has a new iterator
        replacing.put(DataLoader, "_get_iterator", _iterator)
        replacing.put(DataLoader, "__len__", length)
        replacing.put(loading._BaseDataLoaderIter, "__next__", next_batch)
        yield


def _iterator(loader: Any) -> Any:
    """What iterates over a loader."""
    if loader.num_workers == 0:
        return _get_iterator(loader)
    state.assume("DataLoader workers are left out: batches are loaded in this process")
    number, timeout = loader.num_workers, loader.timeout
    loader.num_workers = loader.timeout = 0
    try:
        return _OneWorker(loader)
    finally:
        loader.num_workers, loader.timeout = number, timeout


class _OneWorker(loading._SingleProcessDataLoaderIter):
    """Loads in this process, where the dataset and `worker_init_fn` see the only worker."""

    def __init__(self, loader: Any) -> None:
        seed = int(torch.initial_seed()) % 2**63
        self._info = workers.WorkerInfo(id=0, num_workers=1, seed=seed, dataset=loader.dataset)
        with self._worker():
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(0)
            super().__init__(loader)
        fetcher: Any = self._dataset_fetcher
        fetcher.collate_fn = self._collated_here(fetcher.collate_fn)

    def _collated_here(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`collate` outside of the worker: there PyTorch's own puts batches into memory that processes share."""

        def collate_here(samples: Any) -> Any:
            before, workers._worker_info = workers._worker_info, None
            try:
                return collate(samples)
            finally:
                workers._worker_info = before

        return collate_here

    def _next_data(self) -> Any:
        with self._worker():
            return super()._next_data()  # type: ignore[no-untyped-call]

    @contextlib.contextmanager
    def _worker(self) -> Iterator[None]:
        before, workers._worker_info = workers._worker_info, self._info
        try:
            yield
        finally:
            workers._worker_info = before
