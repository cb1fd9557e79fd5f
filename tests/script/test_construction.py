"""The record of a script that is over: its models with their arguments, optimizers, loaders, settings."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memlint.workloads.construction.recorded_arguments import load_arguments
from tests.script.running import write

DRIVER = Path(__file__).with_name("construction_driver.py")

MODEL = """
    import argparse
    import copy
    from dataclasses import dataclass

    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    @dataclass
    class Config:
        width: int = 64
        depth: int = 2

    class Block(nn.Module):
        def __init__(self, width, dropout=0.1):
            super().__init__()
            self.linear = nn.Linear(width, width)

        def forward(self, x):
            return x + self.linear(x)

    class Net(nn.Module):
        def __init__(self, config, *, classes=10):
            super().__init__()
            config = None if config is None else config
            self.blocks = nn.ModuleList(Block(config.width) for _ in range(config.depth))
            self.head = nn.Linear(config.width, classes)

        def forward(self, x, mask=None):
            for block in self.blocks:
                x = block(x)
            return self.head(x)

"""


def built(folder: Path, text: str, *args: str) -> dict[str, Any]:
    """The record of what a script with this text has built."""
    script = write(folder, text, "built_script.py")
    exchange = folder / "exchange"
    (exchange / "scratch").mkdir(parents=True)
    options = {"script": str(script), "args": args, "exchange": str(exchange)}
    ran = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(options)], check=False, capture_output=True, text=True, timeout=300
    )
    assert (exchange / "built.json").exists(), ran.stdout + ran.stderr
    record: dict[str, Any] = json.loads((exchange / "built.json").read_text(encoding="utf-8"))
    return record


def test_a_script_that_fails_before_its_first_step_leaves_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "built_script", raising=False)
    text = """
    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch_size", type=int, default=7)
        parser.add_argument("--eval_batch_size", type=int, default=9)
        parser.add_argument("--gradient_accumulation_steps", type=int, default=4)
        args = parser.parse_args()
        model = Net(Config(depth=3), classes=100).cuda()
        ema = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        criterion = nn.CrossEntropyLoss()
        scaler = torch.amp.GradScaler("cuda")
        raise FileNotFoundError("data/train.bin")

    if __name__ == "__main__":
        main()
    """
    record = built(tmp_path, MODEL + text)
    model, ema = record["models"]
    assert (model["module"], model["qualname"]) == ("__main__", "Net")
    assert model["path"] == str(tmp_path / "built_script.py")
    assert model["num_parameters"] == 3 * (64 * 64 + 64) + 64 * 100 + 100
    assert (model["shown"], model["frame"][2]) == ("Net(classes=100, config=Config(width=64, depth=3))", "main")
    assert (model["has_optimizer"], model["is_called"], model["is_copy"]) == (True, False, False)
    assert (ema["is_copy"], ema["has_optimizer"], ema["frame"]) == (True, False, None)
    positional, named = load_arguments(base64.b64decode(model["arguments"]))
    assert (positional, str(named)) == ((), "{'classes': 100, 'config': Config(width=64, depth=3)}")
    assert type(named["config"]).__module__ == "built_script"  # in this process, where no script is __main__
    (block,) = model["parts"]
    assert (block["qualname"], block["shown"]) == ("Block", "Block(width=64)")
    assert [(each["name"], each["defaults"]["lr"]) for each in record["optimizers"]] == [("AdamW", 1e-4)]
    assert record["batch"]["value"] == 7
    assert (record["accumulation"]["value"], record["dtype"]["value"]) == (4, "fp16-amp")
    assert record["criteria"] == ["CrossEntropyLoss"]
    assert (record["happened"], record["ending"]["is_failure"]) == ("built", True)


def test_a_model_that_only_the_scripts_variables_hold_is_there_after_its_end(tmp_path: Path) -> None:
    text = """
    model = nn.Sequential(Net(Config()), nn.ReLU())
    small = Net(Config(width=8))
    """
    record = built(tmp_path, MODEL + text)
    assert [each["qualname"] for each in record["models"]] == ["Sequential", "Net"]
    assert record["ending"]["reason"] == "the script ran to its end"


def test_an_activation_of_a_table_is_no_model(tmp_path: Path) -> None:
    text = """
    activations = {"relu": nn.ReLU(), "prelu": nn.PReLU()}
    raise FileNotFoundError("data")
    """
    assert built(tmp_path, MODEL + text)["models"] == []


def test_a_model_whose_function_has_caught_the_error_is_there(tmp_path: Path) -> None:
    text = """
    def main():
        model = Net(Config())
        try:
            raise OSError
        except OSError:
            return

    main()
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["qualname"] == "Net"


def test_what_a_registry_reads_of_constructors_is_what_pytorch_says(tmp_path: Path) -> None:
    text = """
    import inspect
    from torch.utils.data import BatchSampler

    names = [inspect.getfullargspec(each.__init__).args for each in (DataLoader, BatchSampler, torch.autocast)]
    assert [each[:3] for each in names] == [
        ["self", "dataset", "batch_size"], ["self", "sampler", "batch_size"], ["self", "device_type", "dtype"]
    ], names
    options = {"dataset": TensorDataset(torch.randn(64, 64)), "batch_size": 8, "shuffle": True}
    DataLoader(**{name: options[name] for name in names[0] if name in options})
    model = Net(Config())
    """
    record = built(tmp_path, MODEL + text)
    assert record["batch"]["value"] == 8
    assert [each["qualname"] for each in record["models"]] == ["Net"]


def test_the_training_loader_says_the_batch_and_a_call_its_inputs(tmp_path: Path) -> None:
    text = """
    data = TensorDataset(torch.randn(64, 64))
    evaluation = DataLoader(data, batch_size=2)
    training = DataLoader(data, batch_size=16, shuffle=True)
    model = Net(Config()).cuda().eval()
    batch_size = 3
    with torch.no_grad():
        model(torch.zeros(5, 64, device="cuda"), mask=torch.ones(5, dtype=torch.bool, device="cuda"))
    raise RuntimeError
    """
    record = built(tmp_path, MODEL + text)
    assert (record["batch"]["value"], record["batch"]["source"]) == (16, "DataLoader(batch_size=16)")
    assert record["batch"]["frame"][1] > 0
    (model,) = record["models"]
    assert (model["is_called"], model["is_training"]) == (True, False)
    shapes = [(each["name"], each["shape"], each["dtype"]) for each in model["inputs"]]
    assert shapes == [("x", [5, 64], "float32"), ("mask", [5], "bool")]


def test_of_several_loaders_the_one_counts_whose_batches_the_model_is_trained_with(tmp_path: Path) -> None:
    text = """
    from torch.utils.data import DistributedSampler
    data = TensorDataset(torch.zeros(64, 64))
    scoring, training = (DataLoader(data, size, sampler=DistributedSampler(data, 1, 0)) for size in (4, 16))
    model = Net(Config()).cuda()
    model(next(iter(training))[0].cuda())
    raise RuntimeError
    """
    assert built(tmp_path, MODEL + text)["batch"]["value"] == 16


def test_what_memlint_has_put_around_a_constructor_is_none_of_its_arguments(tmp_path: Path) -> None:
    """An argument that a package of another version hands on is left out by such a wrapper."""
    text = """
    from memlint.targets.script import Amendment
    from memlint.workloads.older_versions.applying import amend

    amend(Amendment("keyword", "", "Net.__init__.pretrained_cfg"))
    model = Net(Config(), classes=3, pretrained_cfg=None).cuda()
    raise RuntimeError
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["shown"] == "Net(classes=3, config=Config(width=64, depth=2))"


def test_a_class_that_the_models_derives_from_has_the_arguments_and_inputs_that_it_got(tmp_path: Path) -> None:
    text = """
    class Trained(Net):
        def __init__(self, lr):
            super().__init__(Config(width=32), classes=3)
            self.lr = lr

    model = Trained(0.1).cuda()
    model(torch.zeros(5, 32, device="cuda"))
    raise RuntimeError
    """
    record = built(tmp_path, MODEL + text)
    (model,) = record["models"]
    (base,) = [each for each in model["parts"] if each["is_base"]]
    assert (model["qualname"], base["qualname"]) == ("Trained", "Net")
    assert base["shown"] == "Net(classes=3, config=Config(width=32, depth=2))"
    assert [each["shape"] for each in base["inputs"]] == [[5, 32]]


def test_a_module_without_a_truth_value_is_a_part_as_any_other(tmp_path: Path) -> None:
    text = """
    class Parameters(nn.Linear):
        def __bool__(self):
            raise RuntimeError("converting it to a boolean value is not permitted")

    model = Net(Config()).cuda()
    model.old = Parameters(64, 64).cuda()
    raise RuntimeError
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["qualname"] == "Net"


def test_wrappers_of_a_constructor_hide_none_of_its_arguments(tmp_path: Path) -> None:
    text = """
    import functools

    def registered(function):
        @functools.wraps(function)
        def wrapper(self, *args, **kwargs):
            function(self, *args, **kwargs)
        return wrapper

    class Wrapped(nn.Module):
        @registered
        def __init__(self, width, *layers, bias=True, **others):
            super().__init__()
            self.linear = nn.Linear(width, width, bias=bias)

    model = Wrapped(4, 1, 2, bias=False, name="w")
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["shown"] == "Wrapped(4, 1, 2, bias=False, name='w')"


def test_what_a_checker_of_types_adds_to_a_constructor_is_none_of_its_arguments(tmp_path: Path) -> None:
    text = """
    import functools

    def checked(function):
        @functools.wraps(function)
        def wrapper(self, width, *, classes=10, __checker_object=object()):
            function(self, width, classes=classes)
        return wrapper

    class Checked(nn.Module):
        @checked
        def __init__(self, width, *, classes=10):
            super().__init__()
            self.linear = nn.Linear(width, classes)

    model = Checked(4)
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["shown"] == "Checked(width=4)"
    assert load_arguments(base64.b64decode(model["arguments"])) == ((), {"width": 4})


def test_a_class_of_the_script_that_is_built_after_a_line_has_failed_is_in_its_file(tmp_path: Path) -> None:
    text = """
    def main():
        rows = {}["rows"]
        net = Net(Config(width=16))
        torch.optim.SGD(net.parameters(), lr=0.1)
        net.cuda()(torch.zeros(2, 16, device="cuda")).mean().backward()
        for x, y in rows:
            net(x, y).mean().backward()
    main()
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["path"] == str(tmp_path / "built_script.py")
    assert [each["name"] for each in model["inputs"]] == ["x"]
    assert len(model["fed"]["inputs"]) == 2
    assert model["called_at"][1] < model["fed"]["line"]


def test_a_model_that_is_trained_on_the_cpu_has_the_inputs_that_it_got_there(tmp_path: Path) -> None:
    text = """
    net = Net(Config(width=8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        net(torch.randn(6, 8)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    record = built(tmp_path, MODEL + text)
    (model,) = record["models"]
    assert (record["happened"], model["is_called"], model["inputs"][0]["shape"]) == ("nothing", True, [6, 8])


def test_a_model_that_another_module_holds_too_has_the_inputs_of_its_own_call(tmp_path: Path) -> None:
    text = """
    class Averages(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.online, self.average = model, copy.deepcopy(model)

    net = Net(Config(width=8)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wrapped = nn.DataParallel(net)
    averages = Averages(wrapped)
    wrapped(torch.zeros(6, 8, device="cuda")).sum().backward()
    raise RuntimeError
    """
    record = built(tmp_path, MODEL + text)
    (model,) = record["models"]
    assert (model["qualname"], model["is_called"], model["inputs"]) == ("Averages", True, [])
    (part,) = [each for each in model["parts"] if each["qualname"] == "Net"]
    assert [each["shape"] for each in part["inputs"]] == [[6, 8]]


@pytest.mark.parametrize("gpus", [[0], [0, 1, 2, 3]])
def test_a_wrapper_for_several_gpus_says_how_many(tmp_path: Path, gpus: list[int]) -> None:
    text = f"""
    model = nn.DataParallel(Net(Config(width=8)), device_ids={gpus}).cuda()
    raise RuntimeError
    """
    (model,) = built(tmp_path, MODEL + text)["models"]
    assert model["num_gpus"] == len(gpus)


def test_a_scripted_copy_is_no_model(tmp_path: Path) -> None:
    text = """
    net = Net(Config(width=8))
    scripted = torch.jit.script(net.head)
    raise RuntimeError
    """
    record = built(tmp_path, MODEL + text)
    assert [each["qualname"] for each in record["models"]] == ["Net"]


@pytest.mark.parametrize(("enabled", "dtype"), [("False", "float32"), ("args.amp", "fp16-amp")])
def test_a_scaler_says_nothing_where_every_autocast_is_switched_off(tmp_path, monkeypatch, enabled, dtype):
    monkeypatch.delitem(sys.modules, "built_script", raising=False)
    text = f"""
    def train(model, images):
        with torch.amp.autocast("cuda", enabled={enabled}):
            return model(images)

    if __name__ == "__main__":
        model = Net(Config(depth=3), classes=100).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        raise FileNotFoundError("data/train.bin")
    """
    assert built(tmp_path, MODEL + text)["dtype"]["value"] == dtype


@pytest.mark.parametrize(("inner", "dtype"), [("open('.')", "float32"), ("torch.autocast('cuda')", "fp16-amp")])
def test_a_scaler_says_nothing_where_the_model_was_trained_without_an_autocast(tmp_path, monkeypatch, inner, dtype):
    monkeypatch.delitem(sys.modules, "built_script", raising=False)
    text = f"""
    class Head(nn.Module):
        def forward(self, images):
            if images is None:
                with {inner}:
                    return images
            return images

    def evaluate(model, images):
        with torch.amp.autocast("cuda"):
            return model(images)

    if __name__ == "__main__":
        model = Net(Config(depth=3), classes=100).cuda()
        scaler = torch.amp.GradScaler("cuda")
        model(torch.zeros(2, 3, 8, 8).cuda())
        raise FileNotFoundError("data/train.bin")
    """
    assert built(tmp_path, MODEL + text)["dtype"]["value"] == dtype
