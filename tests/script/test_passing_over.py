"""Lines after one that failed: what they build counts, and nothing is built from a value that nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlint.commands.exit_status import exit_status
from memlint.report.phrases import script_text
from tests.script.isolated import needs
from tests.script.running import run_text
from tests.script.test_own_step import happened, requested, workload_of

HEAD = """
    import argparse, json, os
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self, path, num):
            self.rows = json.loads(ROWS)["rows"] * num

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return torch.full((256,), self.rows[index])

    class Net(nn.Module):
        def __init__(self, width, classes=10):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            self.head = nn.Linear(width, classes)

        def forward(self, x):
            return self.head(self.layers(x))
"""
TRAINS = """
    def load(args):
        data = Rows("rows.json", 512)
        print(f"{len(data)} rows")
        return data, len(data.rows)

    def main(args):
        data, num_rows = load(args)
        print(num_rows)
        loader = DataLoader(data, batch_size=args.batch, shuffle=True)
        model = Net(args.width).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for epoch in range(2):
            for x in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x.cuda()).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            torch.save(model.state_dict(), "model.pt")

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch", type=int, default=48)
        parser.add_argument("--width", type=int, default=512)
        main(parser.parse_args())
"""
THERE, ABSENT = """    ROWS = '{"rows": [1.0]}'\n""", """    ROWS = '{"lines": [1.0]}'\n"""


def test_a_script_whose_data_set_fails_gets_the_step_that_it_takes_with_its_data(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = workload_of(run_text(tmp_path / "whole", THERE + HEAD + TRAINS))
    assert happened(whole) == "trained"
    checked = run_text(tmp_path, ABSENT + HEAD + TRAINS)
    workload = workload_of(checked)
    assert (workload.error, exit_status(checked.report), happened(workload)) == (None, 0, "built")
    assert (workload.batch, workload.dtype, workload.optimizer) == (48, whole.dtype, "Adam")
    assert requested(workload) == pytest.approx(requested(whole), rel=0.01)
    assert workload.script is not None
    assert workload.script.stop is not None
    assert "KeyError: 'rows'" in workload.script.stop.message
    assert not workload.script.writes
    passed = [each for each in workload.assumptions if "passed over" in each.text]
    assert [each.text.split("`")[1] for each in passed] == ["data, num_rows = load(args)"]


def test_a_size_that_the_failed_line_should_have_given_leaves_no_figure(tmp_path: Path) -> None:
    text = TRAINS.replace("Net(args.width)", "Net(args.width, num_rows)")
    workload = workload_of(run_text(tmp_path, ABSENT + HEAD + text))
    assert workload.error is not None
    assert "KeyError: 'rows'" in workload.error.message
    assert workload.estimate is None


def test_half_of_a_model_is_none(tmp_path: Path) -> None:
    text = """
    class Loaded(Net):
        def __init__(self):
            super().__init__(4096)
            self.words = Rows("words.json", 8)
            self.table = nn.Embedding(len(self.words), 4096)

    model = Loaded().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    """
    workload = workload_of(run_text(tmp_path, ABSENT + HEAD + text))
    assert workload.error is not None
    assert workload.estimate is None


@pytest.mark.parametrize(
    "lines",
    [
        "model.head = nn.Linear(4096, len(Rows('classes.json', 4)))",
        "model.add_module('head', nn.Linear(4096, len(Rows('classes.json', 4))))",
        "model = nn.Sequential(model, nn.Linear(10, len(Rows('classes.json', 4))))",
    ],
)
def test_a_model_that_a_failed_line_would_have_changed_is_none(tmp_path: Path, lines: str) -> None:
    text = f"""
    def build():
        model = Net(4096)
        {lines}
        return model

    model = build().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    """
    workload = workload_of(run_text(tmp_path, ABSENT + HEAD + text))
    assert workload.estimate is None


def test_an_object_that_holds_the_training_goes_on_within_its_constructor(tmp_path: Path) -> None:
    text = """
    class Trainer:
        def __init__(self, width):
            self.data = Rows("rows.json", 8)
            if len(self.data) < 2:
                raise ValueError("too few rows")
            self.loader = DataLoader(self.data, batch_size=12, shuffle=True)
            self.model = Net(width).cuda()

        def fit(self):
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            for x in self.loader:
                self.model(x.cuda()).mean().backward()
                self.optimizer.step()

    Trainer(512).fit()
    """
    workload = workload_of(run_text(tmp_path, ABSENT + HEAD + text))
    assert (workload.error, happened(workload)) == (None, "built")
    assert (workload.batch, workload.optimizer) == (12, "SGD")


def test_a_step_that_the_script_takes_after_a_failed_line_says_so(tmp_path: Path) -> None:
    text = """
    key = os.environ["KEY_OF_A_SERVICE"]
    model = Net(512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(8, 256, device="cuda")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    workload = workload_of(run_text(tmp_path, THERE + HEAD + text))
    assert (workload.error, happened(workload), workload.batch) == (None, "trained", 8)
    assert workload.script is not None
    did = script_text(workload.script)
    assert "2 steps were taken, after memlint passed over `key = os.environ['KEY_OF_A_SERVICE']`" in did


def test_arguments_that_a_script_refuses_are_an_error_as_ever(tmp_path: Path) -> None:
    workload = workload_of(run_text(tmp_path, THERE + HEAD + TRAINS, "--size", "4"))
    assert workload.error is not None
    assert "--size" in workload.error.hint


LACKS = """
    import json, sys, yaml
    import numpy as np
    import torch

    def features_of(settings):
        return np.load("data/train.npy"), settings.get("win_length", settings["win_size"])

    def describe(failed):  # as a library does that keeps no frames of errors
        while failed is not None:
            failed.__traceback__ = None
            failed = failed.__context__

    class Trainer:
        def __init__(self, config):
            self.data = features_of(config["spectrum"])
            try:
                raise OSError("not cached")
            except OSError as error:
                describe(error)
            raise ValueError("no model")
            self.model = torch.nn.Linear(2, 2).cuda()

    with open(sys.argv[2]) as file:
        Trainer(yaml.safe_load(file))
"""


@needs("yaml")
def test_a_setting_that_the_typed_config_lacks_is_named_with_the_lines_that_take_it(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text("spectrum:\n  n_fft: 512\n  win_length: 512\nbatch: 2\n")
    config = str(tmp_path / "train.yaml")
    workload = workload_of(run_text(tmp_path, LACKS, "--config", config))
    assert workload.script is not None
    stop = workload.script.stop
    assert stop is not None
    assert "KeyError: 'win_size'" in stop.message
    assert "train.yaml has no 'win_size' where the program takes it" in (stop.hint or "")
    assert any("train.py:7" in each for each in stop.traceback)


@needs("yaml")
@pytest.mark.parametrize("part", ["", "model"])
def test_a_setting_that_an_object_made_of_the_config_lacks_is_named(tmp_path: Path, part: str) -> None:
    (tmp_path / "train.yaml").write_text(
        f"seed: 1\n{part}:\n  width: 4\n  batch: 2\n" if part else "width: 4\nbatch: 2\n"
    )
    text = f"""\
        import argparse, sys, torch, yaml
        config = yaml.safe_load(open(sys.argv[2]))
        config = config.get("{part}", config)
        args = argparse.Namespace(resume=None, **config)
        model = torch.nn.Linear(args.width, args.virtual_nodes).cuda()
        """
    workload = workload_of(run_text(tmp_path, text, "--config", str(tmp_path / "train.yaml")))
    assert workload.error is not None
    assert "train.yaml has no 'virtual_nodes' where the program takes it: give it one." in workload.error.hint


def test_no_data_that_is_not_there_is_named_beside_what_an_error_says_is_to_be_installed(tmp_path: Path) -> None:
    text = "import numpy as np\nnp.load('data/train.npy')\nassert False, 'Please install the readers first.'\n"
    workload = workload_of(run_text(tmp_path, text))
    assert workload.error is not None
    assert "put it there" not in (workload.error.hint or "")


OF_TRAINER = """
    import json
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    max_length = 48

    def load():
        words = json.loads(ROWS)["rows"] * max_length
        return [{"input_ids": words, "labels": words}] * 64

    def data_module():
        return dict(train_dataset=load())

    arguments = TrainingArguments("out", per_device_train_batch_size=4, gradient_accumulation_steps=2,
                                  report_to="none", optim="adamw_torch", max_steps=4)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=512))
"""


@needs("transformers", "accelerate")
@pytest.mark.parametrize(
    "lines",
    [
        ("data = load()", "Trainer(model, arguments, train_dataset=data).train()"),
        ("data = data_module()", "Trainer(model=model, args=arguments, **data).train()"),
    ],
)
def test_a_trainer_whose_data_fails_takes_its_steps_with_rows_of_what_its_model_takes(
    lines: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    trains = OF_TRAINER + "".join(f"    {line}\n" for line in lines)

    whole = workload_of(run_text(tmp_path / "whole", THERE.replace("1.0", "7") + trains))
    failed = workload_of(run_text(tmp_path, ABSENT + trains))

    assert (happened(failed), failed.batch) == (happened(whole), whole.batch) == ("trained", 4)
    assert requested(failed) == requested(whole)
    assert any("input_ids [batch, seq=48]" in each.text for each in failed.assumptions)
    assert failed.script is not None
    assert "after memlint passed over `data = " in script_text(failed.script)
