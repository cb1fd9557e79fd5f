"""Graphs for the data sets of torch_geometric that are not on this machine."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from memlint.script import fake_graphs
from memlint.script.replacing import Replacing


@pytest.fixture
def notes(monkeypatch):
    """Descriptions of what was made up, by a torch_geometric whose graphs are their attributes."""
    texts = []
    data = ModuleType("torch_geometric.data")
    data.Data = SimpleNamespace
    monkeypatch.setitem(sys.modules, "torch_geometric", ModuleType("torch_geometric"))
    monkeypatch.setitem(sys.modules, "torch_geometric.data", data)
    monkeypatch.setattr(fake_graphs, "note_fake_data", texts.append)
    return texts


@pytest.fixture
def module(tmp_path):
    """A module as `torch_geometric.data.dataset`."""

    class Dataset:
        pre_transform = None

        def __init__(self, name):
            self.name = name
            self.raw_dir, self.processed_dir = str(tmp_path / "raw"), str(tmp_path / "processed")
            self.raw_paths, self.processed_paths = [f"{self.raw_dir}/ind.x"], [f"{self.processed_dir}/data.pt"]
            self._download()
            self._process()

        def _download(self):
            raise ConnectionError("Cannot connect to host github.com:443")

        def _process(self):
            self.graphs = "its own"

        def save(self, graphs, _path):
            assert Path(self.processed_dir).is_dir()
            self.graphs = graphs

    return SimpleNamespace(Dataset=Dataset)


def table(module):
    """A data set whose documentation has the sizes of its graphs."""

    class Citations(module.Dataset):
        """Networks of citations.

        .. list-table::
            :header-rows: 1

            * - Name
              - #nodes
              - #edges
              - #features
              - #classes
            * - Small
              - 2,708
              - 10,556
              - 1,433
              - 7
            * - Other
              - ~23.2
              - ~49.8
              - 1
              - 1
        """

    return Citations


def test_a_graph_is_as_large_as_the_documentation_of_its_data_set_says(module, notes):
    with Replacing() as replacing:
        fake_graphs.replace_graphs(module, replacing, fake=True)
        [graph] = table(module)("small").graphs
    assert (graph.x.shape, graph.edge_index.shape, int(graph.y.max())) == ((2708, 1433), (2, 10556), 6)
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [140, 500, 1000]
    assert "2,708 nodes with 1,433 features, 10,556 edges and 7 classes" in notes[0]


def test_data_sets_of_other_graphs_are_downloaded(module, notes):
    with Replacing() as replacing:
        fake_graphs.replace_graphs(module, replacing, fake=True)
        with pytest.raises(ConnectionError):
            table(module)("Other")
        with pytest.raises(ConnectionError):
            module.Dataset("small")
    assert not notes


def test_files_that_are_there_are_read(module, notes, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/ind.x").touch()
    with Replacing() as replacing:
        fake_graphs.replace_graphs(module, replacing, fake=True)
        module.Dataset._download = lambda _self: None
        assert table(module)("Small").graphs == "its own"
    assert not notes
