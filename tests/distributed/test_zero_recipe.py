"""PyTorch's recipe of ZeroRedundancyOptimizer, whose page prints what it measured on two GPUs.

recipes_source/zero_redundancy_optimizer.rst of pytorch/tutorials at commit 01c63024aba9, output of February 2021
(PyTorch 1.8, gloo): the most allocated bytes so far after four lines of the program, in MB of a million bytes.
"""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from memlint.cuda.session import virtual_device
from memlint.distributed.group import become
from memlint.distributed.rank import Rank
from memlint.memory.devices import device_named

LOCAL, WRAPPED, BEFORE = 335.0, 656.0, 992.0


def peaks(*, use_zero: bool) -> list[float]:
    """What the program prints. PyTorch of 2021 had no `foreach`, so it is off."""
    printed: list[float] = []

    def show() -> None:
        printed.append(torch.cuda.max_memory_allocated() // 1e6)

    with virtual_device(device_named("v100-16gb")):
        become(Rank(2))
        dist.init_process_group("gloo", rank=0, world_size=2)
        model = nn.Sequential(*[nn.Linear(2000, 2000).to("cuda") for _ in range(20)])
        show()
        wrapped = DistributedDataParallel(model, device_ids=[0])
        show()
        options = {"lr": 0.01, "foreach": False}
        optimizer: torch.optim.Optimizer = (
            ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.Adam, **options)
            if use_zero
            else torch.optim.Adam(wrapped.parameters(), **options)
        )
        outputs = wrapped(torch.randn(20, 2000).to("cuda"))
        labels = torch.randn(20, 2000).to("cuda")
        nn.MSELoss()(outputs, labels).backward()
        show()
        optimizer.step()
        show()
    return printed


@pytest.mark.parametrize(("use_zero", "after"), [(True, 1361.0), (False, 1697.0)])
def test_the_recipe_takes_what_its_page_prints(use_zero: bool, after: float) -> None:
    assert peaks(use_zero=use_zero) == pytest.approx([LOCAL, WRAPPED, BEFORE, after], rel=0.02)
