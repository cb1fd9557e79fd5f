"""What a rank takes on the host under FSDP2 is what PyTorch's own FSDPMemTracker says of fake tensors."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.distributed import strategies
from tests.distributed.real_processes import NUM_STEPS
from tests.distributed.test_host import simulated_peaks


def tracked_peaks(name: str, world: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Of each step; the first one counts what the wrappers have freed."""
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (world,))  # it reads tensors, which must not be fake
        patch.setattr(strategies, "init_device_mesh", lambda *_, **__: mesh)
        with FakeTensorMode():
            program = strategies.STRATEGIES[name]()
            program.setup()
            tracker = FSDPMemTracker(program.model, program.optimizer)
            tracker.track_inputs((program.inputs, program.target))
            peaks = []
            with tracker:
                for _ in range(NUM_STEPS):
                    program.step()
                    peaks.append(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])
                    tracker.reset_mod_stats()
        return peaks
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world"),
    [("fsdp2", 2), ("fsdp2", 4), ("fsdp2-no-reshard", 2), ("fsdp2-no-reshard", 4), ("fsdp2-one-unit", 4)],
)
def test_steps_take_what_the_tracker_says(name: str, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others, one unit on 2 ranks and mixed precision, it says less than real processes took (host_peaks.json)."""
    tracked = tracked_peaks(name, world, monkeypatch)
    monkeypatch.undo()
    assert tracked[1:] == pytest.approx(simulated_peaks(world, name, 0)[1:], abs=16)
