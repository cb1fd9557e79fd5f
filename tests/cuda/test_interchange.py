"""Tensors of the host go to other libraries as real ones; what cannot leave the virtual GPU says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from memlint.base.errors import TraceError
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlint.accelerator.ledger import Ledger

dlpack: Any = torch.utils.dlpack


@pytest.fixture
def gpu() -> Iterator[Ledger]:
    with virtual_device(device_named("a100-80gb")) as ledger:
        yield ledger


@pytest.mark.parametrize(
    "hand_over",
    [
        lambda x: from_dlpack(dlpack.to_dlpack(x)).numpy(),
        lambda x: dlpack.from_dlpack(dlpack.to_dlpack(x)).numpy(),
        lambda x: dlpack.from_dlpack(x).numpy(),
        lambda x: from_dlpack(x).numpy(),
        np.from_dlpack,
    ],
)
@pytest.mark.parametrize("device", ["a100-80gb", "cpu"])
def test_dlpack_of_a_host_tensor_has_its_values(hand_over: Callable[[torch.Tensor], Any], device: str) -> None:
    with virtual_device(device_named(device)):
        x = torch.arange(4, device="cuda" if device != "cpu" else "cpu").cpu()
        assert hand_over(x).tolist() == [0, 1, 2, 3]


def test_a_gpu_tensor_stays_itself_through_dlpack(gpu: Ledger) -> None:
    x = torch.arange(4, device="cuda")
    before = len(gpu.births)
    again = dlpack.from_dlpack(x)
    assert (str(again.device), again.tolist()) == ("cuda:0", [0, 1, 2, 3])
    assert again.data_ptr() == x.data_ptr()
    assert len(gpu.births) == before


@pytest.mark.parametrize("hand_over", [np.from_dlpack, lambda x: x.__dlpack__(), lambda x: dlpack.to_dlpack(x)])
def test_a_gpu_tensor_that_goes_to_another_library_is_refused(gpu: Ledger, hand_over: Any) -> None:
    with pytest.raises(TraceError, match="goes to another library by DLPack"):
        hand_over(torch.arange(4, device="cuda"))


def test_distributed_data_parallel_needs_a_process_group_as_ever(gpu: Ledger) -> None:
    with pytest.raises(ValueError, match="init_process_group"):
        nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda())


def test_real_tensors_go_by_dlpack_as_ever() -> None:
    assert from_dlpack(dlpack.to_dlpack(torch.arange(3))).tolist() == [0, 1, 2]
