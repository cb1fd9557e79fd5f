"""What NCCL's communicators hold: against what others measured, by version and GPU, and with shared resources."""

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from memlint.cuda.session import virtual_device
from memlint.cuda.simulated import simulated
from memlint.distributed.group import become
from memlint.distributed.rank import Rank
from memlint.memory.communicators import beside, communicators
from memlint.memory.devices import device_named
from memlint.memory.records import Collective

MIB = 1 << 20
H100 = device_named("h100-80gb")
BASE = 184 * MIB
"""One rank alone."""


def collective(kind, size=8, group="0", backend="nccl", *, within_node=True, neighbours=None, shares=False):
    before_and_after = neighbours or (size - 1, 1 % size)
    return Collective(0, kind, group, size, within_node, 800, 800, 0, backend, before_and_after, shares)


def held(device, *collectives):
    """The one communicator's bytes."""
    (only,) = communicators(device, collectives)
    return only.nbytes


def test_communicators_are_counted_by_group_and_only_those_of_nccl():
    used = [collective("all_reduce"), collective("all_gather"), collective("all_reduce", 2, "1")]
    used.append(collective("all_reduce", 4, "2", "gloo"))
    assert [(each.size, each.kinds) for each in communicators(H100, used)] == [
        (8, ("all_reduce", "all_gather")),
        (2, ("all_reduce",)),
    ]
    both = sum(each.nbytes.estimate for each in communicators(H100, used))
    assert beside(H100, used).context_nbytes - H100.context_nbytes == both
    assert beside(H100, used[3:]) == H100
    assert beside(device_named("cpu"), used) == device_named("cpu")


def test_connections_of_rings_and_trees_are_those_measured():
    nvls = 8 * 24 * 2 * MIB
    assert held(device_named("gb200"), collective("all_reduce")).estimate - BASE - nvls == 576 * MIB
    before = held(H100, collective("all_reduce")).estimate
    after = held(H100, collective("all_reduce"), collective("all_to_all")).estimate
    assert before == pytest.approx(1.06e9, rel=0.01)
    assert after == pytest.approx(4.34e9, rel=0.01)
    assert held(H100, collective("all_reduce", 1)).estimate == BASE


@pytest.mark.parametrize(("size", "nbytes"), [(2, 544 * MIB), (4, 688 * MIB), (8, 1_600_000_000)])
def test_what_was_measured_before_connections_were_made_on_demand_is_within(size, nbytes):
    of_2023 = replace(device_named("a100"), torch=(2, 1))
    assert (
        held(of_2023, collective("all_reduce", size)).low < nbytes < held(of_2023, collective("all_reduce", size)).high
    )
    likely = held(of_2023, collective("all_gather", 8)).estimate
    assert likely == held(of_2023, collective("all_reduce", 8)).estimate
    assert likely > held(replace(of_2023, torch=(2, 7)), collective("all_reduce", 8)).estimate


def test_what_is_used_and_the_links_decide():
    gather, reduce = (held(H100, collective(kind)).estimate for kind in ("all_gather", "all_reduce"))
    assert gather == BASE + 24 * 12 * MIB
    assert reduce == BASE + 2 * 24 * 12 * MIB + 8 * 32 * MIB
    assert held(H100, collective("all_reduce", 2)).estimate == gather  # both neighbours are one
    assert held(H100, collective("all_gather", 16, within_node=False)).estimate == BASE + 16 * 12 * MIB
    assert held(device_named("rtx4090"), collective("all_gather")).estimate == BASE + 2 * 12 * MIB
    assert held(H100, collective("send")).estimate > held(H100, collective("send", 2)).estimate > gather


def test_groups_split_with_shared_resources_take_what_the_first_has():
    first = collective("all_gather", shares=True)
    same = collective("all_gather", group="1", shares=True)
    others = collective("all_gather", 4, "2", neighbours=(6, 2), shares=True)
    again = collective("all_gather", 4, "3", neighbours=(6, 2), shares=True)
    shared = communicators(H100, [first, same, others, again])
    assert [each.is_shared for each in shared] == [False, True, True, True]
    assert [each.nbytes.estimate // MIB for each in shared] == [184 + 24 * 12, 0, 24 * 12, 0]
    assert [each.nbytes.high for each in shared[1:]] == [24 * 12 * MIB] * 3
    alone = communicators(H100, [each._replace(shares=False) for each in (first, same, others, again)])
    assert not any(each.is_shared for each in alone)
    assert {each.nbytes.estimate // MIB for each in alone} == {184 + 24 * 12}


@pytest.mark.parametrize(("variable", "device_id"), [("1", 0), ("0", 0), (None, 0), ("1", None)])
def test_a_program_shares_what_it_splits_only_if_it_asks(monkeypatch, variable, device_id):
    if variable:
        monkeypatch.setenv("NCCL_COMM_SPLIT_SHARE_RESOURCES", variable)
    with virtual_device(H100):
        become(Rank(8, 3))
        dist.init_process_group("nccl", device_id=device_id)
        part = dist.new_group([1, 3, 5, 7])
        x = torch.empty(8, device="cuda")
        dist.all_reduce(x)
        dist.all_reduce(x, group=part)
        dist.all_reduce(x, group=dist.new_group([0, 3], backend="gloo"))
        used = simulated().collectives
        assert [each.neighbours for each in used] == [(2, 4), (1, 5), (0, 0)]
        assert [each.is_shared for each in communicators(H100, used)] == [False, variable == "1" and device_id == 0]
