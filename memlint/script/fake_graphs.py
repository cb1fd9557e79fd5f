"""Graphs for the data sets of torch_geometric that are not on this machine, as large as their documentation says."""

from __future__ import annotations

import functools
import os
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from memlint.script.script_line import note_fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_SIZES = ("#nodes", "#edges", "#features", "#classes")
_MOST_EDGES = 20_000_000
_TRAIN, _VALIDATION, _TEST = 20, 500, 1000
"""Nodes of each class to train with, and of all to compare with (Yang et al., 2016)."""


def replace_graphs(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Let data sets of one graph that would be downloaded be made up with `fake`."""
    if not fake:
        return
    kind = module.Dataset
    download, process = kind._download, kind._process

    @functools.wraps(download)
    def downloaded(self: Any) -> None:
        if _sizes_of(self) is None or all(map(os.path.exists, self.raw_paths)):
            download(self)

    @functools.wraps(process)
    def processed(self: Any) -> None:
        sizes = _sizes_of(self)
        if sizes is None or any(all(map(os.path.exists, paths)) for paths in (self.raw_paths, self.processed_paths)):
            process(self)
            return
        graph = _graph(*sizes)
        os.makedirs(self.processed_dir, exist_ok=True)  # noqa: PTH103 -- as the script sees it
        self.save([graph if self.pre_transform is None else self.pre_transform(graph)], self.processed_paths[0])
        nodes, edges, features, classes = sizes
        note_fake_data(
            f"the data set {type(self).__name__} is not in {self.raw_dir}: replaced by a graph of {nodes:,} nodes with "
            f"{features:,} features, {edges:,} edges and {classes} classes, as its documentation says"
        )

    replacing.put(kind, "_download", downloaded)
    replacing.put(kind, "_process", processed)


def _sizes_of(data: Any) -> tuple[int, int, int, int] | None:
    """Return nodes, edges, features and classes of a data set by the table in its documentation, if it is one graph."""
    table = re.split(r"\n\s*\* - ", str(type(data).__doc__))[1:]
    rows = [
        [cell.strip().replace(",", "") for cell in row.split("\n")[0:1] + re.findall(r"\n\s+- (.*)", row)]
        for row in table
    ]
    if not rows or not hasattr(data, "save") or not set(_SIZES) <= set(rows[0]):
        return None
    head, *rows = rows
    name = re.sub(r"\W", "", str(getattr(data, "name", ""))).lower()
    named = [row for row in rows if re.sub(r"\W", "", row[0]).lower() == name] or (rows if len(rows) == 1 else [])
    for row in named:
        stated = dict(zip(head, row, strict=False))
        sizes = [int(stated[size]) for size in _SIZES if stated[size].isdecimal()]
        if len(sizes) == len(_SIZES) and stated.get("#graphs", "1") == "1" and sizes[1] <= _MOST_EDGES:
            return sizes[0], sizes[1], sizes[2], sizes[3]
    return None


def _graph(nodes: int, edges: int, features: int, classes: int) -> Any:
    """Return a graph whose nodes have neighbours by chance, in both directions."""
    half = torch.randint(nodes, (2, edges // 2), generator=torch.Generator().manual_seed(0))
    order = torch.arange(nodes)
    train = min(_TRAIN * classes, nodes // 2)
    return sys.modules["torch_geometric.data"].Data(
        x=torch.zeros(nodes, features),
        edge_index=torch.cat([half, half.flip(0)], 1),
        y=order % classes,
        train_mask=order < train,
        val_mask=(order >= train) & (order < train + _VALIDATION),
        test_mask=order >= nodes - min(_TEST, nodes // 2),
    )
