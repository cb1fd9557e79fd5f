"""An object that memlint looks at lives exactly as long as without it."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memlint.base.variables import variables_of
from tests.script.running import run_text, stdout_of, write

if TYPE_CHECKING:
    from collections.abc import Sequence

DRIVER = Path(__file__).with_name("events_driver.py")
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "integration" / "scripts"

LOOPS = """
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    optimizer = torch.optim.Adam(net.parameters())

    class Replaced(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(512, 256, device="cuda"))
        def forward(self, x):
            self.weight = nn.Parameter(torch.zeros(512, 256, device="cuda"))
            return x @ self.weight.t()

    def train():
        criterion = nn.CrossEntropyLoss()
        for _ in range(3):
            x, y = torch.randn(4096, 256, device="cuda"), torch.randint(10, (4096,), device="cuda")
            optimizer.zero_grad()
            output = net(x)
            loss = criterion(output, y)
            loss.backward()
            optimizer.step()

    @torch.no_grad()
    def evaluate():
        metric, replaced = nn.MSELoss(), Replaced()
        for _ in range(3):
            x = torch.randn(2048, 256, device="cuda")
            output = replaced(x)
            output = output * 2
            error = metric(output, torch.zeros_like(output))

    train()
    evaluate()
"""


def events(folder: Path, script: Path, arguments: Sequence[str], *, observed: bool) -> list[list[int]]:
    """Births and deaths of a script's storages; deaths in a row in the order of their numbers, as sets have none."""
    exchange = folder / ("observed" if observed else "alone")
    (exchange / "scratch").mkdir(parents=True)
    options = {"script": str(script), "args": arguments, "observed": observed, "exchange": str(exchange)}
    ran = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(options)], check=False, capture_output=True, text=True, timeout=500
    )
    assert (exchange / "events.json").exists(), ran.stdout + ran.stderr
    told = json.loads((exchange / "events.json").read_text(encoding="utf-8"))
    return [sorted(group) if is_death else list(group) for is_death, group in groupby(told, lambda event: event < 0)]


def test_loops_in_functions_hold_no_longer_what_they_bind_anew(tmp_path: Path) -> None:
    script = write(tmp_path, LOOPS)
    alone = events(tmp_path, script, (), observed=False)
    assert len(alone) > 50
    assert events(tmp_path, script, (), observed=True) == alone


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "fixtures/scripts/train_lm.py --warmups 1 --context 64",
        "tests/integration/scripts/vae.py",
        "tests/integration/scripts/mnist.py",
        "tests/integration/scripts/siamese.py",
        "tests/integration/scripts/imagenet.py",
        "tests/integration/scripts/word_language_model.py --accel",
    ],
)
def test_a_script_has_the_same_births_and_deaths_as_alone(tmp_path: Path, command: str) -> None:
    name, *arguments = command.split()
    script = ROOT / name
    alone = events(tmp_path, script, arguments, observed=False)
    assert len(alone) > 50
    assert events(tmp_path, script, arguments, observed=True) == alone


THREE_ADAMS = """
    import gc
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fcs = torch.nn.ModuleList(torch.nn.Linear(200, 200) for _ in range(20))
        def forward(self, x):
            for layer in self.fcs:
                x = torch.relu(layer(x))
            return x

    def train(net, optimizer):
        x = torch.randn(64, 200, device="cuda:0")
        y = torch.randint(0, 1, (64,), device="cuda:0")
        loss_of = torch.nn.CrossEntropyLoss()
        for _ in range(5):
            optimizer.zero_grad()
            output = net(x)
            loss = loss_of(output, y)
            loss.backward()
            optimizer.step()

    optimizers = []
    for options in ({"foreach": False, "fused": False}, {"foreach": True}, {"fused": True}):
        net = Net().cuda()
        optimizers.append(torch.optim.Adam(net.parameters(), lr=0.01, **options))
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        train(net, optimizers[-1])
        print(torch.cuda.max_memory_allocated())
"""


def test_three_adams_take_what_they_took_on_an_h100(tmp_path: Path) -> None:
    # The figures stand in the header of a public program that compares the implementations on an H100.
    checked = run_text(tmp_path, THREE_ADAMS, whole=True, gpu="h100-80gb")
    assert stdout_of(checked).split() == ["80436224", "96242688", "105991680"]


class Value:
    """Something that a variable is bound to."""


def test_a_running_function_lets_go_of_what_was_looked_at() -> None:
    x = Value()
    reference = weakref.ref(x)
    assert variables_of(sys._getframe())["x"] is x
    x = None
    assert reference() is None


def test_variables_of_enclosing_functions_are_read_and_let_go() -> None:
    y = Value()
    reference = weakref.ref(y)

    def inner() -> object:
        return variables_of(sys._getframe())["y"] is y

    assert inner()
    y = None
    assert reference() is None


def test_what_locals_gave_a_program_stays_as_it_was() -> None:
    x = 1
    mine = locals()
    x = 2
    read = variables_of(sys._getframe())
    assert read["x"] == 2
    assert read is not mine
    assert mine["x"] == 1
    assert x == 2


def test_names_without_a_value_are_left_out() -> None:
    if not sys:
        unbound = 1  # noqa: F841
    assert "unbound" not in variables_of(sys._getframe())


def test_the_namespace_of_a_module_is_read() -> None:
    namespace = {"read": variables_of, "sys": sys}
    exec("a = 3\nb = read(sys._getframe())", namespace)
    assert namespace["b"]["a"] == 3
