"""The GPUs that a step would fit into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from memlint.base.errors import UsageError
from memlint.memory.allocator.reference import AllocatorSettings
from memlint.memory.devices import CATALOGUE, device_named
from memlint.memory.estimate import most_device
from memlint.memory.fitting import fitting_gpus
from memlint.memory.timeline import Timeline
from tests.rules.records import Script

if TYPE_CHECKING:
    from memlint.memory.records import Trace

GIB = 2**30
SETTINGS = AllocatorSettings()


def one_allocation(nbytes: int) -> Trace:
    script = Script()
    script.step()
    script.kernel("aten.mm.default")
    script.make(nbytes // 4)
    return script.trace()


def names(nbytes: int, gpu: str = "a100-80gb", prices: dict[str, float] | None = None) -> list[str]:
    device = device_named(gpu)
    timeline = Timeline.of(one_allocation(nbytes))
    sizes = [buffer.nbytes for buffer in timeline.buffers]
    most = most_device(sizes, timeline.events, timeline.doubts, device, SETTINGS, timeline.streams)
    return [each.device.name for each in fitting_gpus(most, device, device, prices or {})]


def test_without_prices_the_smallest_come_first():
    fitting = names(20 * GIB)
    assert fitting[0] == "l4"  # 22.03 GiB less at most 972 MiB of context; what has 16 is too small
    assert set(fitting) == {name for name, each in CATALOGUE.items() if each.total_nbytes > 21 * GIB}
    sizes = [CATALOGUE[name].total_nbytes for name in fitting]
    assert sizes == sorted(sizes)


def test_the_cheapest_of_those_with_a_price_come_before_all_others():
    assert names(20 * GIB, prices={"h100": 2.5, "A100-40GB": 1.1, "t4": 0.1})[:3] == ["a100-40gb", "h100-80gb", "l4"]


def test_what_fits_nowhere_fits_into_no_gpu():
    assert names(300 * GIB) == []


def test_it_is_as_large_on_whatever_gpu_it_was_seen():
    assert names(20 * GIB, gpu="t4") == names(20 * GIB, gpu="h200")  # a T4 is too small for it


def test_a_price_of_no_gpu_is_a_mistake():
    with pytest.raises(UsageError, match="no GPU named 'a1000'"):
        names(GIB, prices={"a1000": 1.0})
