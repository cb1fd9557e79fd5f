"""Fake graphs for data sets of torch_geometric and OGB that are not on this machine, as large as the real ones.

The documentation of torch_geometric's classes states the sizes ("STATS"). What it lacks, such as attributes of edges,
and OGB's sizes are in `graph_data_sets.json`: from the sources of the classes and the pages of OGB, as of November
2026; edges count in both directions.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from memlint.base.patching import in_place_of
from memlint.workloads.notes import note, note_fake_data

if TYPE_CHECKING:
    from memlint.script.replacing import Replacing

_Array = np.ndarray[Any, Any]
_TABLE = Path(__file__).with_name("graph_data_sets.json")
_PACKAGES = ("torch_geometric.datasets.", "ogb.")
_ROW, _CELL = re.compile(r"\n\s*\* - "), re.compile(r"\n\s*-(?: |$)", re.MULTILINE)
"""Beginnings of a row and of a cell of a table in a docstring."""
_MOST_NODES, _MOST_EDGES = 4_000_000, 16_000_000
"""Most of a data set of several graphs: one with more has fewer graphs, which are as large."""
_MOST_TRANSFORMED = 512
"""Most graphs of a file to which the script's `pre_transform` and `pre_filter` are applied; those that come of it stand
for the others."""
_SCATTERED = 1_000
"""Fewest nodes of a graph whose edges are random: in a smaller one many would be the same."""
_SPLITS = 10
"""Columns of the masks of data sets that are split several times."""
_SEVERAL = "geom-gcn"
"""The split of Planetoid that is of this kind."""
_SMILES = "CC(=O)Oc1ccccc1C(=O)O"
"""A molecule in text: aspirin's."""
_FEW = 100
"""Nodes that an attribute lists which has a few of them."""
_SHARES = (0.6, 0.8)
"""Beginnings of the nodes or graphs to validate and to test with."""


@dataclass(frozen=True)
class _Sizes:
    """Average sizes of the graphs of a data set, and for each attribute what it has an element for."""

    name: str
    graphs: int
    nodes: float
    edges: float
    labels: int
    """Number of classes, or of values to predict."""
    forms: dict[str, str]
    """For each attribute `node`, `edge`, `face`, `graph` or `few`, its columns (0 for a vector), `int` or `float`.

    `int 5` has five different values, and `bool` is a mask that leaves nothing out.
    """


def replace_graphs(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Make the data sets of `torch_geometric.data.dataset` report missing data, or with `fake` replace it."""
    download, process = module.Dataset._download, module.Dataset._process

    @in_place_of(download)
    def downloading(self: Any) -> None:
        sizes = _kinds_of(self) or _sizes_of(self)
        if fake and sizes is not None and not _are_there(self.raw_paths):
            return  # `processing` makes them up
        try:
            download(self)
        except OSError as error:
            able = ", or add --fake-data to use fake graphs" if sizes else ""
            note(error, f"wants the data set {_name_of(self)}, which is not in {self.root}", f"put it there{able}")
            raise

    @in_place_of(process)
    def processing(self: Any) -> None:
        if fake and (kinds := _kinds_of(self)) and not (_are_there(self.raw_paths) or _are_there(self.processed_paths)):
            nodes, edges = sum(count for count, _ in kinds["nodes"].values()), sum(kinds["edges"].values())
            note_fake_data(
                f"the data set {_name_of(self)} is not in {self.root}: replaced by {nodes:,} nodes of "
                f"{len(kinds['nodes'])} kinds and {edges:,} edges"
            )
            _write_kinds(self, kinds)
            return
        sizes = _sizes_of(self) if fake and not _are_there(self.raw_paths) else None
        if sizes is None or _are_there(self.processed_paths):
            process(self)
            return
        count = f"{sizes.graphs:,} graphs with on average" if sizes.graphs > 1 else "a graph with"
        note_fake_data(
            f"the data set {_name_of(self)} is not in {self.root}: replaced by {count} {sizes.nodes:,.10g} nodes and "
            f"{sizes.edges:,.10g} edges"
        )
        Path(self.processed_dir).mkdir(parents=True, exist_ok=True)
        paths = self.processed_paths
        ends = [0, *(int(sizes.graphs * _SHARES[1]) + number for number in range(len(paths) - 1)), sizes.graphs]
        for path, begin, end in zip(paths, ends, ends[1:], strict=False):
            written = _write(self, path, sizes, max(1, end - begin))
        if hasattr(self, "get_idx_split"):
            _write_split(self, int(sizes.nodes) if sizes.graphs == 1 else written)

    replacing.put(module.Dataset, "_download", downloading)
    replacing.put(module.Dataset, "_process", processing)


def _are_there(paths: list[str]) -> bool:
    return bool(paths) and all(Path(path).exists() for path in paths)


def _name_of(data_set: Any) -> str:
    name = getattr(data_set, "name", "")
    return f"{type(data_set).__name__} {name}".strip()


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(_TABLE.read_text())
    return table | {"forms": {name.lower(): forms for name, forms in table["forms"].items()}}


def _kinds_of(data_set: Any) -> dict[str, Any] | None:
    """Return the kinds of nodes and edges of a data set whose class is torch_geometric's; None if there is one."""
    own = type(data_set)
    kinds: dict[str, dict[str, Any]] = _table()["kinds"]
    return kinds.get(own.__name__) if own.__module__.startswith(_PACKAGES) else None


def _write_kinds(data_set: Any, kinds: dict[str, Any]) -> None:
    """Write a graph of several kinds of nodes and edges, each kind with its features and labels."""
    data = importlib.import_module("torch_geometric.data").HeteroData()
    random = np.random.default_rng(0)
    for name, (count, columns) in kinds["nodes"].items():
        if columns:
            data[name].x = torch.from_numpy(random.random((count, columns), np.float32))
        else:
            data[name].num_nodes = count
    for name, count in kinds["edges"].items():
        source, relation, target = name.split()
        ends = [random.integers(kinds["nodes"][end][0], size=count) for end in (source, target)]
        data[source, relation, target].edge_index = torch.from_numpy(np.stack(ends))
    for name, number in kinds["labels"].items():
        if name in kinds["nodes"]:
            count, _ = kinds["nodes"][name]
            data[name].y = torch.from_numpy(np.arange(count) % number)
            for mask, value in _masks(data_set, count).items():
                data[name][mask] = value
        else:
            data[tuple(name.split())].edge_label = torch.from_numpy(np.arange(kinds["edges"][name]) % number)
    for name, count in kinds.get("held_out", {}).items():
        source, relation, target = name.split()
        data[source, relation, target].edge_label_index = data[source, relation, target].edge_index[:, :count]
    data = data if data_set.pre_transform is None else data_set.pre_transform(data)
    Path(data_set.processed_dir).mkdir(parents=True, exist_ok=True)
    torch.save((data.to_dict(), None, type(data)), data_set.processed_paths[0])


def _sizes_of(data_set: Any) -> _Sizes | None:
    """Return the sizes of a data set whose class is torch_geometric's or OGB's; None where nothing states them."""
    own = next(cls for cls in type(data_set).__mro__ if "process" in vars(cls) and not _hands_on(vars(cls)["process"]))
    if not own.__module__.startswith(_PACKAGES):
        return None
    name = str(getattr(data_set, "name", ""))
    known, keys = _table()["sizes"], (name, f"{own.__name__} {name}".strip(), own.__name__)
    columns, row = (
        ["#graphs", "#nodes", "#edges", "#features", "#classes"],
        next(filter(None, map(known.get, keys)), None),
    )
    if row is None:
        columns, row = _stated(own, data_set)
    if row is None or "#nodes" not in columns:
        return None
    numbers = dict(zip(columns, (_number(cell) for cell in row), strict=False))
    graphs, nodes, edges = int(numbers.get("#graphs", 1)), numbers["#nodes"], numbers.get("#edges", 0)
    if graphs > 1:
        most = min(_MOST_NODES / nodes, _MOST_EDGES / max(edges, 1))
        graphs = min(graphs, max(_MOST_TRANSFORMED, int(most)))
    if own.__name__ in _table()["counted_once"]:
        edges *= 2
    labels = int(numbers.get("#classes", numbers.get("#tasks", 0)))
    forms = {"edge_index": "edge"}
    if features := int(numbers.get("#features", 0)):
        forms["x"] = f"node {features} float"
    if labels:
        holder = "node" if graphs == 1 else "graph"
        forms["y"] = f"{holder} {labels} float" if "#tasks" in columns or labels == 1 else f"{holder} 0 int"
    known = _table()["forms"]
    for key in (own.__name__, f"{own.__name__} {name}", name[: len("ogbg-mol")], name):
        forms |= known.get(key.lower(), {})
    return _Sizes(name, graphs, nodes, edges, labels, {k: form for k, form in forms.items() if form})


def _hands_on(method: Any) -> bool:
    """Return True for a method that only calls the one of the same name in the class before."""
    code = method.__code__
    return (
        not set(code.co_names) - {"super", code.co_name, "self"} - set(method.__globals__) and "super" in code.co_names
    )


def _stated(cls: type, data_set: Any) -> tuple[list[str], list[str] | None]:
    """Return the columns and this data set's row of the table in the documentation of its class."""
    _, _, text = (cls.__doc__ or "").partition("STATS")
    columns, *rows = [[cell.strip() for cell in _CELL.split(row)] for row in _ROW.split(text)[1:]] or [[]]
    if columns[:1] != ["Name"]:
        return columns, next(iter(rows), None)
    fields = {key: value for key, value in vars(data_set).items() if not key.startswith("_")}
    names = {_plain(value) for value in fields.values() if isinstance(value, str)}
    names |= {_plain(key) for key, value in fields.items() if value is True}
    full_names = getattr(data_set, "names", None)
    if isinstance(full_names, dict):  # MoleculeNet's, of addresses and the like
        names |= {_plain(str(value)) for value in full_names.get(fields.get("name"), ())}
    named = {_plain(row[0]): row[1:] for row in rows}
    exact = (row for name, row in named.items() if name in names)
    part = (row for name, row in named.items() if any(each and name.endswith(each) for each in names))
    return columns[1:], next(exact, None) or next(part, None)


def _plain(text: str) -> str:
    return re.sub(r"\W|_", "", text).lower()


def _number(cell: str) -> float:
    digits = cell.replace(",", "").lstrip("~")
    return float(digits) if re.fullmatch(r"[\d.]+", digits) else 0


def _write(data_set: Any, path: str, sizes: _Sizes, graphs: int) -> int:
    """Write a file that a data set's constructor reads next, and return the number of graphs in it.

    They are those that the script's `pre_filter` and `pre_transform` leave.
    """
    parts: Any = importlib.import_module("torch_geometric.data")
    Data, InMemoryDataset = parts.Data, parts.InMemoryDataset  # noqa: N806 -- their own names
    change = data_set.pre_transform, data_set.pre_filter
    times = graphs // _MOST_TRANSFORMED if any(change) else 1
    if times > 1:
        graphs = _MOST_TRANSFORMED
    values, slices = _graphs(data_set, sizes, graphs)
    data = Data.from_dict(values)
    if any(change):
        several = InMemoryDataset.__new__(InMemoryDataset)
        several.__dict__ |= {"_data": data, "slices": slices, "_data_list": None, "_indices": None, "transform": None}
        graphs_of = [several.get(number) for number in range(graphs)]
        kept = [each for each in graphs_of if data_set.pre_filter is None or data_set.pre_filter(each)]
        made = [each if data_set.pre_transform is None else data_set.pre_transform(each) for each in kept]
        data, slices = InMemoryDataset.collate(made)
        graphs = len(made)
        if times > 1 and slices is not None:
            _repeat(data, slices, times)
            graphs *= times
    if hasattr(type(data_set), "num_node_labels"):  # TUDataset's file
        counts = dict.fromkeys(("num_node_attributes", "num_edge_labels", "num_edge_attributes"), 0)
        counts["num_node_labels"] = 0 if data.x is None else data.x.size(1)
        torch.save((data.to_dict(), slices, counts, Data), path)
    elif hasattr(data_set, "get_idx_split"):  # OGB's, which reads it as files were read before PyTorch 2.6
        stored = parts.data.DataEdgeAttr, parts.data.DataTensorAttr, parts.storage.GlobalStorage
        torch.serialization.add_safe_globals([Data, *stored])
        torch.save((data, slices), path)
    else:
        torch.save((data.to_dict(), slices, Data), path)
    return graphs


def _repeat(data: Any, slices: dict[str, Any], times: int) -> None:
    """Let the graphs in a row come so many times: a script may split them by number."""
    for name, ends in slices.items():
        value = data[name]
        if isinstance(value, torch.Tensor):
            dim = data.__cat_dim__(name, value)
            data[name] = torch.from_numpy(np.concatenate([value.numpy()] * times, dim))
        else:
            data[name] = value * times
        slices[name] = torch.from_numpy(np.append(0, np.tile(np.diff(ends.numpy()), times).cumsum()))


def _write_split(data_set: Any, number: int) -> None:
    """Write the file in which OGB looks for which of so many nodes or graphs train, validate and test."""
    train, valid = (int(number * share) for share in _SHARES)
    numbers = map(torch.from_numpy, np.split(np.arange(number), (train, valid)))
    parts = dict(zip(("train", "valid", "test"), numbers, strict=True))
    folder = Path(data_set.root, "split", data_set.meta_info["split"])
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(parts, folder / "split_dict.pt")


def _graphs(data_set: Any, sizes: _Sizes, graphs: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the attributes of all graphs in a row, and where each graph begins in them (None for one graph).

    They are made by NumPy: the host's large tensors have no values here, but those of arrays have.
    """
    numbers = np.arange(graphs + 1)
    begins = {
        "node": (numbers * max(1.0, sizes.nodes)).astype(np.int64),
        "edge": (numbers * sizes.edges).astype(np.int64),
        "face": (numbers * sizes.edges / 3).astype(np.int64),
        "graph": numbers,
        "few": numbers * _FEW,
    }
    random = np.random.default_rng(0)
    values, slices = {}, {}
    for name, form in sizes.forms.items():
        holder, *rest = form.split()
        slices[name] = torch.from_numpy(begins[holder])
        if holder == "face":
            value: Any = _corners(begins, random)
        elif name == "smiles":
            value = [_SMILES] * graphs
        elif not rest:
            value = _edges(begins, random)
        else:
            columns, kind, *values_of = rest
            labels = int(values_of[0]) if values_of else sizes.labels if name == "y" else 0
            value = _attribute(name, int(begins[holder][-1]), int(columns), kind, labels, random)
        values[name] = value if isinstance(value, list) else torch.from_numpy(value)
    if not any(form.startswith("node") for name, form in sizes.forms.items() if name != "y"):
        nodes = np.diff(begins["node"]).tolist()
        values |= {"num_nodes": nodes[0]} if graphs == 1 else {"num_nodes": sum(nodes), "_num_nodes": nodes}
    if graphs > 1:
        return values, slices
    return _masks(data_set, int(begins["node"][-1])) | values, None


def _attribute(name: str, number: int, columns: int, kind: str, labels: int, random: np.random.Generator) -> _Array:
    shape = (number, columns) if columns else (number,)
    if name == "y":  # with each class in it; values to predict are 0 and 1
        label = np.arange(number) % (labels if kind == "int" and columns <= 1 else 2)
        values = np.empty(shape, np.int64 if kind == "int" else np.float32)
        values[:] = label[:, None] if columns else label
        return values
    if kind == "bool":
        return np.ones(shape, bool)
    if labels:
        return np.arange(number) % labels
    return random.random(shape, np.float32) if kind == "float" else np.zeros(shape, np.int64)


def _edges(begins: dict[str, _Array], random: np.random.Generator) -> _Array:
    """Return (2, edges): each edge, and after it the other direction; in small graphs no edge twice."""
    nodes, edges = np.diff(begins["node"]), np.diff(begins["edge"])
    both = np.empty((2, int(begins["edge"][-1])), np.int64)
    if nodes[0] < _SCATTERED:
        sizes = nodes.repeat(edges)
        pairs = (np.arange(sizes.size) - begins["edge"][:-1].repeat(edges)) // 2
        both[0] = pairs % sizes
        both[1] = (both[0] + 1 + pairs // sizes) % sizes
    elif len(nodes) == 1:
        both[:] = random.integers(nodes[0], size=both.shape)
    else:
        both[:] = random.random(both.shape, np.float32) * nodes.repeat(edges)
    count = both.shape[1] // 2 * 2
    both[:, 1:count:2] = both[::-1, :count:2]
    return both


def _corners(begins: dict[str, _Array], random: np.random.Generator) -> _Array:
    """Return (3, faces): nodes of the same graph."""
    sizes = np.diff(begins["node"]).repeat(np.diff(begins["face"]))
    corners: _Array = (random.random((3, sizes.size), np.float32) * sizes).astype(np.int64)
    return corners


def _masks(data_set: Any, nodes: int) -> dict[str, Any]:
    """Return the masks of the nodes of a single graph, if the class makes any."""
    source = inspect.getsource(type(data_set))
    if "_mask" not in source:
        return {}
    place = np.arange(nodes) / nodes
    train, valid = _SHARES
    masks = {"train": place < train, "val": (place >= train) & (place < valid), "test": place >= valid}
    several = "train_masks" in source and getattr(data_set, "split", _SEVERAL) == _SEVERAL
    return {
        f"{name}_mask": torch.from_numpy(mask[:, None].repeat(_SPLITS, 1) if several else mask)
        for name, mask in masks.items()
    }
