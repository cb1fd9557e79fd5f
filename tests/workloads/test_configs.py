"""Models that only a config describes, without a script that reads it."""

import sys
from pathlib import Path

import pytest

from memlint.workloads.construction.construct import build_object, complete, settings_of
from memlint.workloads.discover import find_workloads
from memlint.workloads.loading import load_file
from tests.script.isolated import needs

NETS = """
class Head(nn.Module):
    def __init__(self, width, classes=2):
        super().__init__()
        self.layer = nn.Linear(width, classes)
    def forward(self, x): return self.layer(x)
class Encoder(nn.Module):
    def __init__(self, depth, width):
        super().__init__()
        self.width, self.layers = width, nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))
    def forward(self, x): return self.layers(x)
class Net(nn.Module):
    def __init__(self, encoder, head, size=None):
        super().__init__()
        self.size = None if size is None else size.rows
        self.encoder = encoder
        self.head = head(encoder.width) if callable(head) and not isinstance(head, nn.Module) else head
    def forward(self, x): return self.head(self.encoder(x))
"""
REGISTRY = "KINDS = {}\ndef register(kind): KINDS[kind.__name__] = kind; return kind\n"
HYDRA = {
    "configs/train.yaml": "defaults:\n  - _self_\n  - model: small\n  - data: words\nwidth: 24\n",
    "configs/eval.yaml": "defaults:\n  - model: small\nwidth: 2\n",
    "configs/data/words.yaml": "batch_size: ${eval:'4 * 12'}\nclasses: 7\n",
    "configs/model/small.yaml": """
_target_: model.Net
encoder: {_target_: model.Encoder, _args_: ["${double:2}", "${width}"]}
head: {_target_: model.Head, _partial_: true, classes: "${data.classes}"}
size: {rows: 5}
""",
    "configs/model/large.yaml": "_target_: model.Net\nencoder: {_target_: model.Encoder, depth: 9, width: 512}\n",
    "resolvers.py": """
from omegaconf import OmegaConf
def twice(number): return 2 * number
OmegaConf.register_new_resolver("double", lambda number: twice(number))
OmegaConf.register_new_resolver("eval", eval)
""",
}


@pytest.fixture
def project(write, tmp_path):
    def written(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return write(NETS)

    return written


def model_of(workload):
    module = load_file(Path(workload.path))
    return build_object(getattr(module, workload.qualname), workload).model


@needs("hydra")
def test_a_config_is_composed_resolved_and_instantiated_as_hydra_does(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = project(HYDRA)
    (workload,) = find_workloads(str(path), tmp_path).workloads
    assert (workload.qualname, workload.batch) == ("Net", 48)
    model = model_of(workload)
    assert (len(model.encoder.layers), model.encoder.width) == (4, 24)
    assert (model.head.layer.in_features, model.head.layer.out_features, model.size) == (24, 7, 5)
    assert workload.built_by == "as configs/model/small.yaml builds it"
    completed, _ = complete(workload)
    assert [each.described(completed.dimensions) for each in completed.inputs] == ["x [batch, 24] float32"]
    placed = {each.text: (each.frame.path, each.frame.line) for each in settings_of(workload) if each.found}
    assert placed["batch 48: batch_size: 48"] == (str(tmp_path / "configs/data/words.yaml"), 1)


@needs("hydra")
def test_what_hydra_cannot_make_is_said_with_the_config(project, tmp_path):
    files = {
        "net.yaml": "_target_: model.Net\nencoder: {_target_: model.Encoder, depth: 2}\nhead: {_target_: model.Hat}"
    }
    discovery = find_workloads(str(project(files)), tmp_path)
    reasons = {each.name: each.reason for each in discovery.left_out}
    assert "hydra cannot make what net.yaml says" in reasons["Net"]


def test_where_hydra_is_missing_it_is_named_with_its_package(project, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "hydra.utils", None)
    files = {"net.yaml": "_target_: model.Net\nencoder: {_target_: model.Encoder, depth: 2, width: 8}\nhead: null"}
    discovery = find_workloads(str(project(files)), tmp_path)
    (net,) = (each for each in discovery.left_out if each.name == "Net")
    assert "net.yaml is a config of hydra, which is not installed" in net.reason
    assert "pip install hydra-core" in net.hint


@pytest.mark.parametrize(
    "files",
    [
        {  # LightningCLI
            "net.yaml": "model:\n  class_path: model.Net\n  init_args:\n"
            "    encoder: {class_path: model.Encoder, init_args: {depth: 3, width: 24}}\n"
            "    head: {class_path: model.Head, init_args: {width: 24, classes: 7}}\ndata: {init_args: {batch_size: 48}}\n"
        },
        {  # a registry: entries name each other, and a config is written over those that it includes
            "configs/net.yml": "_base_: [parts/base.yml, parts/data.yml]\nEncoder: {depth: 3}\nHead: {classes: 7}\n",
            "configs/parts/base.yml": "model: Net\nNet: {encoder: Encoder, head: Head}\nEncoder: {depth: 1, width: 24}\n"
            "Head: {width: 24}\n",
            "configs/parts/data.yml": "train: {total_batch_size: 48}\n",
            "registry.py": REGISTRY,
        },
        {  # a registry: mappings with a type
            "net.yaml": "model: {type: Net, encoder: {type: Encoder, depth: 3, width: 24}, "
            "head: {type: Head, width: 24, classes: 7}}\ntrain_batch_size: 48\n"
        },
    ],
    ids=["class_path", "keys", "type"],
)
def test_objects_that_a_config_names_are_made_of_the_projects_classes(project, tmp_path, monkeypatch, files):
    monkeypatch.chdir(tmp_path)
    (workload,) = find_workloads(str(project(files)), tmp_path).workloads
    assert (workload.qualname, workload.batch) == ("Net", 48)
    model = model_of(workload)
    assert (len(model.encoder.layers), model.encoder.width, model.head.layer.out_features) == (3, 24, 7)
    name = next(name for name in files if "parts" not in name)
    assert workload.built_by == f"as {name} builds it"


def test_a_class_beside_others_within_another_one_is_called_a_part_of_it(project, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (
        "model:\n  target: engine.Engine\n  params:\n    encoder_config: {target: model.Net, params: {size: 4}}\n"
        "    decoder_config: {target: engine.Decoder, params: {}}\n"
    )
    engine = "class Engine:\n    def __init__(self, encoder_config, decoder_config): ...\nclass Decoder: ...\n"
    path = project({"configs/vae.yaml": text, "engine.py": engine})
    path.write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, *, size):\n        super().__init__()\n"
        "        self.layer = nn.Linear(size, 3)\n    def forward(self, x): return self.layer(x)\n"
    )
    (workload,) = find_workloads(str(path), tmp_path).workloads
    assert workload.built_by == "as configs/vae.yaml builds it, a part of Engine"


def test_a_class_that_makes_its_parts_itself_gets_what_the_config_says(project, tmp_path):
    path = project({"net.yaml": "type: Whole\nhead: {type: Head, width: 24}\n"})
    path.write_text(
        path.read_text() + "class Whole(nn.Module):\n    def __init__(self, head):\n        super().__init__()\n"
        "        self.head = globals()[head.pop('type')](**head)\n    def forward(self, x): return self.head(x)\n"
    )
    (workload,) = find_workloads(str(path), tmp_path).workloads
    assert workload.arguments == {"head": {"type": "Head", "width": 24}}


def test_a_config_for_training_comes_before_one_for_evaluation(project, tmp_path):
    path = project({"a_eval.yaml": "Head: {width: 4}\n", "base.yaml": "Head: {width: 8}\n"})
    (workload,) = find_workloads(f"{path}::Head", tmp_path).workloads
    assert workload.arguments == {"width": 8}


@pytest.mark.parametrize(
    ("config", "optimizer"),
    [
        ("model: {type: Head, width: 8}\noptimizer: {type: RMSprop, lr: 0.1}\n", "rmsprop"),
        (
            "model: {class_path: model.Head, init_args: {width: 8}}\noptim: {class_path: torch.optim.Adagrad}\n",
            "adagrad",
        ),
        ("Head: {width: 8}\noptimizer: {name: SGD, momentum: 0.9}\n", "sgd-momentum"),
        ("Head: {width: 8}\noptimizer: {name: Mystery}\n", "adamw"),
    ],
)
def test_the_optimizer_of_a_config_is_that_of_the_step(project, tmp_path, config, optimizer):
    (workload,) = find_workloads(f"{project({'net.yaml': config})}::Head", tmp_path).workloads
    assert workload.optimizer == optimizer


def test_the_width_that_a_config_gives_a_class_is_no_size_of_images(project, tmp_path):
    path = project({"net.yaml": "Wide: {input_size: 784}\n"})
    path.write_text(
        path.read_text() + "class Wide(nn.Module):\n    def __init__(self, input_size):\n        super().__init__()\n"
        "        self.layer = nn.Linear(input_size, 4)\n    def forward(self, x): return self.layer(x)\n"
    )
    (workload,) = find_workloads(f"{path}::Wide", tmp_path).workloads
    assert workload.sizes == {}
