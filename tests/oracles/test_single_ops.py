"""Every op that PyTorch tests itself with, and chains of them, on the CPU for real against `--gpu cpu`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import torch

from tests.oracles.single_ops import chains, database, difference, programs

KNOWN = Path(__file__).with_name("known_differences.toml")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="sizes are those of PyTorch 2.13's kernels"),
]


def test_ops_take_what_is_predicted_but_for_known_differences() -> None:
    """The file of known differences may only shrink: a line that is no longer true is to be taken out."""
    pytest.importorskip("expecttest", reason="OpInfo's database needs it")
    causes = tomllib.loads(KNOWN.read_text())["cause"]
    known = {sample for each in causes for sample in each["samples"]}
    differing, num_run = set(), 0
    for op in database():
        for name, program in programs(op):
            answer = difference(program)
            num_run += answer is not None
            if answer is not None and not answer.is_right:
                differing.add(name)
    assert all(each["because"] for each in causes)
    assert (differing - known, known - differing) == (set(), set())
    assert len(differing) <= 0.03 * num_run


def test_chains_of_ten_ops_are_hardly_ever_under_estimated() -> None:
    """By more than one per cent in at most one of a hundred, though a chain meets layouts that no list of operands has."""
    pytest.importorskip("expecttest", reason="OpInfo's database needs it")
    answers = [(chain, answer) for chain in chains(1000, seed=0) if (answer := difference(chain)) is not None]
    under = [chain.names for chain, answer in answers if answer.is_under(0.01)]
    assert len(answers) > 850
    assert len(under) <= 0.01 * len(answers), under
