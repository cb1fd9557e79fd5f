"""Models are built and trained as the project's own files do it."""

import multiprocessing
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from memlint.base.errors import UsageError, WorkloadError
from memlint.source.call_sites import call_sites
from memlint.source.expressions import Values
from memlint.source.project import Project
from memlint.source.project_files import ProjectFiles
from memlint.source.scopes import scopes
from memlint.source.text import Source
from memlint.source.training_loop import sizes_in_config, sole_loop
from memlint.targets.workload import InputSpec
from memlint.workloads import notes
from memlint.workloads.construction.construct import build_program, complete, settings_of
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


def test_what_another_file_of_the_project_assigns_is_counted(write):
    path = write(NET)
    (path.parent / "text").mkdir()
    (path.parent / "text" / "__init__.py").write_text("from text.symbols import symbols\n")
    (path.parent / "text" / "symbols.py").write_text(
        "from text import sounds\nletters = 'ab'\nsymbols = ['_'] + list(letters) + ['@' + s for s in sounds.known]\n"
    )
    (path.parent / "text" / "sounds.py").write_text("known = ['AA', 'AE', 'AH']\n")
    (path.parent / "train.py").write_text(
        "from model import UNet\nfrom text import symbols\nUNet(3, n_classes=len(symbols))\nloss.backward()\n"
    )
    workload = the_only(path)
    assert workload.arguments == {"n_channels": 3, "n_classes": 6}
    assert not workload.guessed


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


def test_sizes_of_a_config_are_made_up_where_it_has_no_defaults_for_them(write):
    path = write(
        "@dataclass\nclass ModelArgs:\n    d_model: int\n    n_layer: int\n    bias: bool = False\n"
        "class Net(nn.Module):\n    def __init__(self, args: ModelArgs):\n        super().__init__()\n"
        "        layers = [nn.Linear(args.d_model, args.d_model, args.bias) for _ in range(args.n_layer)]\n"
        "        self.layers = nn.Sequential(*layers)\n    def forward(self, x): return self.layers(x)\n"
    )
    workload = the_only(path)
    assert {name: str(value) for name, value in workload.guessed.items()} == {
        "args": "ModelArgs(d_model=512, n_layer=6)"
    }
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 512)
    (workload,) = find_workloads(f"{path}::Net(args=ModelArgs(d_model=4, n_layer=2))", path.parent).workloads
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 4)


def test_sizes_of_a_config_that_only_a_checkpoint_has_are_made_up_and_stand_in_the_headline(write):
    path = write(
        "@dataclass\nclass Sizes:\n    num_bands: int\n    width: int\n"
        "class Net(nn.Module):\n    def __init__(self, sizes: Sizes):\n        super().__init__()\n"
        "        self.layer = nn.Linear(sizes.width, sizes.num_bands)\n    def forward(self, x): return self.layer(x)\n"
    )
    load = "def load():\n    sizes = Sizes(**torch.load('net.pt')['sizes'])\n    return Net(sizes)\n"
    write(f"import torch\nfrom {path.stem} import Net, Sizes\n\n{load}", "load.py")
    workload, assumptions = complete(the_only(path), path.parent)
    assert workload.guessed.keys() == {"num_bands", "width"}
    assert not [each for each in assumptions if "num_bands" in each.text]
    assert [each.text for each in settings_of(workload)][-2].startswith("sizes of the model: num_bands=")


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
        ({"main.py": "from nets import *", "other.py": "import nets"}, 16),
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
    is_sole = batch == 16 and len(scripts) == 1  # of several, the first has the batch
    assert (workload.batch, workload.optimizer) == (batch, "rmsprop" if is_sole else "adamw")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("loader.py", "class Resizer:\n    def __call__(self, sample, min_side=96, max_side=160): return sample\n"),
        (
            "datasets/coco.py",
            (
                "import transforms as T\ndef make(kind):\n    scales = [64, 96]\n    if kind == 'train':\n"
                "        return T.RandomResize(scales, max_size=160)\n    return T.RandomResize([80])\n"
            ),
        ),
    ],
)
def test_images_are_as_large_as_the_modules_of_a_scripts_data_make_them(write, name, code):
    path = write(PLAIN.format(output="self.layer(image)"))
    (path.parent / name).parent.mkdir(exist_ok=True)
    (path.parent / name).write_text(code)
    if "/" in name:
        (path.parent / "datasets" / "__init__.py").write_text("from .coco import make\n")
    module = name.removesuffix(".py").partition("/")[0]
    (path.parent / "train.py").write_text(f"import {module}\n{TRAINS.format(loss='torch.nn.Identity()')}")
    workload = the_only(path)
    width = 160 if "max_" in code else 96  # a batch is as wide as the longest side that images may have
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 3, 96, width)
    assert any(text.startswith(("image size 96: ", "image height 96: ")) for text, _line in texts(workload))


def test_the_batch_is_that_which_the_module_of_a_scripts_data_reads_from_the_options(write):
    path = write(PLAIN.format(output="self.layer(image)"))
    loader = "from torch.utils.data import DataLoader\ndef make(args, data):\n    size = args.batch_size\n"
    for folder in ("provider", "experiments"):
        (path.parent / folder).mkdir()
    factory = path.parent / "provider" / "data_factory.py"
    factory.write_text(f"{loader}    return DataLoader(data, batch_size=size)\n")
    parser = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', type=int, default=48)\n"
    script = f"{parser}from provider.data_factory import make\n{TRAINS.format(loss='torch.nn.Identity()')}"
    (path.parent / "experiments" / "train.py").write_text(script)
    assert the_only(path).batch == 48


def test_what_a_call_passes_and_nobody_sees_is_no_option_of_another_command_line(write):
    path = write(PLAIN.format(output="self.layer(image)"))
    loader = "def loader(batch_size):\n    return DataLoader(data, batch_size=batch_size)\n"
    script = f"from torch.utils.data import DataLoader\n{loader}{TRAINS.format(loss='torch.nn.Identity()')}"
    (path.parent / "train.py").write_text(f"{script}    loader(model.hyperparameters['batch'])\n")
    parser = "import argparse\nparser = argparse.ArgumentParser()\n"
    (path.parent / "detect.py").write_text(f"{parser}parser.add_argument('--batch_size', type=int, default=1)\n")
    workload = the_only(path)
    assert (workload.batch, "batch" in workload.assumed) == (8, True)


TREE = """
from yacs.config import CfgNode
_C = CfgNode()
_C.NAME = ''
_C.DATA = CfgNode()
_C.DATA.BATCH_SIZE = 24
_C.MODEL = CfgNode()
_C.MODEL.HEAD = CfgNode()
_C.MODEL.HEAD.CLASSES = 7
"""
PARSER = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--{name}', default={default})\n"


@pytest.mark.parametrize(
    ("files", "arguments"),
    [
        (  # the config that names the class
            {
                "net.yaml": "model: {name: UNet, n_channels: 3, n_classes: 7}\ndata: {val_batch_size: 4, train_batch_size: 24}"
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # a tree of settings as yacs makes it
            {
                "config.py": TREE,
                "train.py": "from model import UNet\nfrom config import _C as config\n"
                "net = UNet(3, config.MODEL.HEAD.CLASSES)\nbatch = config.DATA.BATCH_SIZE\nloss.backward()\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # what a document sets before it trains
            {
                "README.md": "```python\nfrom model import UNet\nnet = UNet(3, 7)\n```\n"
                "```python\nconfig = Trainer.defaults()\nconfig.batch_size = 24\nTrainer(config, net)\n```\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # a function that is told the size of the batches it gives, not one for the evaluation
            {
                "train.py": "from model import UNet\nload_test_data(batch_size=5)\n"
                "loader = load_darcy(n=9, batch_size=24)\nnet = UNet(3, 7)\nloss.backward()\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # the sampler that makes the batches, not that of the evaluation
            {
                "train.py": "from model import UNet\nval_sampler = AspectSampler(data, batch_size=1)\n"
                "sampler = AspectSampler(data, batch_size=24)\nloader = DataLoader(data, batch_sampler=sampler)\n"
                "net = UNet(3, 7)\nloss.backward()\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # classes of settings: for all objects, and in the constructor of one
            {
                "settings.py": "class Base:\n    classes = 7\nclass Config(Base):\n    classes = 7\n"
                "    def __init__(self):\n        self.train_batch = 24\n",
                "train.py": "from model import UNet\nfrom settings import Base, Config\nopt = Config()\n"
                "net = UNet(3, Base.classes)\nloader = DataLoader(data, batch_size=opt.train_batch)\nloss.backward()\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
        (  # an option that the script hands on as it is
            {
                "train.py": PARSER.format(name="batch_size", default=24)
                + "from model import UNet\nfrom tools import batches\n"
                "batches(parser.parse_args())\nnet = UNet(3, 7)\nloss.backward()\n",
            },
            {"n_channels": 3, "n_classes": 7},
        ),
    ],
)
def test_the_batch_is_found_where_the_project_has_it(write, files, arguments):
    path = write(NET)
    for name, text in files.items():
        (path.parent / name).write_text(text)
    workload = the_only(path)
    assert (workload.arguments, workload.batch) == (arguments, 24)


def test_an_optimizer_that_an_option_names_is_the_steps(write):
    path = write(NET)
    script = PARSER.format(name="optim", default="'SGD'") + (
        "from model import UNet\nfrom torch import optim\nargs = parser.parse_args()\nnet = UNet(3, 2)\n"
        "optimizer = getattr(optim, args.optim)(net.parameters(), lr=0.1)\nloss.backward()\n"
    )
    write(script, "train.py")
    assert the_only(path).optimizer == "sgd"


def test_what_a_document_imports_for_its_example_is_no_data_of_a_training(write):
    path = write(NET)
    write("def crop(x): return RandomCrop(96)(x)\n", "transforms.py")
    block = "```python\nfrom model import UNet\nfrom transforms import crop\nnet = UNet(3, 7)\n```\n"
    (path.parent / "README.md").write_text(block)
    assert complete(the_only(path), path.parent)[0].inputs[0].shape == ("batch", 3, 224, 224)


def test_a_config_that_the_model_is_given_has_the_batch(write):
    path = write(NET.replace("n_channels, n_classes,", "path, n_channels=3, n_classes=2,"))
    (path.parent / "net.cfg").write_text(
        "[net]\n# batch=1\nbatch=64\nsubdivisions=4\n[layer]\nsize=3\n[layer]\nsize=1\n"
    )
    (path.parent / "detect.py").write_text("from model import UNet\nUNet('net.cfg')\n")
    workload = the_only(path)
    assert (workload.arguments, workload.batch) == ({"path": "net.cfg"}, 16)
    assert texts(workload)[1] == ("batch 16: batch: 64", 3)


def test_a_config_for_training_comes_first_and_its_images_are_as_many_times_smaller_as_it_enlarges_them(write):
    path = write(NET)
    network = "network_g: {type: UNet, n_channels: 3, n_classes: %d}\n"
    data = "datasets: {train: {batch_size_per_gpu: 4, gt_size: 96}}\n"
    for name, text in (("test/net.yml", network % 5), ("train/net.yml", f"scale: 2\n{data}{network % 7}")):
        place = path.parent / "options" / name
        place.parent.mkdir(parents=True)
        place.write_text(text)
    workload = complete(the_only(path), path.parent)[0]
    assert (workload.arguments["n_classes"], workload.batch) == (7, 4)
    assert workload.inputs[0].shape == ("batch", 3, 48, 48)


@pytest.mark.parametrize(
    ("default", "shown", "channels"),
    [
        ("model", "", 3),
        ("other", "python train.py --net model --wide", 6),
        ("other", "python train.py --net other", None),
    ],
)
def test_a_script_that_imports_by_name_builds_what_its_option_or_a_shown_command_line_names(
    write, default, shown, channels
):
    path = write(NET)
    write(NET, "other.py")
    (path.parent / "README.md").write_text(f"```shell\n{shown}\n```\n")
    script = PARSER.format(name="net", default=repr(default)) + (
        "parser.add_argument('--wide', action='store_true')\nparser.add_argument('--batch_size', default=24)\n"
        "import importlib\nargs = parser.parse_args()\nmodule = importlib.import_module(args.net)\n"
        "net = module.UNet(6 if args.wide else 3, 2)\nloss.backward()\n"
    )
    write(script, "train.py")
    workload = the_only(path)
    built = {"n_channels": channels, "n_classes": 2}
    assert (workload.arguments == built, workload.batch) == ((True, 24) if channels else (False, 8))


def test_clouds_have_the_points_that_a_scripts_dataset_gives_by_default(write):
    path = write(PLAIN.replace("nn.Conv2d(3, 5, 1)", "nn.Conv1d(3, 5, 1)").format(output="self.layer(image)"))
    (path.parent / "dataset.py").write_text("class Shapes:\n    def __init__(self, root, npoints=2500): pass\n")
    (path.parent / "train.py").write_text(f"import dataset\n{TRAINS.format(loss='torch.nn.Identity()')}")
    assert complete(the_only(path), path.parent)[0].inputs[0].shape == ("batch", 3, 2500)


@pytest.mark.parametrize(
    ("layer", "options", "shape"),
    [
        ("nn.Conv1d(1, 4, 5)", {"segment_size": 8192}, ("batch", 1, 8192)),
        ("nn.Conv1d(3, 4, 1)", {"num_points": 2500}, ("batch", 3, 2500)),
        ("nn.Conv2d(1, 4, 3)", {"imgH": 32, "imgW": 100}, ("batch", 1, 32, 100)),
    ],
)
def test_inputs_have_the_sizes_that_the_loop_reads_from_its_options(write, layer, options, shape):
    path = write(PLAIN.replace("nn.Conv2d(3, 5, 1)", layer).format(output="self.layer(image)"))
    lines = [f"parser.add_argument('--{name}', type=int, default={value})\n" for name, value in options.items()]
    used = "".join(f"    print(opt.{name})\n" for name in options)
    script = TRAINS.format(loss="torch.nn.Identity()").replace("    loss.", f"{used}    loss.")
    (path.parent / "train.py").write_text(
        f"import argparse\nfrom model import Net\nparser = argparse.ArgumentParser()\n{''.join(lines)}"
        f"opt = parser.parse_args()\n{script}"
    )
    assert complete(the_only(path), path.parent)[0].inputs[0].shape == shape


TRAINS = """
import torch
import torch.nn.functional as F
from model import Net
def train(batch):
    model = Net()
    loss = {loss}(model(batch), batch)
    loss.backward()
"""
PLAIN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 5, 1)
    def forward(self, image): return {output}
"""
CROSS_ENTROPY = "torch.nn.CrossEntropyLoss()"


def assumed_of_a_step(path):
    workload = the_only(path)
    program = build_program(replace(workload, batch=2), device="cpu")
    program.setup()
    program.step()
    return workload.loss, {each.text.partition(":")[0] for each in (*workload.found, *program.assumptions)}, program


@pytest.mark.parametrize(
    ("loss", "name", "shape"),
    [
        (CROSS_ENTROPY, "CrossEntropyLoss", (2, 224, 224)),
        ("F.mse_loss", "MSELoss", (2, 5, 224, 224)),
    ],
)
def test_the_only_loss_of_the_projects_loop_is_that_of_the_step(write, loss, name, shape):
    path = write(PLAIN.format(output="self.layer(image)"))
    (path.parent / "train.py").write_text(TRAINS.format(loss=loss))
    own, texts, program = assumed_of_a_step(path)
    assert own == name
    assert f"loss {name}" in texts
    assert not program.has_invented_loss
    assert program.loss.target.shape == shape


@pytest.mark.parametrize(
    ("output", "loss"),
    [
        ("(self.layer(image), self.layer(image))", CROSS_ENTROPY),
        ("self.layer(image)", f"torch.nn.MSELoss()(batch, batch) + {CROSS_ENTROPY}"),
        ("self.layer(image)", "ownloss.Dice()"),
        ("self.layer(image)", f"of_others)\ndef of_others(x):\n    return {CROSS_ENTROPY}(x"),
    ],
    ids=["several outputs", "several losses", "a loss of its own", "another function's"],
)
def test_a_loss_that_would_be_a_guess_is_the_mean(write, output, loss):
    path = write(PLAIN.format(output=output))
    (path.parent / "train.py").write_text(TRAINS.format(loss=loss))
    _, texts, program = assumed_of_a_step(path)
    assert program.has_invented_loss
    assert "the loss is the mean of the model's outputs" in texts


def test_the_loss_that_a_model_gives_itself_comes_before_that_of_the_loop(write):
    path = write(PLAIN.format(output="self.layer(image).square().sum()"))
    (path.parent / "train.py").write_text(TRAINS.format(loss=CROSS_ENTROPY))
    _, _, program = assumed_of_a_step(path)
    assert not program.has_invented_loss
    assert program.loss.target is None


def test_a_loss_that_torch_nn_does_not_have_is_named(write):
    path = write(PLAIN.format(output="self.layer(image)"))
    with pytest.raises(UsageError, match="CrossEntropy' is unknown") as caught:
        build_program(replace(the_only(path), loss="CrossEntropy"), device="cpu").setup()
    assert "CrossEntropyLoss" in caught.value.hint


def test_settings_that_are_set_on_a_command_lines_options_reach_the_model(write):
    path = write(NET)
    (path.parent / "train.py").write_text(
        "import argparse\nfrom model import UNet\nargs = argparse.ArgumentParser().parse_args()\n"
        "args.channels = 4\nargs.classes = len(open('words').read())\n"
        "UNet(args.channels, n_classes=args.classes)\n"
    )
    workload = the_only(path)
    assert workload.arguments == {"n_channels": 4, "n_classes": 10}
    assert dict(workload.guessed) == {"n_classes": 10}


CONFIGURED = """
from types import SimpleNamespace
from torch import nn
class Net(nn.Module):
    @staticmethod
    def default(): return SimpleNamespace(width=None, depth=2, hidden=None)
    def __init__(self, config):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(config.width, config.width) for _ in range(config.depth)))
    def forward(self, x): return self.layers(x)
"""


def test_a_config_has_what_the_project_sets_on_it(write):
    path = write(CONFIGURED)
    (path.parent / "README.md").write_text(
        "```python\nfrom model import Net\nc = Net.default()\nc.width = 24\nc.depth = 3\nnet = Net(c)\n```\n"
    )
    workload = the_only(path)
    specs = complete(workload, path.parent)[0].inputs
    assert [spec.described({}) for spec in specs] == ["x [batch, 24] float32"]
    assert "README.md:6" in texts(workload)[0][0]


def test_the_name_of_a_value_that_nobody_sees_says_what_it_is(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, output_size, width):\n"
        "        super().__init__()\n        self.layer = nn.Embedding(output_size, width)\n"
        "    def forward(self, tokens): return self.layer(tokens)\n"
    )
    (path.parent / "train.py").write_text(
        "from model import *\nfrom corpus import *\nn_words = len(read())\nNet(n_words, 8)\n"
    )
    assert the_only(path).arguments == {"output_size": 50257, "width": 8}


def test_a_list_is_made_up_where_a_number_is_not_enough(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, dims):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList(nn.Linear(n, 2) for n in dims)\n"
        "    def forward(self, x): return sum(layer(x) for layer in self.layers)\n"
    )
    assert the_only(path).arguments == {"dims": [512, 512, 512]}


def test_a_method_that_makes_the_model_is_called_where_the_project_does_so(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, blocks=None):\n        super().__init__()\n"
        "        assert isinstance(blocks, list)\n        self.layer = nn.Linear(len(blocks), 2)\n"
        "    @classmethod\n    def from_name(cls, name): return cls([1] * int(name[-1]))\n"
        "    def forward(self, x): return self.layer(x)\n"
    )
    (path.parent / "README.md").write_text("```python\nfrom model import Net\nnet = Net.from_name('net-b7')\n```\n")
    workload = the_only(path)
    assert (workload.name, dict(workload.arguments)) == ("Net.from_name", {"name": "net-b7"})
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 7)


def test_a_function_may_give_its_criterion_behind_the_model(write):
    path = write(
        "from torch import nn\ndef build(args):\n    model = Net(args)\n    criterion = nn.CrossEntropyLoss()\n"
        "    return model, criterion, {}\n"
        "class Net(nn.Module):\n    def __init__(self, args):\n        super().__init__()\n"
        "        self.layer = nn.Linear(args.width, 2)\n    def forward(self, x): return self.layer(x)\n"
    )
    (path.parent / "main.py").write_text(
        "import argparse\nfrom model import build\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=12)\nargs = parser.parse_args()\n"
        "model, criterion, _ = build(args)\n"
    )
    workload = the_only(path)
    assert (workload.name, complete(workload, path.parent)[0].inputs[0].shape) == ("build", ("batch", 12))


def test_of_several_factories_that_is_taken_which_the_project_calls_by_default(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.layer = nn.Linear(width, 2)\n    def forward(self, x): return self.layer(x)\n"
        "def small(classes): return Net(18)\ndef large(classes): return Net(50)\n"
    )
    (path.parent / "train.py").write_text(
        "import argparse, model\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--depth', type=int, default=50)\nparser = parser.parse_args()\n"
        "if parser.depth == 18:\n    net = model.small(classes=2)\nelif parser.depth == 50:\n"
        "    net = model.large(classes=2)\n"
    )
    assert the_only(path).name == "large"


def test_a_call_of_another_packages_function_of_that_name_passes_nothing_on(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, args):\n        super().__init__()\n"
        "        self.layer = nn.Linear(args.width, 2)\n    def forward(self, x): return self.layer(x)\n"
    )
    (path.parent / "making.py").write_text("from model import Net\ndef build_it(args): return Net(args)\n")
    (path.parent / "train_other.py").write_text(
        "from elsewhere import build_it, get\nother = get(width=1, a=1, b=1, c=1)\nbuild_it(other)\n"
    )
    (path.parent / "main.py").write_text(
        "import argparse\nfrom making import build_it\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--width', type=int, default=12)\nbuild_it(parser.parse_args())\n"
    )
    assert complete(the_only(path), path.parent)[0].inputs[0].shape == ("batch", 12)


def test_weights_are_not_downloaded(write):
    path = write(
        "import torch\nfrom torch import nn\nfrom torch.hub import load_state_dict_from_url\n"
        "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(4, 2)\n"
        "        self.load_state_dict(load_state_dict_from_url('https://weights.invalid/net.pth')['model'])\n"
    )
    assert the_only(path).name == "Net"
    (assumption,) = (each for each in notes.noted() if "weights.invalid/net" in each.text)
    assert assumption.text == "https://weights.invalid/net.pth is not downloaded: weights change no size"
    assert (assumption.frame.path, assumption.frame.line) == (str(path), 11)


def test_where_nothing_can_be_built_a_call_that_runs_is_offered(write):
    path = write(
        "from torch import nn\nclass Part(nn.Module):\n    def __init__(self, num_inputs, strange):\n"
        "        super().__init__()\n        self.layer = nn.Conv2d(num_inputs, strange, 1)\n"
        "    def forward(self, x): return self.layer(x)\n"
        "class Net(nn.Module):\n    def __init__(self, space):\n        super().__init__()\n"
        "        self.part = Part(space.shape[0], 2)\n    def forward(self, x): return self.part(x)\n"
    )
    found = find_workloads(str(path), path.parent)
    assert not found.workloads
    assert {each.call for each in found.left_out} == {"Part(num_inputs=3, strange=64)"}
    (workload,) = find_workloads(f"{path}::Part(num_inputs=3, strange=64)", path.parent).workloads
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 3, 224, 224)


def test_a_call_of_a_part_is_not_offered_for_a_model_that_a_script_builds(write):
    path = write(
        "class Part(nn.Module):\n    def __init__(self, num_inputs):\n        super().__init__()\n"
        "        self.layer = nn.Conv2d(num_inputs, 512, 3)\n    def forward(self, x): return self.layer(x)\n"
        "class Head(nn.Module):\n    def __init__(self, dim, strange):\n        super().__init__()\n"
        "        self.layer = nn.Linear(dim, 2)\n    def forward(self, x): return self.layer(x)\n"
        "class Net(nn.Module):\n    def __init__(self, num_inputs, space):\n        super().__init__()\n"
        "        space.shape\n        self.part = Part(num_inputs)\n    def forward(self, x): return self.part(x)\n"
    )
    assert {each.call for each in find_workloads(str(path), path.parent).left_out} == {"Head(dim=512, strange=64)"}
    script = path.parent / "train.py"
    script.write_text("from model import Net\nnet = Net(3, elsewhere())\nnet().backward()\n")
    assert {each.call for each in find_workloads(str(path), path.parent).left_out} == {"Head(dim=512, strange=64)"}
    top = "class Top(nn.Module):\n    head = Head\n    def forward(self, x): return x\n"
    path.write_text(f"{path.read_text()}{top}")
    del sys.modules["model"]
    assert {each.call for each in find_workloads(str(path), path.parent).left_out} == {""}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("Net(None or 12, 1)", {"0": 12, "1": 1}),
        ("Net(3 and 4, 5 or elsewhere())", {"0": 4, "1": 5}),
        ("Net(*(1, 2), 3)", {"0": 1, "1": 2, "2": 3}),
        ("Net(elsewhere(), 3)", {"1": 3}),
        ("Net(1, *elsewhere(), 3)", {"0": 1}),
        ("Net(**{**{'width': 5}, 'depth': 6})", {"width": 5, "depth": 6}),
        ("Net(**{**elsewhere(), 'depth': 6})", {}),
    ],
)
def test_arguments_are_what_python_would_pass(call, arguments):
    source = Source.from_text(f"made = {call}\n", "model.py")
    node = source.tree.body[0].value
    assert Values(source, None).arguments(node, scopes(source)[0])[0] == arguments


@pytest.mark.parametrize(
    ("line", "setting", "value"),
    [
        ("torch.optim.SGD(weights, 0.1, momentum=elsewhere())", "optimizer", "sgd-momentum"),
        ("torch.optim.SGD(weights, 0.1, momentum=0.0)", "optimizer", "sgd"),
        ("if 'Adam'.lower() == 'sgd':\n    torch.optim.SGD(w)\nelse:\n    torch.optim.Adam(w)", "optimizer", "adam"),
        ("tgt_len = 70", "length", 70),
        ("torch.cuda.amp.autocast(False)", "dtype", None),
        ("torch.cuda.amp.autocast(enabled=elsewhere())", "dtype", None),
        ("torch.cuda.amp.autocast(**ctx.autocast_kwargs)", "dtype", None),
        ("torch.cuda.amp.autocast(enabled=device.type == 'cuda')", "dtype", "fp16-amp"),
        ("torch.autocast('cuda', torch.bfloat16, False)", "dtype", None),
        ("torch.autocast('cuda', torch.bfloat16)", "dtype", "bf16-amp"),
        ("torch.cuda.amp.autocast()", "dtype", "fp16-amp"),
        ("torch.autocast(device_type=device.type, dtype=torch.float32)", "dtype", None),
        ("fabric = L.Fabric(devices=4, precision='bf16-mixed')", "dtype", "bf16-amp"),
        ("trainer = Trainer(precision='16-true')", "dtype", "float16"),
        ("accelerator = Accelerator(mixed_precision='fp16')", "dtype", "fp16-amp"),
        ("accelerator = Accelerator(mixed_precision='no')", "dtype", None),
        ("input_shape = [300, 300]", "image_size", 300),
        ("input_shape = (3, 96, 96)", "image_size", 96),
        ("input_shape = (3, 96, 64)", "image_size", None),
        ("loader = DATASET_REGISTRY('cifar10')(64)", "image_size", 32),
        ("loader = get_loaders('MNIST')", "image_size", 28),
        ("print('mnist')", "image_size", None),
        ("prepare_data('data', patch_size=40, stride=10)", "image_size", 40),
        ("other = Encoder(patch_size=40)", "image_size", None),
    ],
)
def test_what_nobody_sees_of_the_step_makes_no_figure_smaller(tmp_path, line, setting, value):
    path = tmp_path / "train.py"
    path.write_text(f"import torch\nfrom model import Net\nnet = Net()\n{line}\nloss.backward()\n")
    target = tmp_path / "model.py"
    target.write_text("class Net: ...\n")
    settings = sole_loop(target, Project(ProjectFiles(tmp_path, target)))
    assert (settings[setting].value if setting in settings else None) == value


@pytest.mark.parametrize(("name", "dtype"), [("log_validation", None), ("evaluate", None), ("train_epoch", "fp16-amp")])
def test_autocast_of_an_evaluation_is_not_that_of_the_training(tmp_path, name, dtype):
    (tmp_path / "train.py").write_text(
        f"import torch\nfrom model import Net\nnet = Net()\ndef {name}(net):\n    with torch.autocast('cuda'):\n"
        f"        for x in data: net(x)\nnet(x).mean().backward()\n{name}(net)\n"
    )
    target = tmp_path / "model.py"
    target.write_text("class Net: ...\n")
    settings = sole_loop(target, Project(ProjectFiles(tmp_path, target)))
    assert (settings["dtype"].value if "dtype" in settings else None) == dtype


@pytest.mark.parametrize(("parameter", "dtype"), [("fp32=False", "fp16-amp"), ("fp32=True", None), ("fp32", None)])
def test_a_flag_of_the_training_function_has_its_default(tmp_path, parameter, dtype):
    (tmp_path / "train.py").write_text(
        f"import torch\nfrom model import Net\ndef train(net, {parameter}):\n"
        "    with torch.cuda.amp.autocast(enabled=not fp32):\n        loss = net(x)\n    loss.backward()\ntrain(Net(), *rest)\n"
    )
    target = tmp_path / "model.py"
    target.write_text("class Net: ...\n")
    settings = sole_loop(target, Project(ProjectFiles(tmp_path, target)))
    assert (settings["dtype"].value if "dtype" in settings else None) == dtype


def test_a_class_of_settings_says_what_its_attributes_are(tmp_path):
    (tmp_path / "config.py").write_text(
        "class Config(object):\n    train_batch_size = 16\n    input_shape = (1, 128, 128)\n"
    )
    (tmp_path / "train.py").write_text(
        "from config import Config\nfrom model import Net\nopt = Config()\nnet = Net()\n"
        "loader = DataLoader(data(opt.input_shape), batch_size=opt.train_batch_size)\nloss.backward()\n"
    )
    target = tmp_path / "model.py"
    target.write_text("class Net: ...\n")
    settings = sole_loop(target, Project(ProjectFiles(tmp_path, target)))
    assert (settings["batch"].value, settings["image_size"].value) == (16, 128)


def test_the_documents_of_one_config_are_taken_together(tmp_path):
    (tmp_path / "model.py").write_text("class Net: ...\n")
    (tmp_path / "config.yaml").write_text("audio:\n  n_fft: 1200\n---\ntrain:\n  batch_size: 8\n---\n")
    project = Project(ProjectFiles(tmp_path, tmp_path / "model.py"))
    assert sizes_in_config("config.yaml", project)["batch"].value == 8


def test_what_has_no_default_is_what_some_command_line_types(tmp_path):
    (tmp_path / "train.py").write_text(
        "import argparse\nfrom model import Net\np = argparse.ArgumentParser()\n"
        "p.add_argument('--batch-size', type=int, default=None)\np.add_argument('--img-size', type=int, default=64)\n"
        "args = p.parse_args()\nDataLoader(data, batch_size=args.batch_size)\nNet().loss().backward()\n"
    )
    (tmp_path / "run.sh").write_text("python train.py --batch-size 16 --img-size 96 --name other\n")
    target = tmp_path / "model.py"
    target.write_text("class Net: ...\n")
    settings = sole_loop(target, Project(ProjectFiles(tmp_path, target)))
    assert (settings["batch"].value, settings["image_size"].value) == (16, 64)


def test_a_file_that_mentions_a_whole_word_is_parsed_once_whatever_is_looked_for(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("from model import Net\nnet = Net(4)\n")
    (tmp_path / "other.py").write_text("import Network, aNet, Net_2, Ünet\n")
    parsed = []
    of_text = Source.from_text

    def counted(text, path):
        parsed.append(Path(path).name)
        return of_text(text, path)

    monkeypatch.setattr(Source, "from_text", counted)
    files = ProjectFiles(tmp_path, tmp_path / "model.py")
    assert [Path(each.path).name for each in files.sources(("Net",))] == ["train.py"]
    assert list(files.sources(("net", "Net"))) == list(files.sources(("model",)))
    assert parsed == ["train.py"]


def test_of_files_that_name_a_class_only_those_that_may_call_the_one_of_the_file_are_parsed(tmp_path, monkeypatch):
    texts = {
        "model.py": "class Net: ...\n",
        "train.py": "from model import Net\nnet = Net(4)\n",
        "README.md": "See [Net](net.md) (or not).\n```python\nnet = Net(8)\n```\n",
        "prose.md": "`layers[0](x)` is a [Net](net.md), Net(3) another.\n```sh\nls\n```\n",
        "loaded.py": "from importlib import import_module\nimport_module('nets')\nNet = other(Net(3))\n",
        "looked_up.py": "import transformers\nclass Net: ...\ndef make(name): return getattr(transformers, name)(3)\n",
        "asking.py": "from looked_up import make\nmake('Net')\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    parsed = set()
    of_text = Source.from_text
    monkeypatch.setattr(Source, "from_text", lambda text, path: parsed.add(Path(path).name) or of_text(text, path))
    target = tmp_path / "model.py"
    sites = call_sites(["Net"], target, Project(ProjectFiles(tmp_path, target)))
    assert [(Path(each.path).name, each.arguments) for each in sites] == [
        ("train.py", {"0": 4}),
        ("README.md", {"0": 8}),
    ]
    assert parsed == {"train.py", "README.md", "looked_up.py"}


def test_what_an_argument_is_made_of_that_cannot_be_imported_says_why(write):
    path = write(
        "class Net(nn.Module):\n    def __init__(self, act):\n        super().__init__()\n        self.act = act()\n"
        "    def forward(self, x): return self.act(x)\n"
    )
    (path.parent / "acts.py").write_text("class Act: ...\nSIZE = int('x')\n")
    (path.parent / "train.py").write_text("from acts import Act\nfrom model import Net\nnet = Net(Act)\n")
    (left_out,) = find_workloads(str(path), path.parent).left_out
    assert "acts.Act is needed, and " in left_out.reason
    assert "acts.py cannot be imported: ValueError" in left_out.reason


AXES = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, width, axes):
        super().__init__()
        self.axes = axes
        self.layer = nn.Linear(width, 2)
    def forward(self, data, mask=None, *, scaled=False):
        assert data.dim() == self.axes + 2 and data.shape[-1] == 3
        out = self.layer(data)
        return out if mask is None else out[mask].view(len(data), -1)
"""


@pytest.mark.parametrize(
    ("example", "inputs"),
    [
        ("x = torch.randn(1, 40, 24, 3)\nwith torch.no_grad():\n    net(x)", ["data [batch, 40, 24, 3] float32"]),
        ("net(torch.rand((4, 40, 24, 3), device='cuda').half())", ["data [batch, 40, 24, 3] float32"]),
        ("B, H, W, C = 4, 40, 24, 3\nnet(torch.rand(B, H, W, C))", ["data [batch, 40, 24, 3] float32"]),
        ("x = torch.rand(1, 40, 24, 3).to(device)\nnet(x.cuda())", ["data [batch, 40, 24, 3] float32"]),
        (
            "net(torch.rand(2, 2, 1, 3), torch.tensor([[[True], [False]], [[True], [True]]]).to(device))",
            ["data [batch, 2, 1, 3] float32", "mask [batch, 2, 1] bool"],
        ),
        ("H, W = size\nnet(torch.rand(4, H, W, 3))", None),
        (
            "x = torch.randn(2, 40, 24, 3)\nseen = torch.ones(2, 40, 24).bool()\nnet = net.cuda()\nnet(x, mask=seen)",
            ["data [batch, 40, 24, 3] float32", "mask [batch, 40, 24] bool"],
        ),
        (
            "x = torch.randn(1, 9, 9, 3)\ny = torch.randn_like(x)\nnet(data=y, scaled=True)",
            ["data [batch, 9, 9, 3] float32", "scaled = True"],
        ),
        ("net = Other()\nnet(torch.randn(1, 40, 24, 3))", None),
        ("net(load('image.png'))", None),
        (
            "flops, _ = get_model_complexity_info(net, (40, 24, 3), as_strings=True)",
            ["data [batch, 40, 24, 3] float32"],
        ),
        ("torchinfo.summary(net, input_size=(2, 40, 24, 3))", ["data [batch, 40, 24, 3] float32"]),
        ("x = torch.randn(1, 40, 24, 3)\nthop.profile(net, inputs=(x,))", ["data [batch, 40, 24, 3] float32"]),
        ("x = torch.randn(1, 40, 24, 3)\nFlopCountAnalysis(net, x)", ["data [batch, 40, 24, 3] float32"]),
        ("summary(other, (40, 24, 3))", None),
    ],
)
def test_inputs_are_those_of_the_example_that_shows_the_model(write, example, inputs):
    path = write(AXES)
    block = f"```python\nimport torch\nfrom model import Net\nnet = Net(3, axes=2)\n{example}\n```\n"
    (path.parent / "README.md").write_text(block)
    workload = the_only(path)
    if inputs is None:
        assert workload.shown is None
        return
    completed, assumptions = complete(workload, path.parent)
    assert [spec.described({}) for spec in completed.inputs] == inputs
    line = 1 + next(
        n for n, text in enumerate(block.splitlines()) if re.search(r"net\(torch|net\(x|net\(data|\(net,", text)
    )
    assert [(each.text, each.frame.line) for each in assumptions] == [
        (f"inputs {', '.join(inputs)}, as in an example", line)
    ]


def test_inputs_of_another_file_that_builds_the_model_alike_are_those_of_an_example_elsewhere(write):
    path = write(AXES)
    built = "import torch\nfrom model import Net\nnet = Net(3, axes=2)\n"
    trains = "for x in data:\n    net(x).sum().backward()\n"
    for name, text in {"train.py": trains, "count.py": "net(torch.rand(1, 40, 24, 3))\n"}.items():
        (path.parent / name).write_text(built + text)
    workload = the_only(path)
    completed, _assumptions = complete(workload, path.parent)
    assert completed.built_by == "data [batch, 40, 24, 3] float32, as in an example"


def test_ids_of_an_example_are_below_what_it_says(write):
    path = write(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self, words):\n        super().__init__()\n"
        "        self.table = nn.Embedding(words, 8)\n    def forward(self, x): return self.table(x)\n"
    )
    (path.parent / "README.md").write_text(
        "```python\nfrom model import Net\nnet = Net(700)\nnet(torch.randint(0, 700, (1, 96)))\n```\n"
    )
    workload, _ = complete(the_only(path), path.parent)
    assert [spec.described(workload.dimensions) for spec in workload.inputs] == ["x [batch, seq=96] int64 below 700"]


def test_an_example_of_another_size_counts_where_nothing_else_fits(write):
    path = write(AXES)
    (path.parent / "train.py").write_text("from model import Net\nnet = Net(3, axes=2)\nnet(x).backward()\n")
    write("import torch\nfrom model import Net\nnet = Net(3, 1)\nnet(torch.rand(1, 7, 8, 3))\n", "test_net.py")
    (spec,) = complete(the_only(path), path.parent)[0].inputs
    assert spec.shape == ("batch", 7, 8, 3)


def test_an_example_of_another_size_does_not_count_where_a_guess_fits(write):
    path = write(NET)
    (path.parent / "train.py").write_text("from model import UNet\nnet = UNet(3, 2)\nnet(x).backward()\n")
    write("import torch\nfrom model import UNet\nnet = UNet(3, 1)\nnet(torch.rand(1, 3, 7, 8))\n", "test_net.py")
    (spec,) = complete(the_only(path), path.parent)[0].inputs
    assert spec.shape == ("batch", 3, 224, 224)


def test_a_config_class_is_made_as_the_project_makes_it_elsewhere(write):
    path = write(
        "from dataclasses import dataclass\nfrom torch import nn\n"
        "@dataclass\nclass Sizes:\n    width: int\n    axes: list[int]\n"
        "class Net(nn.Module):\n    def __init__(self, params: Sizes):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList(nn.Linear(params.width, n) for n in params.axes)\n"
        "    def forward(self, x): return sum(layer(x).sum() for layer in self.layers)\n"
    )
    (path.parent / "known.py").write_text(
        "from model import Net, Sizes\nKNOWN = {'small': Spec(params=Sizes(width=24, axes=[2, 3]))}\n"
        "def load(name): return Net(KNOWN[name].params)\n"
    )
    workload = the_only(path)
    assert str(workload.guessed["params"]) == "Sizes(width=24, axes=[2, 3])"
    assert complete(workload, path.parent)[0].inputs[0].shape == ("batch", 24)


def test_what_no_script_builds_is_no_answer_where_one_that_a_script_builds_fails(write):
    path = write(
        "from torch import nn\nclass Pool(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.layer = nn.Linear(width, 2)\n    def forward(self, x): return self.layer(x)\n"
        "class Net(nn.Module):\n    def __init__(self, width, heads):\n        super().__init__()\n"
        "        assert heads == 7, 'heads'\n        self.layer = nn.Linear(width, heads)\n"
        "    def forward(self, x): return self.layer(x)\n"
    )
    assert [each.name for each in find_workloads(str(path), path.parent).workloads] == ["Pool"]
    (path.parent / "train.py").write_text("from model import Net\nnet = Net(10, heads=4)\nnet(x).backward()\n")
    discovery = find_workloads(str(path), path.parent)
    assert not discovery.workloads
    assert [each.name for each in discovery.left_out] == ["Net", "Pool"]
    assert "AssertionError: heads" in discovery.left_out[0].reason


def test_a_model_without_parameters_is_not_trained(write):
    path = write("from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x.relu()\n")
    (workload,) = find_workloads(f"{path}::Net", path.parent).workloads
    workload = replace(workload, inputs=(InputSpec("x", ("batch", 4)),), gpu="cpu")
    with pytest.raises(WorkloadError, match="Net has no parameters to train") as error:
        build_program(workload, path.parent).setup()
    assert "--mode inference" in error.value.hint


def test_a_config_of_the_project_counts_more_than_all_settings_of_the_script(write):
    path = write(
        "from dataclasses import dataclass\nfrom torch import nn\n"
        "@dataclass\nclass NetConfig:\n    length: int = 16\n    words: int = 50\n    width: int = 8\n"
        "class Net(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n"
        "        self.config, self.table = config, nn.Embedding(config.words, config.width)\n"
        "    def forward(self, ids): return self.table(ids)\n"
    )
    (path.parent / "train.py").write_text(
        "import argparse\nfrom model import Net, NetConfig\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--depth', type=int, default=3)\n"
        "parser.add_argument('--width', type=int, default=99)\n"
        "parser.add_argument('--max-seq-len', type=int, default=2048)\n"
        "parser.add_argument('--device-batch-size', type=int, default=48)\nargs = parser.parse_args()\n"
        "def build(depth):\n    width = depth * 4\n"
        "    config = NetConfig(length=args.max_seq_len, words=len(read()), width=width)\n    return Net(config)\n"
        "model = build(args.depth)\nfor x in loader(read(), args.device_batch_size):\n    model(x).sum().backward()\n"
    )
    workload = the_only(path)
    assert str(workload.arguments["config"]) == "NetConfig(length=2048, width=12)"
    assert workload.batch == 48
    workload, _ = complete(workload, path.parent)
    assert [each.described(workload.dimensions) for each in workload.inputs] == ["ids [batch, seq=2048] int64 below 50"]


def test_a_script_that_sets_names_of_its_own_says_batch_and_dtype(write):
    path = write(NET)
    (path.parent / "train.py").write_text(
        "import os\nimport torch\nfrom model import UNet\nbatch_size = 36\nlr_decay = os.environ.get('DECAY')\n"
        "dtype = 'bfloat16'\nptdtype = {'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]\n"
        "crop = dict(settings.get('crop'))\nnet = UNet(3, 2)\nfor x in batches():\n"
        "    with torch.autocast('cuda', dtype=ptdtype):\n        loss = net(x).mean()\n    loss.backward()\n"
    )
    workload = the_only(path)
    assert (workload.batch, workload.dtype) == (36, "bf16-amp")
    assert ("batch 36: batch_size = 36", 4) in texts(workload)
    script = path.parent / "train.py"
    script.write_text(script.read_text().replace("batch_size = 36", "if __name__ == '__main__': bs = 36"))
    assert the_only(path).batch == 36
    script.write_text(script.read_text().replace("__name__ == '__main__'", "settings"))
    assert the_only(path).batch == 8


def test_a_part_that_a_script_builds_too_is_no_answer_where_the_whole_fails(write):
    path = write(
        "from torch import nn\nclass Head(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        self.layer = nn.Linear(width, 2)\n    def forward(self, x): return self.layer(x)\n"
        "class Net(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n"
        "        self.head = Head(config.hidden_size)\n    def forward(self, x): return self.head(x)\n"
    )
    script = "import torch\nfrom model import Head, Net\n{call}\nfor x in loader:\n    net(x).backward()\n    optimizer.step()\n"
    (path.parent / "bench.py").write_text(script.format(call="net = Net(None)"))
    (path.parent / "pretrain.py").write_text(script.format(call="net = Net(fetched())"))
    (path.parent / "convert.py").write_text("from model import Head\nhead = Head(8)\n")
    discovery = find_workloads(str(path), path.parent)
    assert not discovery.workloads
    assert discovery.left_out[0].name == "Net"
    assert {each.call for each in discovery.left_out} == {""}


ALONE = """
import torch
from torch import nn
batch_size = 24
class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layer = nn.Linear(16, width)
    def forward(self, x): return self.layer(x)
"""
MAIN = """
def main():
    net = Net(width=256)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in loader:
        net(x).sum().backward()
        optimizer.step()
"""
OWN_LOADER = "    loader = torch.utils.data.DataLoader(data, batch_size=24)\n"


@pytest.mark.parametrize(
    "code",
    [
        ALONE + MAIN,
        ALONE.replace("batch_size = 24\n", "") + MAIN.replace("    optimizer", OWN_LOADER + "    optimizer"),
        ALONE.replace("batch_size = 24\n", "") + MAIN + "if __name__ == '__main__':\n    batch_size = 24\n    main()\n",
    ],
)
def test_the_loop_of_the_models_own_file_says_how_it_is_built_and_trained(write, code):
    workload = the_only(write(code))
    assert (workload.batch, workload.optimizer, workload.arguments) == (24, "sgd", {"width": 256})


@pytest.mark.parametrize(
    "files",
    [
        {"model.py": ALONE},  # a size above the class
        {"config/base.yaml": "loader: {batch_size: 24}", "config/eval_all.yaml": "loader: {batch_size: 2}"},
        {"config/base.yaml": "validation: {batch_size: 2}\ntrain: {total_batch_size: 24}"},
        {"config/base.yaml": "samples_per_gpu: 24"},
        {"results/first.json": '{"batch_size": 2}', "settings/base.json": '{"loader": {"batch_size": 24}}'},
        {
            "runs.yaml": "runs: [{batch_size: 2, loss: 1}, {batch_size: 4, loss: 2}, {batch_size: 8, loss: 1}]",
            "train.yaml": "batch_size: 24",
        },
        {
            "train.py": "import torch.distributed as dist\nfrom model import Net\nparser.add_argument('--global-batch', default=24)"
            "\nnet = Net()\nloader = DataLoader(data, batch_size=int(args.global_batch // dist.get_world_size()))\nloss.backward()\n"
        },
    ],
)
def test_a_batch_that_the_file_or_a_config_says_is_taken_and_named(write, files):
    path = write(ALONE.replace("batch_size = 24\n", ""))
    for name, text in files.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_text(text)
    workload = the_only(path)
    assert (workload.batch, "batch" in workload.assumed) == (24, False)
    assert any(text.startswith("batch 24: ") for text, _line in texts(workload))


def test_a_batch_among_others_is_a_guess_that_comes_first_and_names_them(write):
    path = write(ALONE.replace("batch_size = 24\n", ""))
    for name, text in {"a.yaml": "batch_size: 2", "b.yaml": "batch_size: 24"}.items():
        (path.parent / name).write_text(text)
    (path.parent / "README.md").write_text("python train.py --config b.yaml")
    assumed = [each.text for each in settings_of(the_only(path)) if not each.found]
    assert assumed[0] == "batch 24: batch_size: 24: a guess, as others are stated too (2 in a.yaml)"


def test_of_several_scripts_that_call_what_builds_the_model_one_says_how_it_is_trained(write):
    path = write(ALONE.replace("batch_size = 24\n", ""))
    (path.parent / "build.py").write_text("from model import Net\ndef build():\n    return Net(3)\n")
    step = "from build import build\nnet = build()\nopt = torch.optim.{}(net.parameters())\nloss.backward()\n"
    (path.parent / "a.py").write_text("import torch\n" + step.format("SGD"))
    other = "loader = torch.utils.data.DataLoader(data, batch_size=7)\n"
    (path.parent / "b.py").write_text("import torch\n" + step.format("Adam") + other)
    workload = the_only(path)
    assert (workload.optimizer, workload.batch) == ("sgd", 8)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"results/first.json": '{"batch_size": 2}'},
        {"runs.json": '{"a": [{"batch": 2}, {"batch": 4}, {"batch": 8}]}'},
    ],
)
def test_what_memlint_takes_itself_is_never_said_to_be_in_no_file_of_the_project(write, files):
    path = write(ALONE.replace("batch_size = 24\n", ""))
    for name, text in files.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_text(text)
    workload = the_only(path)
    said = [each.text for each in settings_of(workload)]
    assert said == [
        "batch 8, dtype float32, optimizer adamw: memlint's own, as nothing was found that sets them for this model"
    ]
    (said,) = settings_of(replace(workload, assumed=frozenset({"batch"})))
    assert said.text == "batch 8: memlint's own, as nothing was found that sets it for this model"


def test_a_builder_of_the_file_comes_before_the_bare_class_unless_a_script_builds_that(write):
    builders = "def net_tiny(): return Net(width=8)\ndef net_large(): return Net(width=512)\n"
    path = write(ALONE + builders)
    assert the_only(path).qualname == "net_tiny"
    (path.parent / "train.py").write_text("from model import Net\nnet = Net()\nloss.backward()\n")
    assert (the_only(path).qualname, the_only(path).arguments) == ("Net", {})


def test_a_setting_that_the_project_does_not_have_is_said_and_no_class_of_memlint():
    from memlint.source.values import Settings
    from memlint.workloads.objects_from_text import object_of

    settings = object_of(Settings("args", {"width": 8}, "train.py", 1), {}, [])
    settings["heads"] = 2
    assert (settings.width, settings.heads) == (8, 2)
    assert not hasattr(settings, "depth")
    with pytest.raises(AttributeError, match="no setting 'depth' was found in the project"):
        settings.depth  # noqa: B018


def test_an_argument_may_ask_the_standard_library():
    from memlint.source.values import Name
    from memlint.workloads.objects_from_text import object_of

    assert object_of(Name("multiprocessing.cpu_count", "train.py"), {}, {}) is multiprocessing.cpu_count


def test_a_list_that_is_filled_later_has_no_entries_that_anybody_sees(write):
    path = write(
        """
        class Net(nn.Module):
            def __init__(self, layers, head):
                super().__init__()
                self.layers, self.head = layers, head
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return self.head(x)

        def build(width, depth=3):
            layers = []
            for _ in range(depth):
                layers.append(nn.Linear(width, width))
            return Net(nn.ModuleList(layers), nn.Linear(width, 4))
        """
    )
    (path.parent / "train.py").write_text("from model import build\nnet = build(24)\nloss.backward()\n")
    workload = the_only(path)
    assert (workload.qualname, dict(workload.arguments)) == ("build", {"width": 24})


def test_settings_are_those_of_the_script_that_builds_the_model_and_of_no_other_with_a_function_of_its_name(write):
    path = write(AXES)
    train = "import torch\nfrom torch import nn\nfrom model import Net\n\ndef main():\n    net = Net(3, axes=2)\n{}\n    net().backward()\n\nmain()\n"
    (path.parent / "train.py").write_text(train.format("    torch.optim.SGD(net.parameters(), 0.1)"))
    (path.parent / "pretrain.py").write_text(train.replace("2", "1").format("    nn.CrossEntropyLoss()"))
    workload = the_only(path)
    assert (workload.arguments["axes"], workload.optimizer, workload.loss) in (
        (2, "sgd", None),
        (1, "adamw", "CrossEntropyLoss"),
    )


def test_a_number_of_samples_beside_their_rate_is_the_length_of_a_piece_of_sound(write):
    path = write(PLAIN.replace("nn.Conv2d(3, 5, 1)", "nn.Conv1d(100, 5, 1)").format(output="self.layer(image)"))
    data = "data: {params: {sampling_rate: 24000, num_samples: 16384, batch_size: 4}}\n"
    (path.parent / "net.yaml").write_text(f"{data}mel: {{hop_length: 256}}\nmodel: {{class_path: model.Net}}\n")
    workload = the_only(path)
    assert (workload.batch, complete(workload, path.parent)[0].inputs[0].shape) == (4, ("batch", 100, 64))


def test_the_fields_of_a_dataclass_of_settings_are_arguments_and_say_the_batch(write):
    path = write(AXES)
    (path.parent / "configs.py").write_text(
        "from dataclasses import dataclass, field\n\n@dataclass\nclass NetConfig:\n    width: int = 3\n    axes: int = 1\n\n"
        "@dataclass\nclass TrainConfig:\n    lr: float = 0.1\n    batch_size: int = 24\n\n"
        "@dataclass\nclass Config:\n    model: NetConfig = field(default_factory=NetConfig)\n    train: TrainConfig = field(default_factory=TrainConfig)\n"
    )
    (path.parent / "train.py").write_text(
        "from dataclasses import asdict\nfrom configs import Config\nfrom model import Net\n\n"
        "def main(config: Config):\n    settings = config.model\n    of_training = config.train\n"
        "    loader = DataLoader(data, batch_size=of_training.batch_size)\n"
        "    net = Net(**asdict(settings))\n    net(next(iter(loader))).mean().backward()\n"
    )
    workload = the_only(path)
    assert (dict(workload.arguments), workload.batch) == ({"width": 3, "axes": 1}, 24)


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_series_whose_length_nothing_states_is_said_in_the_headline(write, is_stated):
    kept = "self.max_seq_len = 300" if is_stated else "pass"
    path = write(
        f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {kept}\n"
        "        self.layer = nn.Conv1d(80, 5, 3)\n"
        "    def forward(self, x):\n        return self.layer(x.permute(0, 2, 1))\n"
    )
    workload = complete(the_only(path), path.parent)[0]
    length = 300 if is_stated else 1024
    assert workload.inputs[0].shape == ("batch", length, 80)
    said = "" if is_stated else "sequences of 1024 steps: nothing states their size"
    assert workload.built_by == said


def test_frames_that_the_settings_state_are_the_length_of_a_spectrogram(write):
    path = write(PLAIN.replace("nn.Conv2d(3, 5, 1)", "nn.Conv1d(80, 5, 1)").format(output="self.layer(image)"))
    (path.parent / "net.yaml").write_text("data: {num_frms: 200, batch_size: 4}\nmodel: {class_path: model.Net}\n")
    workload = complete(replace(the_only(path), sizes={"num_frms": 200}), path.parent)[0]
    assert (workload.inputs[0].shape, workload.built_by) == (("batch", 80, 200), the_only(path).built_by)
