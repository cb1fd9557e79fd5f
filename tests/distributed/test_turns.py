"""Ranks that wait for each other: programs that run again, and copies of a script."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memlint.base.errors import MemlintError
from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.distributed.copies import Uncopied
from memlint.distributed.group import become
from memlint.distributed.mailbox import Mailbox
from memlint.distributed.rank import Rank
from memlint.memory.devices import device_named
from memlint.tracing.turns import in_turns
from tests.script.running import run_script

pytestmark = pytest.mark.usefixtures("copied_pythons")

HOST = device_named("cpu")


class Relay:
    """Each rank receives from the one before it, adds its number, and hands that on."""

    def __init__(self, number: int, box: Mailbox | None = None, *, first: int | None = 0) -> None:
        self.number, self.box, self.first, self.received = number, box or Mailbox(), first, [[]]

    def as_rank(self, number: int) -> Relay:
        return Relay(number, self.box, first=self.first)

    def setup(self) -> None:
        become(Rank(4, self.number), self.box)
        dist.init_process_group("gloo")

    def step(self) -> None:
        self.received = [[]]
        if self.number != self.first:
            dist.recv_object_list(self.received, src=(self.number - 1) % 4)
        if self.number != 2:
            dist.send_object_list([[*self.received[0], self.number]], dst=(self.number + 1) % 4)

    def run(self) -> None:
        with virtual_device(HOST):
            self.setup()
            self.step()


def test_others_run_as_far_as_they_are_needed() -> None:
    program = Relay(2)
    in_turns(program.run, program, HOST)
    assert program.received == [[0, 1]]


def test_ranks_that_wait_for_each_other_are_named() -> None:
    around, beyond = Relay(1, first=None), Relay(3)
    with pytest.raises(MemlintError, match="rank 2 waits for an object of rank 1, which waits for another as well"):
        in_turns(around.run, around, HOST)
    with pytest.raises(MemlintError, match="rank 3 waits for an object that rank 2 never sends"):
        in_turns(beyond.run, beyond, HOST)


def test_a_rank_that_cannot_ask_the_others_mirrors_one_batch_of_theirs() -> None:
    with virtual_device(HOST):
        become(Rank(4, 1), Mailbox(Uncopied()))
        dist.init_process_group("gloo")
        model = DistributedDataParallel(nn.Linear(4, 8))
        with model.join():
            model(torch.rand(2, 4)).sum().backward()
        reduced = [each.nbytes_in for each in simulated().collectives if each.kind == "all_reduce"]
        assert reduced.count(4 * (4 * 8 + 8)) == 2


@pytest.mark.parametrize("rank", [0, 1])
def test_a_pipeline_script_lets_the_other_stage_run(rank: int) -> None:
    checked = run_script(Path(__file__).parent / "train_pipeline.py", ranks=2, rank=rank, gpu="h100-80gb")
    (workload,) = checked.report.workloads
    assert workload.error is None, checked.outputs
    assert workload.ranks is not None
    calls = {each.kind: each.calls for each in workload.ranks.traffic}
    assert calls == {"send": 4, "recv": 4}
    assert workload.batch == 64
