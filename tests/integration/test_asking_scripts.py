"""`memlint check` of a model whose size only the project's scripts know: they are asked how they build it."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from memlint.commands import early
from memlint.worker import supervise
from tests.integration.commands import memlint

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return x + self.layer(x)

class Net(nn.Module):
    def __init__(self, configs):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(configs.width) for _ in range(configs.depth)))

    def forward(self, x):
        return self.blocks(x)
"""
OPTIONS = """
import argparse, copy
import torch
from model import Net

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, required=True)
parser.add_argument("--depth", type=int, default=3)
parser.add_argument("--batch_size", type=int, default=2)
parser.add_argument("--data", required=True)

def main():
    args = parser.parse_args()
    model = Net(args).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
"""
ENDS = "    raise RuntimeError('no labels in ' + args.data)\n"
STEPS = """
    ema = copy.deepcopy(model)
    open("log.txt", "w").write("begun")
    for step in range(1000):
        x = torch.zeros(args.batch_size, 7, args.width, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(x).mean()
        loss.backward()
        optimizer.step()
"""
MAIN = "\nif __name__ == '__main__':\n    main()\n"
README = "# Net\n\n```\nCUDA_VISIBLE_DEVICES=0 torchrun --nproc_per_node=8 train.py --width 64 --batch_size 16 --data <your data>\n```\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A model that needs its script's arguments, the script with a README, and a script that evaluates."""
    (tmp_path / "pyproject.toml").write_text("[tool.memlint]\n")
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(OPTIONS + ENDS + MAIN)
    (tmp_path / "sample.py").write_text("from model import Net\nraise SystemExit('not asked')\n")
    (tmp_path / "README.md").write_text(README)
    return tmp_path


def checked(folder: Path, *arguments: str) -> dict[str, Any]:
    """The only Workload of a check."""
    done = memlint(folder, "check", "--no-sweep", "--output-format", "json", *(arguments or ("model.py",)))
    assert done.stdout, done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    return dict(workload)


def texts(workload: dict[str, Any]) -> list[str]:
    return [each["text"] for each in workload["assumptions"]]


def parameters(workload: dict[str, Any]) -> int:
    return int(workload["estimate"]["categories"]["parameter"])


def test_a_script_that_ends_for_want_of_data_says_size_batch_and_optimizer(project):
    workload = checked(project)
    assert workload["built_by"] == "as train.py --width 64 --batch_size 16 --data data builds it, on each of 8 GPUs"
    assert (workload["target"], workload["batch"], workload["optimizer"]) == ("model.py::Net", 16, "sgd-momentum")
    assert parameters(workload) == 3 * 4 * (64 * 64 + 64)
    assert any(each.startswith("built as train.py:14 does: Net(configs=Namespace(width=64") for each in texts(workload))


def test_a_script_that_trains_says_inputs_precision_and_averages_of_weights_too(project):
    (project / "train.py").write_text(OPTIONS + STEPS + MAIN)
    workload = checked(project)
    assert (workload["batch"], workload["dtype"]) == (16, "bf16-amp")
    assert "input x [batch, 7, 64] float32, as the script gives it" in texts(workload)
    assert "1 more with averaged weights: the script has copied it" in texts(workload)
    assert sorted(each.name for each in project.iterdir()) == [
        ".memlint_cache",
        "README.md",
        "model.py",
        "pyproject.toml",
        "sample.py",
        "train.py",
    ]


def test_a_name_that_a_package_has_dropped_stands_between_the_model_and_its_call_in_no_way(project):
    (project / "train.py").write_text(OPTIONS + "    import numpy\n    best = numpy.Inf\n" + STEPS + MAIN)
    assert "input x [batch, 7, 64] float32, as the script gives it" in texts(checked(project))


def test_a_switch_of_autocast_has_the_dtype_of_the_line_that_reads_it(project):
    flag = 'parser.add_argument("--amp", type=bool, default=True)\nparser.add_argument("--data"'
    stops = "    raise KeyboardInterrupt\n"
    casts = STEPS.replace('torch.autocast("cuda", torch.bfloat16)', 'torch.autocast("cuda", torch.bfloat16, args.amp)')
    (project / "train.py").write_text(OPTIONS.replace('parser.add_argument("--data"', flag) + stops + casts + MAIN)
    assert checked(project)["dtype"] == "bf16-amp"


def test_a_call_that_counts_or_draws_a_model_says_no_batch(project):
    packages = project / "lib/python3/site-packages"
    packages.mkdir(parents=True)
    (packages / "thop.py").write_text("def profile(model, inputs):\n    model(*inputs)\n    return 1, 2\n")
    counts = f"""
    import sys
    sys.path.append({str(packages)!r})
    import thop
    thop.profile(model, inputs=(torch.zeros(1, 7, args.width, device="cuda"),))
"""
    (project / "train.py").write_text(OPTIONS + counts + STEPS + MAIN)
    assert checked(project)["batch"] == 16


def test_what_the_command_line_says_wins(project):
    workload = checked(project, "model.py", "--batch", "4", "--dtype", "bfloat16", "--optimizer", "adam")
    assert (workload["batch"], workload["dtype"], workload["optimizer"]) == (4, "bfloat16", "adam")
    assert parameters(workload) == 3 * 2 * (64 * 64 + 64)


def test_the_class_that_is_asked_for_by_name_may_be_a_part(project):
    (project / "train.py").write_text(OPTIONS + STEPS + MAIN)
    workload = checked(project, "model.py::Block")
    assert workload["built_by"].startswith("part of Net, built by train.py --width 64")
    assert parameters(workload) == 4 * (64 * 64 + 64)


def test_a_script_that_divides_its_batch_among_the_processes_of_torchrun_has_one_share(project):
    divided = STEPS.replace("args.batch_size,", "args.batch_size // int(__import__('os').environ['WORLD_SIZE']),")
    (project / "train.py").write_text(OPTIONS + divided + MAIN)
    assert checked(project)["batch"] == 2
    (project / "README.md").write_text(
        README.replace("nproc_per_node=8", "nnodes 2 --nproc-per-node 4 -m").replace(".py", "")
    )
    workload = checked(project)
    assert (workload["batch"], workload["built_by"].endswith("on each of 8 GPUs")) == (2, True)
    (project / "README.md").write_text(README.replace("nproc_per_node=8", "nproc_per_node=$GPUS"))
    assert checked(project)["batch"] == 16


def test_of_several_gpus_of_data_parallel_the_first_is_analysed(project):
    (project / "train.py").write_text(OPTIONS + STEPS + MAIN)
    (project / "README.md").write_text(README.replace("torchrun --nproc_per_node=8", "python"))
    whole = checked(project)
    parallel = OPTIONS.replace("Net(args)", "torch.nn.DataParallel(Net(args), device_ids=[0, 1])")
    (project / "train.py").write_text(parallel + STEPS + MAIN)
    first = checked(project)
    assert (first["error"], first["batch"], parameters(first)) == (None, 16, parameters(whole))
    assert first["built_by"].endswith("builds it; the first of 2 GPUs, among which DataParallel divides the batch")
    assert first["estimate"]["categories"]["gradient"] >= whole["estimate"]["categories"]["gradient"]


def test_the_second_check_starts_no_process_and_none_is_left(project, monkeypatch):
    before = {each.pid for each in psutil.Process().children(recursive=True)}
    first = checked(project)
    assert {each.pid for each in psutil.Process().children(recursive=True)} <= before

    def refuse(*_arguments: object, **_named: object) -> None:
        raise AssertionError("a process is started")

    with monkeypatch.context() as patches:
        for module in (early, supervise):
            patches.setattr(module, "start_python", refuse)
        assert checked(project) == first
    (project / "README.md").write_text(README.replace("64", "32"))
    assert parameters(checked(project)) == 3 * 4 * (32 * 32 + 32)


@pytest.mark.parametrize("way", ["option", "configuration"])
def test_no_script_runs_where_that_is_not_wanted(project, way):
    if way == "configuration":
        (project / "pyproject.toml").write_text("[tool.memlint]\nask-scripts = false\n")
    arguments = ("--no-scripts",) if way == "option" else ()
    done = memlint(project, "check", "model.py", "--no-sweep", *arguments)
    assert "builds it" not in done.stdout


def test_what_is_declared_asks_nothing(project):
    (project / "train.py").write_text("raise SystemExit('asked')\nfrom model import Net\n" + MAIN)
    declared = "\ndef memlint_workload():\n    return Block(8), torch.zeros(2, 8)\n"
    (project / "model.py").write_text(MODEL + declared)
    assert "built_by" not in checked(project)
    assert parameters(checked(project, "model.py::Block(16)")) == 4 * (16 * 16 + 16)


def test_a_script_without_commands_is_asked_with_its_defaults_and_the_next_one_after_one_that_fails(project):
    (project / "README.md").unlink()
    defaults = OPTIONS.replace("required=True", "default=48").replace('"--data", default=48', '"--data", default="."')
    (project / "finetune.py").write_text(defaults + ENDS + MAIN)
    workload = checked(project)
    assert workload["built_by"] == "as finetune.py builds it"
    assert parameters(workload) == 3 * 4 * (48 * 48 + 48)


def test_a_package_that_is_missing_stands_in_the_way_of_no_answer(project):
    use = "from absent_metrics import Meter\nimport absent_logger\nabsent_logger.init(level=absent_logger.INFO + 1)\n"
    (project / "train.py").write_text(
        dedent(use) + OPTIONS.replace("model = Net", "Meter().reset()\n    model = Net") + ENDS + MAIN
    )
    assert parameters(checked(project)) == 3 * 4 * (64 * 64 + 64)


ARRAYS = """
    import glob
    import numpy as np
    class Series(torch.utils.data.Dataset):
        paths = sorted(glob.glob("data/series/*.npy"))
        def __len__(self): return len(self.paths)
        def __getitem__(self, i): return torch.from_numpy(np.load(self.paths[i])[:40, :])
    for x in torch.utils.data.DataLoader(Series(), batch_size=6):
        model(x.cuda()).mean().backward()
        optimizer.step()
"""


def test_the_sides_of_arrays_are_those_that_the_model_takes_where_it_is_called(project):
    (project / "train.py").write_text(OPTIONS + ARRAYS + MAIN)
    workload = checked(project)
    assert workload["built_by"].startswith("as train.py --width 64 --batch_size 16 --data data builds it")
    assert workload["estimate"]["categories"]["input"] == 4 * 6 * 40 * 64


UNGUESSED = MODEL.replace(
    "        return self.blocks(x)",
    "        if type(x).__name__ != 'Sample':\n            raise TypeError('a Sample is wanted')\n        return self.blocks(x.parts[0])",
)
SAMPLES = """
    class Sample:
        def __init__(self, *parts):
            self.parts = parts
    for step in range(1000):
        loss = model(Sample(torch.zeros(args.batch_size, 7, args.width, device="cuda"))).mean()
        loss.backward()
        optimizer.step()
"""


def test_a_model_that_takes_what_nobody_guesses_is_answered_by_the_script_that_trains_it(project):
    (project / "model.py").write_text(UNGUESSED)
    (project / "train.py").write_text(OPTIONS + SAMPLES + MAIN)
    workload = checked(project)
    assert workload["built_by"] == "as train.py --width 64 --batch_size 16 --data data builds it"
    assert (workload["name"], workload["target"], workload["error"]) == ("Net", "model.py::Net", None)
    assert workload["script"]["happened"] == "trained"
    assert parameters(workload) == 3 * 4 * (64 * 64 + 64)


def test_what_the_command_line_says_is_not_answered_with_what_a_script_decides(project):
    (project / "model.py").write_text(UNGUESSED)
    (project / "train.py").write_text(OPTIONS + SAMPLES + MAIN)
    workload = checked(project, "model.py", "--batch", "4")
    assert workload["estimate"] is None
    assert "a Sample is wanted" in workload["error"]["message"]


def test_a_script_that_refuses_its_arguments_is_not_named_and_the_one_that_comes_furthest_is(project):
    (project / "model.py").write_text(UNGUESSED)
    (project / "README.md").write_text(README.replace("--width 64", "--wide 64"))
    needs = OPTIONS.replace("required=True", "default=48") + "    open('labels.bin', 'rb').seek('end')\n" + MAIN
    (project / "pretrain.py").write_text(needs)
    hint = checked(project)["error"]["hint"]
    assert "memlint run pretrain.py, which comes furthest" in hint
    assert "train.py --wide" not in hint


def test_a_guess_says_that_the_script_that_trains_the_model_ended_before_it_built_it(project):
    sized = MODEL.replace("(self, configs)", "(self)").replace("configs.width", "64").replace("configs.depth", "3")
    (project / "model.py").write_text(sized)
    (project / "train.py").write_text(f"{OPTIONS}{ENDS}{MAIN}".replace("Net(args)", "Net(feat_size=8)"))
    workload = checked(project)
    assert workload["error"] is None
    ended = "the script raised TypeError: Net.__init__() got an unexpected keyword argument 'feat_size'"
    command = "train.py --width 64 --batch_size 16 --data data"
    assert workload["built_by"] == f"not as {command} builds it, which ended before that: {ended}"


def test_a_script_that_requires_its_rank_is_asked_as_its_launcher_starts_it(project):
    ranked = OPTIONS.replace("--data", "--local_rank").replace("required=True)\n\n", "type=int, required=True)\n\n")
    (project / "train.py").write_text(f"{ranked}{ENDS}{MAIN}".replace("args.data", "'data'"))
    (project / "README.md").write_text(README.replace(" --data <your data>", ""))
    workload = checked(project)
    assert workload["built_by"] == "as train.py --width 64 --batch_size 16 --local_rank 0 builds it, on each of 8 GPUs"
    assert parameters(workload) == 3 * 4 * (64 * 64 + 64)


PLAIN = """
import torch
from torch import nn

layer = nn.Linear(32, 32).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(1000):
    layer(torch.zeros(16, 32, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_a_file_that_is_a_script_gives_what_its_run_does(project):
    (project / "train.py").write_text(PLAIN)
    workload = checked(project, "train.py")
    assert (workload["origin"], workload["script"]["happened"], workload["batch"]) == ("script", "trained", 16)
    assert parameters(workload) == 4 * (32 * 32 + 32)


@pytest.mark.parametrize("arguments", [("--batch", "4"), ("--no-scripts",)])
def test_a_script_is_not_run_where_a_setting_or_the_command_says_otherwise(project, arguments):
    (project / "train.py").write_text(PLAIN)
    workload = checked(project, "train.py", *arguments)
    assert workload["estimate"] is None
    assert "memlint run train.py" in workload["error"]["hint"]


def test_a_script_that_ends_without_a_model_leaves_the_reason(project):
    (project / "train.py").write_text(PLAIN.replace("nn.Linear(32, 32)", "nn.Linear(32)"))
    workload = checked(project, "train.py")
    assert workload["estimate"] is None
    assert "required positional argument: 'out_features'" in workload["error"]["hint"]


def test_a_command_that_the_project_declares_is_asked_and_run_though_nobody_has_installed_it(project):
    package = project / "src/nets"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (project / "model.py").rename(package / "model.py")
    (package / "cli.py").write_text((OPTIONS + STEPS).replace("from model", "from nets.model"))
    (project / "pyproject.toml").write_text('[tool.memlint]\n[project.scripts]\nnet-train = "nets.cli:main"\n')
    (project / "README.md").write_text("```\nnet-train --width 64 --batch_size 16 --data <your data>\n```\n")
    workload = checked(project, "src/nets/model.py")
    assert workload["built_by"] == "as net-train --width 64 --batch_size 16 --data data builds it"
    assert workload["batch"] == 16
    done = memlint(project, "run", "--output-format", "json", "net-train", "--width", "64", "--data", "data")
    (ran,) = json.loads(done.stdout)["workloads"]
    assert (ran["name"], ran["batch"], ran["script"]["steps"]) == ("net-train", 2, 2)
    assert ran["script"]["command"] == "net-train --width 64 --data data"


def test_a_script_that_reads_variables_for_places_one_after_the_other_is_asked_with_all_of_them(project):
    reads = "".join(f"    open(os.environ['TEST_{each}_DIR'], 'a').close()\n" for each in ("LOG", "DATA", "OUT"))
    parse = "    args = parser.parse_args()\n"
    (project / "train.py").write_text(
        OPTIONS.replace("argparse, copy", "argparse, copy, os").replace(parse, reads + parse) + ENDS + MAIN
    )
    workload = checked(project)
    assert (workload["batch"], workload["optimizer"]) == (16, "sgd-momentum")
    assert parameters(workload) == 3 * 4 * (64 * 64 + 64)


def test_what_a_script_has_built_and_nobody_can_repeat_is_said(project):
    model = MODEL.replace("def __init__(self, configs):", "def __init__(self, configs=None):").replace(
        "super().__init__()\n        self.blocks",
        "super().__init__()\n        configs = configs or Sizes()\n        self.blocks",
    )
    sizes = "class Sizes:\n    width, depth, calls = 8, 1, 0\n    def __init__(self):\n        Sizes.calls += 1\n"
    refuses = "    def __setstate__(self, state):\n        raise TypeError('no copy')\n"
    (project / "model.py").write_text(f"{model}\n\n{sizes}{refuses}")
    text = (
        (OPTIONS + ENDS + MAIN)
        .replace("Net(args)", "Net(wide())")
        .replace(
            "from model import Net",
            "from model import Net, Sizes\n\ndef wide():\n    sizes = Sizes()\n    sizes.width = 64\n    return sizes\n",
        )
    )
    (project / "train.py").write_text(text)
    assert (
        checked(project)["built_by"]
        == "not as train.py --width 64 --batch_size 16 --data data builds it, which cannot be repeated"
    )


EXAMPLE = """
# Net

```python
from argparse import Namespace
import torch
from model import Net

net = Net(Namespace(width=48, depth=2))
```

Then

```python
spectrogram = torch.randn(5, 11, 48)
loss = net(spectrogram).mean()
loss.backward()
net.sample(batch_size=4)
```
"""


def test_an_example_of_the_readme_is_asked_where_no_script_trains(project):
    (project / "train.py").unlink()
    (project / "README.md").write_text(EXAMPLE)
    workload = checked(project)
    assert workload["built_by"] == "as README.md:5 builds it"
    assert (workload["batch"], workload["mode"], parameters(workload)) == (5, "train", 2 * 4 * (48 * 48 + 48))
    assert "input x [batch, 11, 48] float32, as the script gives it" in texts(workload)
    assert any(each.startswith("built as README.md:9 does: Net(configs=Namespace(") for each in texts(workload))


def test_a_script_that_trains_the_model_counts_for_more_than_an_example(project):
    (project / "train.py").write_text(OPTIONS + STEPS + MAIN)
    (project / "README.md").write_text(EXAMPLE + README)
    assert (
        checked(project)["built_by"]
        == "as train.py --width 64 --batch_size 16 --data data builds it, on each of 8 GPUs"
    )


def test_an_example_that_only_evaluates_is_inference_of_its_batch(project):
    (project / "train.py").unlink()
    (project / "README.md").write_text(
        EXAMPLE.replace("loss.backward()\n", "").replace(
            "loss = net", "with torch.inference_mode():\n    out = net.eval()"
        )
    )
    workload = checked(project)
    assert (workload["batch"], workload["mode"]) == (5, "inference")


def test_modules_that_a_constructor_calls_are_no_calls_of_an_example(project):
    norms = "torch.nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)) for _ in range(40)"  # each calls a module
    blocks = "        self.blocks"
    (project / "model.py").write_text(MODEL.replace(blocks, f"        self.norms = nn.ModuleList({norms})\n{blocks}"))
    (project / "train.py").unlink()
    (project / "README.md").write_text(EXAMPLE)
    assert "input x [batch, 11, 48] float32, as the script gives it" in texts(checked(project))


def test_a_config_that_only_the_hub_has_leaves_the_defaults_of_the_class(project):
    (project / "train.py").unlink()
    (project / "model.py").write_text(
        dedent("""
        import json
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self, width=40, scale=[1, 2]):
                super().__init__()
                self.layer = nn.Linear(width, width)

            def forward(self, x):
                return self.layer(x)

            @classmethod
            def from_pretrained(cls, name):
                from huggingface_hub import hf_hub_download
                with open(hf_hub_download(name, "config.json")) as file:
                    net = cls(**json.load(file))
                net.load_state_dict(torch.load(hf_hub_download(name, "pytorch_model.bin")))
                return net.eval()
    """)
    )
    (project / "README.md").write_text(
        "```\nfrom model import Net\nnet = Net.from_pretrained('me/net').cuda()\n"
        "with torch.no_grad():\n    net(torch.zeros(3, 40, device='cuda'))\n```\n"
    )
    workload = checked(project)
    assert (workload["built_by"], workload["mode"], workload["batch"]) == ("as README.md:2 builds it", "inference", 3)
    assert any(
        "the config of me/net is not on this machine: Net has its own defaults" in each for each in texts(workload)
    )


def test_the_hub_of_the_project_itself_is_its_own_folder(project):
    (project / "train.py").unlink()
    (project / "hubconf.py").write_text(
        "from argparse import Namespace\nfrom model import Net\n"
        "def net_small(pretrained=True, width=24):\n    return Net(Namespace(width=width, depth=1))\n"
    )
    (project / "README.md").write_text(
        "```\nimport torch\nnet = torch.hub.load('me/net', 'net_small', width=36).cuda()\nnet(torch.zeros(2, 36).cuda())\n```\n"
    )
    workload = checked(project)
    assert workload["built_by"] == "as README.md:2 builds it"
    assert (workload["batch"], parameters(workload)) == (2, 4 * (36 * 36 + 36))


def test_an_example_that_calls_a_model_with_what_nobody_guesses_is_run(project):
    (project / "train.py").unlink()
    (project / "model.py").write_text(MODEL.replace("return self.blocks(x)", "return self.blocks(x.values)"))
    (project / "README.md").write_text(
        "```\nfrom argparse import Namespace\nfrom model import Net\nnet = Net(Namespace(width=16, depth=1)).cuda()\n"
        "graph = Namespace(values=torch.zeros(9, 16, requires_grad=True, device='cuda'))\nenergy = net(graph).sum()\n"
        "forces, = torch.autograd.grad(energy, graph.values)\n```\n"
    )
    workload = checked(project)
    assert (workload["built_by"], workload["mode"]) == ("as README.md:2 builds it", "inference")
    assert workload["script"]["happened"] == "evaluated"


def test_a_plain_value_of_a_call_is_one_of_its_inputs(project):
    takes = MODEL.replace("def forward(self, x):\n        return self.blocks(x)", "def forward(self, pair, split, scale=1.0):\n        x, y = pair\n        return self.blocks(x)[:, :split] * scale + y[:, :split]")  # fmt: skip
    assert takes != MODEL
    (project / "model.py").write_text(takes)
    calls = "x = torch.zeros(args.batch_size, 7, args.width, device='cuda'), torch.ones(args.batch_size, 7, 1, device='cuda')"
    steps = STEPS.replace('x = torch.zeros(args.batch_size, 7, args.width, device="cuda")', calls)
    (project / "train.py").write_text(OPTIONS + steps.replace("model(x)", "model(x, 3, scale=1.0)") + MAIN)
    found = texts(checked(project))
    assert "input pair.0 [batch, 7, 64] float32, as the script gives it" in found
    assert "input split = 3, as the script gives it" in found
    assert not any("scale" in each for each in found)  # it is the default


@pytest.mark.parametrize("is_checked", [False, True])
def test_images_in_an_object_with_their_mask_are_inputs_or_are_taken_alone(project, is_checked):
    plain = "        if not isinstance(x, Nested):\n            x = Nested(x, torch.ones_like(x[..., 0]))\n"
    returns = "        return self.blocks(x.tensors) * x.mask[..., None]"
    takes = MODEL.replace("        return self.blocks(x)", f"{plain if is_checked else ''}{returns}")
    nested = "class Nested:\n    def __init__(self, tensors, mask):\n        self.tensors, self.mask = tensors, mask\n"
    (project / "model.py").write_text(takes.replace("class ", f"{nested}\nclass ", 1))
    steps = STEPS.replace("model(x)", "model(__import__('model').Nested(x, torch.ones(*x.shape[:2], device='cuda')))")
    (project / "train.py").write_text(OPTIONS + steps + MAIN)
    found = texts(checked(project))
    name = "x" if is_checked else "x.tensors"
    assert any(each.startswith(f"input {name} [batch, 7, 64] float32") for each in found), found
    assert not any("nothing states" in each for each in found)


def test_a_script_that_ends_after_an_evaluation_has_said_the_sizes_of_one_item_alone(project):
    evaluates = """
    with torch.no_grad():
        for _ in range(9):
            model.eval()(torch.zeros(5, 9, args.width, device="cuda"))
    raise KeyboardInterrupt
"""
    (project / "train.py").write_text(OPTIONS + evaluates + MAIN)
    workload = checked(project)
    assert workload["built_by"].endswith("builds it, on each of 8 GPUs; with inputs of its evaluation")
    assert (workload["batch"], workload["mode"]) == (16, "train")
    assert "input x [batch, 9, 64] float32, as the script gives it" in texts(workload)


def test_a_validation_that_fails_before_the_training_says_nothing_of_its_batches(project):
    validates = "    model.eval()(torch.zeros(5, 9, args.width + 1, device='cuda'))\n"
    (project / "train.py").write_text(OPTIONS + validates + MAIN)
    workload = checked(project)
    assert (workload["batch"], workload["mode"]) == (16, "train")
    assert workload["built_by"].endswith("builds it, on each of 8 GPUs")
    assert not any(each.endswith("as the script gives it") for each in texts(workload))


PATCHES = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 8)

    def features(self, x):
        return self.proj(x)

    def forward(self, x):
        batch, channels, patches, points = x.shape
        assert (channels, patches) != (3, 224)
        return self.features(x.view(batch, channels * patches, points))

    def predict(self, frames):
        return [self.forward(frame) for frame in frames]
"""


def test_inputs_that_nothing_else_gives_are_those_of_an_example(project):
    (project / "model.py").write_text(PATCHES)
    builds = "import torch\nfrom model import Net\nif __name__ == '__main__':\n    net = Net(width=50).cuda()\n"
    optimizes = "    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n    raise KeyboardInterrupt\n"
    (project / "train.py").write_text(builds + optimizes)
    (project / "README.md").write_text(
        "```\nimport torch\nfrom model import Net\nnet = Net(50)\nnet(torch.randn(8, 22, 4, 50))\n```\n"
    )
    workload = checked(project)
    assert workload["built_by"] == "as train.py builds it; x [batch, 22, 4, 50] float32, as in an example"
    assert "inputs x [batch, 22, 4, 50] float32, as in an example elsewhere" in texts(workload)


def test_a_model_whose_own_method_calls_its_forward_has_the_inputs_of_that_call(project):
    (project / "model.py").write_text(PATCHES)
    (project / "train.py").unlink()
    (project / "infer.py").write_text(
        "import torch\nfrom model import Net\nif __name__ == '__main__':\n    net = Net(width=50).cuda().eval()\n"
        "    with torch.no_grad():\n        net.predict(torch.zeros(9, 1, 6, 7, 50, device='cuda'))\n"
    )
    workload = checked(project)
    assert (workload["built_by"], workload["mode"], workload["batch"]) == ("as infer.py builds it", "inference", 1)
    assert "input x [batch, 6, 7, 50] float32, as the script gives it" in texts(workload)


def test_an_example_that_only_builds_the_model_leaves_the_inputs_to_the_script_that_calls_it(project):
    (project / "train.py").unlink()
    (project / "README.md").write_text(
        "```\nfrom argparse import Namespace\nfrom model import Net\nnet = Net(Namespace(width=48, depth=2))\n```\n"
    )
    (project / "net_example.py").write_text(
        "from argparse import Namespace\nimport torch\nfrom model import Net\nnets = [Net(Namespace(width=24, depth=2))]\n"
        "with torch.no_grad():\n    for net in nets:\n        net(torch.zeros(3, 5, 24))\n"
    )
    workload = checked(project)
    assert (workload["built_by"], workload["mode"]) == ("as net_example.py builds it", "inference")
    assert "input x [batch, 5, 24] float32, as the script gives it" in texts(workload)


def test_a_notebook_that_imports_everything_from_a_module_beside_it_is_asked(project):
    (project / "train.py").unlink()
    inner = project / "net"
    inner.mkdir()
    (inner / "model.py").write_text((project / "model.py").read_text())
    (inner / "sizes.py").write_text("from argparse import Namespace\nSIZES = Namespace(width=40, depth=2)\n")
    cells = [
        "from sizes import *\nfrom model import *\n",
        "net = Net(SIZES).cuda()\n",
        "net(torch.zeros(3, 9, 40).cuda()).mean().backward()\n",
    ]
    notebook = {
        "cells": [{"cell_type": "code", "source": each.splitlines(True)} for each in cells],
        "nbformat": 4,
        "metadata": {},
    }
    (inner / "train.ipynb").write_text(json.dumps(notebook, indent=1))
    workload = checked(project, "net/model.py")
    assert workload["built_by"].startswith("as net/train.ipynb:")
    assert (workload["batch"], parameters(workload)) == (3, 2 * 4 * (40 * 40 + 40))


def test_an_example_comes_before_scripts_that_train_something_else(project):
    (project / "zoo.py").write_text("import model\nclass Other(model.Block):\n    pass\n")
    other = OPTIONS.replace("from model import Net", "import zoo").replace("Net(args)", "zoo.Other(args.width)")
    for name in ("train.py", "pretrain.py"):
        (project / name).write_text(other + STEPS + MAIN)
    (project / "README.md").write_text(EXAMPLE + README)
    assert checked(project)["built_by"] == "as README.md:5 builds it"


def test_a_call_that_lacks_an_input_keeps_the_others(project):
    takes = MODEL.replace("def forward(self, x):\n        return self.blocks(x)", "def forward(self, x, context):\n        return self.blocks(x) + context.mean()")  # fmt: skip
    assert takes != MODEL
    (project / "model.py").write_text(takes)
    calls = (
        "    with torch.no_grad():\n        context = open('words.json').no_such_method()\n"
        "        model(torch.zeros(3, 5, args.width, device='cuda'), context)\n"
    )
    (project / "train.py").write_text(OPTIONS.replace("    optimizer", "    # optimizer") + calls + MAIN)
    workload = checked(project)
    assert (workload["error"], workload["batch"], workload["mode"]) == (None, 3, "inference")  # in its `no_grad`, too
    assert "input x [batch, 5, 64] float32, as the script gives it" in texts(workload)
    (added,) = (each for each in texts(workload) if each.endswith(", which the script's call lacks"))
    assert added.startswith("input context [")
    assert workload["built_by"].endswith(": nothing states their size")


def test_a_script_that_fails_for_want_of_packages_says_which(project):
    (project / "model.py").write_text(UNGUESSED)
    parses = "from absent_parser import parse\nargs = {'parsed': str(parse(__doc__))}\nargs['batch_size']\n"
    (project / "train.py").write_text(parses + OPTIONS + MAIN)
    hint = checked(project)["error"]["hint"]
    assert "pip install absent-parser" in hint
    assert "KeyError: 'batch_size'" in hint


def test_what_was_passed_over_is_the_reason_that_a_script_has_not_built_the_model(project):
    sized = MODEL.replace("(self, configs)", "(self)").replace("configs.width", "64").replace("configs.depth", "3")
    (project / "model.py").write_text(sized)
    calls = "    other = torch.nn.Linear(8, 8).cuda()\n    other(torch.zeros(2, 8).cuda())\n"
    (project / "train.py").write_text(OPTIONS.replace("Net(args).cuda()", "Net(depth=3).cuda()").replace("model.parameters()", "torch.nn.Linear(8, 8).parameters()") + calls + MAIN)  # fmt: skip
    built_by = checked(project)["built_by"]
    assert "builds it, which ended before that: memlint passed over `model = Net(depth=3).cuda()`" in built_by


def test_a_batch_that_a_step_takes_in_parts_is_one_of_them(project):
    loads = OPTIONS.replace(
        "    optimizer",
        "    rows = torch.utils.data.TensorDataset(torch.zeros(256, args.width))\n"
        "    loader = torch.utils.data.DataLoader(rows, batch_size=args.batch_size, shuffle=True)\n    optimizer",
    )
    loads = loads.replace("def main", "parser.add_argument('--microbatch', type=int, default=4)\n\ndef main")
    (project / "train.py").write_text(loads + ENDS + MAIN)
    workload = checked(project)
    assert workload["batch"] == 4
    assert "accumulation: args.microbatch = 4" in texts(workload)
    assert "batch 4: args.microbatch = 4, a part of the 16 of DataLoader(batch_size=16)" in texts(workload)
