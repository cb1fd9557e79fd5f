"""Data sets of graphs that are not there: as large as their documentation says, and whole."""

import inspect
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest

from memlint.script import fake_graphs
from tests.script.isolated import needs, run

STATS = """Citations.

    **STATS:**

    .. list-table::
        :widths: 10 10 10 10 10
        :header-rows: 1

        * - Name
          - #nodes
          - #edges
          - #features
          - #classes
        * - Cora
          - 2,708
          - 10,556
          - 1,433
          - 7
        * - CiteSeer
          - 3,327
          - 9,104
          - 3,703
          - 6
"""
TASKS = STATS.replace("Name", "#graphs").replace("#classes", "#tasks").replace("Cora", "100").replace("10,556", "~31.5")


def _data_set(doc, module="torch_geometric.datasets.planetoid", **fields):
    members = {"__doc__": doc, "__module__": module, "process": lambda self: None}
    return type("Planetoid", (SimpleNamespace,), members)(**fields)


def test_sizes_are_those_of_the_row_that_is_asked_for():
    sizes = fake_graphs._sizes_of(_data_set(STATS, name="citeseer"))
    assert (sizes.graphs, sizes.nodes, sizes.edges, sizes.labels) == (1, 3327, 9104, 6)
    assert sizes.forms == {"edge_index": "edge", "x": "node 3703 float", "y": "node 0 int"}


def test_several_graphs_with_values_to_predict():
    sizes = fake_graphs._sizes_of(_data_set(TASKS, name="x"))
    assert (sizes.graphs, sizes.nodes, sizes.edges) == (100, 2708, 31.5)
    assert sizes.forms["y"] == "graph 7 float"


def test_what_the_documentation_lacks_is_known_by_the_class_or_the_name():
    molecules = fake_graphs._sizes_of(_data_set(None, "ogb.graphproppred.dataset_pyg", name="ogbg-molhiv"))
    assert (molecules.graphs, molecules.nodes, molecules.forms["x"], molecules.forms["edge_attr"]) == (
        *(41127, 25.5, "node 9 int"),
        "edge 3 int",
    )
    papers = fake_graphs._sizes_of(_data_set(None, "ogb.nodeproppred.dataset_pyg", name="ogbn-arxiv"))
    assert (papers.graphs, papers.edges, papers.forms["y"]) == (1, 1166243, "node 1 int")


@pytest.mark.parametrize("module", ["mine.graphs", "torch_geometric.datasets.other"])
def test_a_data_set_without_known_sizes_is_not_made_up(module):
    assert fake_graphs._sizes_of(_data_set("Nothing is stated.", module, name="x")) is None


def test_graphs_have_the_sizes_on_average_and_every_edge_in_both_directions_once():
    sizes = fake_graphs._Sizes("", 10, 20.5, 40.0, 3, {"edge_index": "edge", "x": "node 4 float", "y": "graph 0 int"})
    values, slices = fake_graphs._graphs(None, sizes, 10)
    assert (values["x"].shape, values["y"].tolist()) == ((205, 4), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0])
    for number in range(10):
        nodes = slices["x"].diff()[number].item()
        begin, end = slices["edge_index"][number : number + 2].tolist()
        pairs = [tuple(pair) for pair in values["edge_index"][:, begin:end].T.tolist()]
        assert len(set(pairs)) == 40
        assert {(b, a) for a, b in pairs} == set(pairs)
        assert all(a != b and max(a, b) < nodes for a, b in pairs)


def test_one_large_graph_has_edges_all_over_and_masks_if_its_class_has(monkeypatch):
    monkeypatch.setattr(inspect, "getsource", lambda _cls: "data.train_mask = ...")
    sizes = fake_graphs._Sizes(
        "", 1, 5000.0, 30001.0, 7, {"edge_index": "edge", "x": "node 4 float", "y": "node 0 int"}
    )
    values, slices = fake_graphs._graphs(object(), sizes, 1)
    edges = values["edge_index"]
    assert slices is None
    assert edges.shape == (2, 30001)
    assert len(set(map(tuple, np.sort(edges.T.numpy(), 1).tolist()))) > 14000
    assert (int(values["train_mask"].sum()), int(values["val_mask"].sum())) == (3000, 1000)
    assert int(values["y"].max()) == 6


@needs("torch_geometric")
def test_a_script_trains_on_the_graph_of_a_data_set_that_is_not_there(tmp_path):
    ran = run(
        tmp_path / "p",
        textwrap.dedent("""\
        from torch_geometric.datasets import Planetoid, TUDataset, QM9
        from torch_geometric.loader import DataLoader
        cora = Planetoid("data", "Cora")
        print(cora.num_features, cora.num_classes, cora[0].edge_index.shape, cora[0].train_mask.shape)
        proteins = TUDataset("data", "PROTEINS")
        batch = next(iter(DataLoader(proteins, 32)))
        print(len(proteins), proteins.num_features, batch.num_graphs, batch.x.shape, batch.y.shape)
        print(len(QM9("data/qm9")), QM9("data/qm9")[7].y.shape)
        """),
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "1433 7 torch.Size([2, 10556]) torch.Size([2708])",
        "1113 3 32 torch.Size([1251, 3]) torch.Size([32])",
        "130831 torch.Size([1, 19])",
    ]


@needs("torch_geometric")
def test_a_class_of_the_scripts_that_hands_on_to_the_librarys_has_all_graphs_after_its_own_transform(tmp_path):
    ran = run(
        tmp_path / "p",
        textwrap.dedent("""\
        from torch_geometric.data import Data
        from torch_geometric.datasets import QM9
        from torch_geometric.loader import DataLoader
        class Molecules(QM9):
            def __init__(self, root):
                super(Molecules, self).__init__(root, pre_transform=lambda each: Data(pos=each.pos, z=each.z, y=each.y))
            def download(self):
                super(Molecules, self).download()
            def process(self):
                super(Molecules, self).process()
        molecules = Molecules("data")
        batch = next(iter(DataLoader(molecules[len(molecules) - 8:], 8)))
        print(len(molecules) > 130_000, sorted(batch.keys()), batch.z.shape, batch.y.shape, int(batch.batch.max()))
        """),
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["True ['batch', 'pos', 'ptr', 'y', 'z'] torch.Size([144]) torch.Size([8, 19]) 7"]


def test_sizes_may_be_known_by_the_class_and_the_name():
    members = {"__module__": "torch_geometric.datasets.airports", "process": lambda self: None}
    sizes = fake_graphs._sizes_of(type("Airports", (SimpleNamespace,), members)(name="usa"))
    assert (sizes.graphs, sizes.nodes, sizes.labels, sizes.forms["x"]) == (1, 1190, 4, "node 1190 float")
    words = fake_graphs._sizes_of(type("WordNet18RR", (SimpleNamespace,), members)())
    assert (words.nodes, words.edges, words.forms["edge_type"]) == (40943, 93003, "edge 0 int 11")


def test_an_attribute_may_have_some_different_values_or_leave_nothing_out():
    random = np.random.default_rng(0)
    assert fake_graphs._attribute("edge_type", 23, 0, "int", 11, random).max() == 10
    assert fake_graphs._attribute("test_mask", 4, 2, "bool", 0, random).all()
    assert fake_graphs._attribute("z", 4, 0, "int", 0, random).tolist() == [0, 0, 0, 0]


@needs("torch_geometric")
def test_a_graph_of_several_kinds_has_them_all(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from torch_geometric.datasets import AmazonBook, IMDB, MovieLens
        data = IMDB("nowhere")[0]
        print(data["movie"].x.shape, data["movie"].y.max().item(), data["movie"].train_mask.sum().item() > 0)
        print(MovieLens("elsewhere")[0]["user", "movie"].edge_label.max().item())
        print(AmazonBook("there")[0]["user", "book"].edge_label_index.shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["torch.Size([4278, 3066]) 2 True", "4", "torch.Size([2, 603378])"]
