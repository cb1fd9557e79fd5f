"""The result of a line that failed, and the rows that a Trainer of transformers gets in place of such data."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from torch import Tensor, nn
from torch.utils.data import Dataset

from memlint.accelerator import state
from memlint.base.after_import import after_import
from memlint.script.replacing import Replacing
from memlint.workloads.huggingface.configs import is_model
from memlint.workloads.huggingface.inputs import candidates
from memlint.workloads.model_sizes import ModelSizes
from memlint.workloads.tensors import make_inputs

_NUM_ROWS = 2**16
"""Rows of data: more than a few steps of many ranks take."""
_TRAINED, _EVALUATED, _COLLATOR = "train_dataset", "eval_dataset", "data_collator"
"""Names of a Trainer's arguments."""
Sizes = Callable[[nn.Module], Mapping[str, object]]
"""Returns the numbers that a script states for a model, by name."""


class UnknownValueError(TypeError):
    """A value is needed that nobody knows."""


class Unknown:
    """The result of a line that failed."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> Unknown:  # noqa: D102 -- the class says it
        return self

    def __getitem__(self, _key: object) -> Unknown:
        return self

    def __enter__(self) -> Unknown:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def _refused(self, *_arguments: object) -> NoReturn:
        raise UnknownValueError("the line that should have made this value failed")

    __iter__ = __len__ = __bool__ = __index__ = __int__ = __float__ = __str__ = __contains__ = _refused
    __format__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __rsub__ = _refused
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refused
    __reduce_ex__ = _refused  # as an argument of a model it cannot be repeated
    __hash__ = object.__hash__


class _Rows(Dataset[dict[str, Tensor]]):
    """Rows that are all alike."""

    def __init__(self, row: dict[str, Tensor]) -> None:
        self._row = row

    def __len__(self) -> int:
        return _NUM_ROWS

    def __getitem__(self, _index: int) -> dict[str, Tensor]:
        return self._row


def data_of(data: Any) -> Any:
    """Return named arguments of a Trainer: those of an unknown `data` are its training data."""
    return {_TRAINED: data} if isinstance(data, Unknown) else data


@contextmanager
def rows_for_trainers(sizes: Sizes) -> Iterator[None]:
    """Give each Trainer of transformers that gets unknown data rows of what its model takes."""
    with Replacing() as replacing:

        def follow(module: Any) -> None:
            begin = module.Trainer.__init__

            @functools.wraps(begin)
            def call(trainer: Any, model: Any = None, *args: Any, **kwargs: Any) -> None:
                if isinstance(kwargs.get(_TRAINED), Unknown) and is_model(model):
                    kwargs |= _rows_of(model, sizes(model), module.default_data_collator)
                begin(trainer, model, *args, **kwargs)

            replacing.put(module.Trainer, "__init__", call)

        after_import("transformers.trainer", follow)
        yield


def _rows_of(model: nn.Module, sizes: Mapping[str, object], collate: object) -> dict[str, object]:
    """Return data for a Trainer of this model, and what makes batches of it; empty if nothing says what it takes."""
    length = ModelSizes(model, sizes).trained_length
    found = next(iter(candidates(model, train=True, length=length)), None)
    batch = {} if found is None else make_inputs(found.specs, 1, found.dimensions)
    if found is None or not all(isinstance(each, Tensor) and each.ndim and len(each) == 1 for each in batch.values()):
        return {}
    described = "; ".join(spec.described(found.dimensions) for spec in found.specs)
    state.assume(f"the data of this Trainer is not known, as lines before it failed: it gets {described}")
    rows = _Rows({name: each[0] for name, each in batch.items()})
    return {_TRAINED: rows, _EVALUATED: rows, _COLLATOR: collate}
