"""Which files are scripts: importing one would run its training."""

import pytest

from memlint.source.scripts import is_script, only_runs, training_at_import
from memlint.source.text import Source

HEAD = "import argparse\nimport torch\nfrom engine import train_one_epoch\nfrom model import net\n"
TRAIN = (
    "def train(epoch):\n    net(epoch).backward()\n\ndef main():\n    for epoch in range(3):\n        train(epoch)\n"
)
MODEL = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"


def line(text):
    call = training_at_import(Source.from_text(HEAD + text, "train.py"))
    return call and call.lineno - HEAD.count("\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("while True:\n    scaler.scale(loss).backward()\n", 2),
        ("for x in loader:\n    self.optimizer.step()\n", 2),
        (f"{TRAIN}main()\n", 7),
        (f"{TRAIN}for epoch in range(9):\n    train(epoch)\n", 8),
        (f"{MODEL}{TRAIN}with torch.device('cuda'):\n    main()\n", 11),
        ("train_one_epoch(net)\n", 1),
        ("trainer = transformers.Trainer(net)\ntrainer.train()\n", 2),
        ("trainer = Trainer(net)\ntrainer.run()\n", 2),
        ("args = argparse.ArgumentParser().parse_args()\n", 1),
    ],
)
def test_what_trains_when_it_is_imported_is_a_script(text, number):
    assert line(text) == number
    assert line(f"{text}\nif __name__ == '__main__':\n    print(1)\n") == number


@pytest.mark.parametrize(
    "text",
    [
        f"{TRAIN}if __name__ == '__main__':\n    main()\n",
        f"{MODEL}args = argparse.ArgumentParser().parse_args()\n",
        "net.train()\nnet(torch.zeros(1)).mean().backward()\n",
        "for name in names:\n    print(name)\nscheduler.step()\n",
        f"{TRAIN}def test():\n    train(1)\n",
    ],
)
def test_what_only_defines_or_looks_at_something_may_be_imported(text):
    assert line(text) is None


def test_a_file_with_a_main_part_and_no_model_is_a_script():
    main = "if __name__ == '__main__':\n    main()\n"
    assert is_script(Source.from_text(HEAD + TRAIN + main, "train.py"))
    assert not is_script(Source.from_text(HEAD + MODEL + main, "model.py"))
    assert not is_script(Source.from_text(HEAD + TRAIN, "engine.py"))


def test_a_trainer_trains_whatever_else_is_imported():
    text = "from transformers import Trainer\nfrom own import model\n\ntrainer = Trainer(model)\ntrainer.train()\n"
    call = training_at_import(Source.from_text(text, "train.py"))
    assert call is not None
    assert call.lineno == 5


def test_statements_alone_whose_calls_make_something_are_a_script():
    assert only_runs(Source.from_text("import torch\nnet = torch.nn.Linear(2, 2)\n", "net.py"))
    assert not only_runs(Source.from_text("import torch\nWIDTH = 4\n", "sizes.py"))
    assert not only_runs(Source.from_text(HEAD + TRAIN + "limit = min(3, 4)\n", "engine.py"))
