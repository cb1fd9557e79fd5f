"""Fake tables in place of those that `sklearn.datasets` downloads: as large as the real ones, of zeros."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from memlint.workloads.notes import note, note_fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_SIZES = {
    "fetch_california_housing": (20_640, 8, 0),
    "fetch_covtype": (581_012, 54, 7),
    "fetch_olivetti_faces": (400, 4_096, 40),
}
"""Rows, columns and classes by function, as its documentation states them; no classes for numbers to predict."""
_OF_OPENML = dict.fromkeys(("mnist_784", "554", "fashion-mnist", "40996"), (70000, 784, 10))
"""The same of tables on OpenML, by name in lower case and by number."""
_SIDE = 64
"""Pixels of each side of Olivetti's faces, which are float32, and images as well."""


def replace_fetchers(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Make functions of `sklearn.datasets` report tables that are not there, or with `fake` replace them."""
    for name in (*_SIZES, "fetch_openml"):
        replacing.put(module, name, _fetching(getattr(module, name), fake=fake))


def _fetching(fetch: Callable[..., Any], *, fake: bool) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def fetching(*args: Any, **kwargs: Any) -> Any:
        try:
            return fetch(*args, **kwargs)
        except OSError as error:
            asked = str(kwargs.get("name") or (args[0] if args else kwargs.get("data_id", "")))
            sizes = _SIZES.get(fetch.__name__) or _OF_OPENML.get(asked.lower())
            table = " ".join(filter(None, (fetch.__name__, asked)))
            if sizes is None or not fake:
                able = ", or add --fake-data to make it up" if sizes is not None else ""
                note(error, f"wants the table of {table}, which is not on this machine", f"load it once before{able}")
                raise
        rows, columns, classes = sizes
        note_fake_data(f"the table of {table} is not on this machine: replaced by {rows:,} rows of {columns} zeros")
        if fetch.__name__ == "fetch_openml":
            kwargs = {"as_frame": "auto"} | kwargs
        return _table(rows, columns, classes, kwargs)

    return fetching


def _table(rows: int, columns: int, classes: int, options: dict[str, Any]) -> Any:
    is_of_faces = columns == _SIDE**2
    data: Any = np.zeros((rows, columns), np.float32 if is_of_faces else np.float64)
    target: Any = np.arange(rows) % classes if classes else np.zeros(rows)
    names = [f"x{number}" for number in range(columns)]
    if options.get("as_frame") in (True, "auto"):
        pandas = importlib.import_module("pandas")
        data, target = pandas.DataFrame(data, columns=names), pandas.Series(target, name="target")
    if options.get("return_X_y"):
        return data, target
    bunch = importlib.import_module("sklearn.utils").Bunch
    images = {"images": data.reshape(rows, _SIDE, _SIDE)} if is_of_faces else {}
    return bunch(data=data, target=target, feature_names=names, target_names=["target"], DESCR="", **images)
