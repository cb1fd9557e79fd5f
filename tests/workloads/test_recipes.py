"""Models are built and trained as the project's own files do it."""

import pytest

from memlint.workloads.build.construct import complete, settings_of
from memlint.workloads.discover import find_workloads

NET = """
import torch
from torch import nn
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Conv2d(width, width, 3, padding=1)
    def forward(self, x): return self.layer(x)
class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, block=Block, bilinear=False):
        super().__init__()
        self.first = nn.Conv2d(n_channels, 8, 3, padding=1)
        self.block = block(8)
        self.last = nn.Conv2d(8, n_classes, 1)
    def forward(self, x): return self.last(self.block(self.first(x)))
"""

TRAIN = """
import argparse
import torch
from torchvision import transforms
from torch.utils.data import DataLoader
from model import UNet

def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--classes", "-c", type=int, default=2)
    parser.add_argument("--batch-size", default="12", type=int)
    return parser.parse_args()

def train(model, args):
    crop = transforms.RandomCrop(40)
    loader = DataLoader([], batch_size=args.batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).mean()
        loss.backward()
        optimizer.step()

if __name__ == "__main__":
    args = get_args()
    channels = 3 if args.classes else 1
    train(UNet(n_channels=channels, n_classes=args.classes), args)
"""


def the_only(path):
    (workload,) = find_workloads(str(path), path.parent).workloads
    return workload


def texts(workload):
    return [(each.text, each.frame.line) for each in settings_of(workload) if each.found]


def test_a_training_script_says_how_the_model_is_built_and_trained(write):
    path = write(NET)
    (path.parent / "train.py").write_text(TRAIN)
    workload = the_only(path)
    assert workload.arguments == {"n_channels": 3, "n_classes": 2}
    assert (workload.batch, workload.optimizer, workload.dtype) == (12, "sgd-momentum", "bf16-amp")
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 3, 40, 40)
    line = TRAIN.splitlines().index("    train(UNet(n_channels=channels, n_classes=args.classes), args)") + 1
    assert texts(workload)[0] == (f"built as train.py:{line} does: UNet(n_channels=3, n_classes=2)", line)
    assert not workload.assumed


def test_what_was_typed_counts_more_than_what_the_project_says(write):
    path = write(NET)
    (path.parent / "train.py").write_text(TRAIN)
    (workload,) = find_workloads(str(path), path.parent, overrides={"batch": 5}).workloads
    assert (workload.batch, workload.optimizer) == (5, "sgd-momentum")
    (workload,) = find_workloads(f"{path}::UNet(1, n_classes=7)", path.parent).workloads
    assert (workload.arguments, workload.batch) == ({"0": 1, "n_classes": 7}, 8)


def test_scripts_come_before_tests_and_those_before_documents(write):
    path = write(NET)
    (path.parent / "README.md").write_text(
        "# Net\n\n```python\n>>> from model import UNet\n>>> net = UNet(4, 4)\n```\n"
    )
    assert the_only(path).arguments == {"n_channels": 4, "n_classes": 4}
    assert texts(the_only(path))[0] == ("built as README.md:5 does: UNet(n_channels=4, n_classes=4)", 5)
    write("from model import UNet\ndef test_net():\n    UNet(1, 1)\n", "test_net.py")
    assert the_only(path).arguments == {"n_channels": 1, "n_classes": 1}
    (path.parent / "train.py").write_text(TRAIN)
    assert the_only(path).arguments == {"n_channels": 3, "n_classes": 2}


def test_a_class_of_the_same_name_of_another_file_says_nothing(write):
    path = write(NET)
    write(NET.replace("model", "other"), "other.py")
    write(TRAIN.replace("from model", "from other"), "train.py")
    workload = the_only(path)
    assert workload.guessed == {"n_channels": 3, "n_classes": 10}
    assert not texts(workload)


def test_a_name_of_the_file_and_a_nested_call_are_made(write):
    path = write(NET)
    code = "from model import Block, UNet\nimport model\ndef main():\n    UNet(3, 2, model.Block)\n    x.backward()\n"
    write(code, "train.py")
    workload = the_only(path)
    assert str(workload.arguments["block"]) == "model.Block"
    assert complete(workload, path.parent)[0].inputs[0].shape[1] == 3


def test_settings_of_a_config_file_reach_the_model(write):
    path = write(
        NET.replace("n_channels, n_classes, block=Block, bilinear=False", "config").replace(
            "n_channels, 8", 'config["channels"], 8').replace("n_classes, 1", "config.head.classes, 1").replace(
            "block(8)", "Block(8)"
        )
    )  # fmt: skip
    (path.parent / "config.json").write_text('{"channels": 5, "head": {"classes": 9}}')
    code = "import json\nfrom model import UNet\nconfig = Config(json.load(open('x')))\nUNet(config)\nloss.backward()\n"
    write(code, "train.py")
    assert complete(the_only(path), path.parent)[0].inputs[0].shape[1] == 5


def test_a_yaml_or_json_config_that_names_the_class_gives_its_arguments(write):
    path = write(NET)
    (path.parent / "config.json").write_text('{"m": {"_target_": "model.UNet", "n_channels": 6, "n_classes": 3}}')
    assert the_only(path).arguments == {"n_channels": 6, "n_classes": 3}


def test_a_config_of_something_else_of_that_name_says_nothing(write):
    path = write(NET)
    (path.parent / "environment.yml").write_text("name: UNet\nchannels: [pytorch]\ndependencies: [python]\n")
    assert not any("built as" in text for text, _line in texts(the_only(path)))


def test_sizes_are_made_up_where_nothing_says_them_and_every_one_is_a_number(write):
    workload = the_only(write(NET))
    assert workload.name == "UNet"  # not its part
    assert workload.guessed == {"n_channels": 3, "n_classes": 10}


def test_models_that_no_script_builds_are_left_out_beside_one_that_is_built(write):
    path = write(NET + "class Other(UNet):\n    def __init__(self): super().__init__(3, 3)\n")
    (path.parent / "train.py").write_text(TRAIN)
    found = find_workloads(str(path), path.parent)
    assert [each.name for each in found.workloads] == ["UNet"]
    assert {each.name: each.reason for each in found.left_out}["Other"] == "no script of the project builds it"


def test_the_part_of_a_model_that_cannot_be_built_is_not_taken_for_it(write):
    path = write(
        NET.replace("n_classes, block", "n_classes, head: nn.Module, block").replace("(self, width)", "(self, width=8)")
    )
    found = find_workloads(str(path), path.parent)
    assert not found.workloads
    assert "UNet needs n_channels, n_classes, head" in [each.reason for each in found.left_out]


def test_a_factory_is_called_as_a_script_calls_it(write):
    path = write(NET + "def build(args):\n    return UNet(args.channels, args.classes)\n")
    write(
        "import argparse\nfrom model import build\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--channels', default=2)\nparser.add_argument('--classes', default=4)\n"
        "def main():\n    args = parser.parse_args()\n    build(args)\n    loss.backward()\n",
        "train.py",
    )
    (workload,) = find_workloads(str(path), path.parent).workloads
    assert workload.name == "build"
    assert complete(workload, path.parent)[0].inputs[0].shape[1] == 2


LOOP = """
import torch
{imports}
loader = torch.utils.data.DataLoader([], batch_size=16)
def train(model):
    optimizer = torch.optim.RMSprop(model.parameters())
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("scripts", "batch"),
    [
        ({"main.py": "from nets import *"}, 16),
        ({"main.py": "import nets.model as m"}, 16),
        ({"work/main.py": "from nets.model import other"}, 16),
        ({"main.py": "from elsewhere import model_zoo"}, 8),
        ({"main.py": "from nets import *", "other.py": "import nets"}, 8),
        ({"test_nets.py": "from nets import *"}, 8),
    ],
)
def test_the_only_script_that_trains_what_the_file_has_says_how_whichever_class_it_builds(write, scripts, batch):
    path = write(
        "import torch\nclass Net(torch.nn.Linear):\n    def __init__(self): super().__init__(8, 8)", "nets/model.py"
    )
    root = path.parent.parent
    for name, imports in scripts.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(LOOP.format(imports=imports))
    (workload,) = find_workloads(str(path), root).workloads
    assert (workload.batch, workload.optimizer) == (batch, "rmsprop" if batch == 16 else "adamw")
