"""Data that is loaded and mapped in this process, whatever the number of workers; no more batches than needed.

A loader keeps all its settings, such as its number of workers: libraries make new loaders from the settings that they
read there. Only its iterator is that of a loader without workers.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from memlint.accelerator import state
from memlint.accelerator.private import (
    GET_ITERATOR,
    LoaderIterator,
    OneProcessIterator,
    WorkerInfo,
    exchange_worker_info,
    get_iterator,
    num_yielded,
)
from memlint.base.after_import import after_import
from memlint.script.fake_batches import replace_batches
from memlint.script.replacing import Replacing

_FEWEST_STEPS = 2
"""The optimizer creates its states in the first step."""
_MOST_BATCHES = 1024
"""Maximum number of batches from a loader, however many a step may need."""
_length = DataLoader.__len__
_next = LoaderIterator.__next__


class Cut:
    """Number of batches that a loader yields: a few, but all of a step that it begins, and two steps in training."""

    def __init__(self, batches: int) -> None:
        self._batches = batches
        self.accumulation = 1
        """Batches per step, as far as a library has set it."""
        self.progress: Callable[[], tuple[int, bool]] = lambda: (0, False)
        """Number of steps taken so far, and True if there was a backward since."""

    @property
    def limit(self) -> int:
        """The length that a loader reports if it has at least that many batches."""
        steps = max(-(-self._batches // self.accumulation), min(self._batches, _FEWEST_STEPS))
        return self._batches if self.accumulation == 1 else steps * self.accumulation

    def is_enough(self, num_batches: int, begin: tuple[int, bool]) -> bool:
        """Return True if a loader that began at this progress has yielded enough batches."""
        if num_batches < self.limit:
            return False
        steps, had_backward = self.progress()
        is_in_step = had_backward and (steps > begin[0] or not begin[1])
        is_training = is_in_step or begin[0] < steps < min(self._batches, _FEWEST_STEPS)
        return not is_training or num_batches >= _MOST_BATCHES


@contextlib.contextmanager
def loaders_in_process(cut: Cut | None = None, on_batch: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Make every DataLoader load its batches here; with `cut` it yields no more, and reports that length.

    `on_batch` is called for every batch.
    """

    def length(loader: DataLoader[Any]) -> int:
        num_batches = _length(loader)
        return num_batches if cut is None else min(num_batches, cut.limit)

    def next_batch(iterator: Any) -> Any:
        if cut is not None:
            begin = vars(iterator).setdefault("_memlint_begin", cut.progress())
            if cut.is_enough(num_yielded(iterator), begin):
                raise StopIteration
        batch = _next(iterator)
        on_batch()
        return batch

    with Replacing() as replacing:
        replacing.put(DataLoader, "__iter__", _iterator)  # of persistent workers too: each epoch has a new iterator
        replacing.put(DataLoader, GET_ITERATOR, _iterator)
        replacing.put(DataLoader, "__len__", length)
        replacing.put(LoaderIterator, "__next__", next_batch)
        replace_batches(replacing)
        if "__init__" not in vars(Sampler):
            replacing.put(Sampler, "__init__", _without_source)
        after_import("datasets.arrow_dataset", lambda module: _replace_map(module, replacing))
        if cut is not None:
            _hear_of_accumulation(cut, replacing)
        yield


def _replace_map(module: Any, replacing: Replacing) -> None:
    """Map data sets in this process: forty copies of it, for forty cores, would fill the memory."""
    in_many = module.Dataset.map

    @functools.wraps(in_many)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        return in_many(*args, **(kwargs | {"num_proc": None} if "num_proc" in kwargs else kwargs))

    replacing.put(module.Dataset, "map", mapped)


def _without_source(_sampler: Any, data_source: Any = None) -> None:
    """Stand in for the constructor that samplers had until PyTorch dropped it: older ones pass a data source on."""
    if data_source is not None:
        state.assume("Sampler takes no data source in this version of PyTorch: it is left out")


def _hear_of_accumulation(cut: Cut, replacing: Replacing) -> None:
    """Pass the accumulation settings of libraries on to `cut`."""
    for module, owner, method, attribute in (
        ("transformers.training_args", "TrainingArguments", "__post_init__", "gradient_accumulation_steps"),
        ("accelerate.accelerator", "Accelerator", "__init__", "gradient_accumulation_steps"),
        ("lightning.pytorch.trainer.trainer", "Trainer", "__init__", "accumulate_grad_batches"),
        ("pytorch_lightning.trainer.trainer", "Trainer", "__init__", "accumulate_grad_batches"),
    ):

        def follow(imported: Any, owner: str = owner, method: str = method, attribute: str = attribute) -> None:
            cls = getattr(imported, owner)
            replacing.put(cls, method, _heard(vars(cls)[method], attribute, cut))

        after_import(module, follow)


def _heard(function: Callable[..., None], attribute: str, cut: Cut) -> Callable[..., None]:
    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        function(self, *args, **kwargs)
        cut.accumulation = max(cut.accumulation, getattr(self, attribute) or 1)

    return call


def _iterator(loader: Any) -> Any:
    """Return the iterator of a loader."""
    if loader.num_workers == 0:
        return get_iterator(loader)
    state.assume("DataLoader workers are left out: batches are loaded in this process")
    number, timeout = loader.num_workers, loader.timeout
    loader.num_workers = loader.timeout = 0
    try:
        return _OneWorker(loader)
    finally:
        loader.num_workers, loader.timeout = number, timeout


class _OneWorker(OneProcessIterator):
    """An iterator that loads in this process; the dataset and `worker_init_fn` see it as the only worker."""

    def __init__(self, loader: Any) -> None:
        seed = int(torch.initial_seed()) % 2**63
        self._info = WorkerInfo(id=0, num_workers=1, seed=seed, dataset=loader.dataset)
        with self._worker():
            if loader.worker_init_fn is not None:
                loader.worker_init_fn(0)
            super().__init__(loader)
        self.fetcher.collate_fn = self._collated_here(self.fetcher.collate_fn)

    def _collated_here(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Run `collate` outside the worker: inside it PyTorch's own puts batches into shared memory."""

        def collate_here(samples: Any) -> Any:
            before = exchange_worker_info(None)
            try:
                return collate(samples)
            finally:
                exchange_worker_info(before)

        return collate_here

    def next_batch(self) -> Any:
        """Load the next batch as the only worker."""
        with self._worker():
            return super().next_batch()

    @contextlib.contextmanager
    def _worker(self) -> Iterator[None]:
        before = exchange_worker_info(self._info)
        try:
            yield
        finally:
            exchange_worker_info(before)
