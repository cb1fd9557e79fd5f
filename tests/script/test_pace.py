"""Loops that will not be over within the time limit are said before the wait."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from memlint.script import pace
from memlint.script.pace import Pace
from memlint.targets.script import Script


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test moves on."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(pace.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(pace, "_EVERY", 64)
    monkeypatch.setattr(pace, "_WATCHED", 16)
    return clock


class Scan(torch.nn.Module):
    """A model with a kernel of 0.01 s in each position."""

    def __init__(self, watched, clock):
        super().__init__()
        self.watched, self.clock = watched, clock
        self.number = 0

    def forward(self, x):
        for block in range(2):
            for _position in range(1, x.shape[1]):
                self.clock.now += 0.01
                self.number += 1
                self.watched.kernel(self.number)
                if self.number > 4 * x.shape[1]:
                    raise AssertionError(block)


def outermost_call(model, x):
    model(x)


class StoppedError(Exception):
    pass


@pytest.fixture
def run(clock):
    """Run a model of as many positions with this time limit, and return the Ending, if it is ended."""

    def run(length, limit, num_modules=1):
        endings = []

        def end(ending):
            endings.append(ending)
            raise StoppedError

        script = Script(name="train", path="/p/train.py", arguments=("--lr", "1"))
        watched = Pace(limit, script, end, lambda _kind: num_modules)
        try:
            outermost_call(Scan(watched, clock), torch.zeros(1, length))
        except StoppedError:
            return endings[0]
        return None

    return run


def test_a_loop_that_takes_longer_than_the_limit_is_said(run):
    ending = run(10_001, 100.0)
    assert ending.is_failure
    # 10,000 positions of 0.01 s, forward and backward, in two steps: 400 s
    assert "within the time limit of 100 s: a loop of 10,000 iterations and its backward" in ending.reason
    assert ending.reason.endswith("takes about 100 s, which makes about 400 s")
    assert ending.hint.startswith("Type memlint run --time-limit 660 train.py --lr 1, or give it a shorter sequence")
    assert any("in forward" in line for line in ending.traceback)


def test_a_loop_that_is_over_in_time_goes_on(run):
    assert run(101, 100.0) is None


def test_a_loop_counts_once_for_each_module_that_has_it(run):
    assert run(1001, 100.0) is None
    ending = run(1001, 100.0, num_modules=12)
    assert "takes about 10 s, 12 times in each forward, which makes about 480 s" in ending.reason


def test_a_generation_that_takes_longer_than_the_limit_is_said(clock):
    endings = []
    watched = Pace(60.0, Script(name="t", path="/p/t.py"), endings.append, lambda _kind: 1)
    for length in range(10, 27):
        watched.generated(length, 1010)
        clock.now += 0.5
    (ending,) = endings
    assert "984 more tokens are to be generated, which makes about 492 s" in ending.reason
    assert "memlint run --time-limit 780 t.py" in ending.hint
    watched = Pace(60.0, Script(name="t", path="/p/t.py"), endings.append, lambda _kind: 1)
    for length in range(10, 27):
        watched.generated(length, 40)
        clock.now += 0.5
    assert len(endings) == 1


def test_a_generation_that_a_loop_repeats_too_often_ends_with_what_follows_from_its_first_tokens(clock):
    endings = []
    script = Script(name="t", path="/p/t.py")
    for again in (2, 9):
        watched = Pace(60.0, script, endings.append, lambda _kind: 1, lambda num_tokens: num_tokens == 31)
        for length in range(10, 27):
            watched.generated(length, 40, again)
            clock.now += 0.5
    (ending,) = endings  # 2 times 15.5 s more are 46 s, and 9 times 140 s
    assert ending.reason == "17 of 31 tokens were generated, from which the others follow, and 9 more times as many"
    assert watched.num_tokens == 31
    assert not ending.is_failure
