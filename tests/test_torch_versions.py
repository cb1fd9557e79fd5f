"""What memlint states of PyTorch by version, held against the PyTorch installed here."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from torch._dispatch.python import enable_python_dispatcher

from memlint.accelerator import accumulation, backend, registration
from memlint.accelerator.device import NAME
from memlint.accelerator.kernel import HAND_WRITTEN
from memlint.cuda import autocast, versions
from memlint.cuda.session import virtual_device
from memlint.cuda.versions import torch_version
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key

WITHOUT_TENSORS_OF_OURS = {
    "_cudnn_rnn",  # registered by CUDA builds only; recurrent layers cast what they hand to it themselves
    "cudnn_convolution",
    "cudnn_convolution_transpose",  # convolutions go through aten::convolution
    "norm.Scalar",
    "norm.ScalarOpt_dim",  # torch.norm calls linalg_vector_norm for a strided tensor
}
"""Ops of CUDA's autocast that no program reaches on the virtual device. Named tensors, which have their own, neither."""


def registered(key: str) -> set[str]:
    names = torch._C._dispatch_get_all_op_names()
    return {n.removeprefix("aten::") for n in names if n.startswith("aten::") and has_kernel(n, key)}


def test_autocast_casts_the_ops_that_it_casts_for_cuda() -> None:
    listed = {
        *autocast.LOWER_PRECISION, *autocast.FLOAT32, *autocast.FLOAT32_OUTPUT, *autocast.PROMOTE, *autocast.BANNED,
    }  # fmt: skip
    listed |= set(autocast.FLOAT32_SINCE_2_12) if torch_version() >= (2, 12) else set()
    listed |= set(autocast.FLOAT32_SINCE_2_14) if torch_version() >= (2, 14) else set()
    cuda = {name for name in registered("AutocastCUDA") if "imname" not in name and not name.startswith("norm.names")}
    assert cuda - WITHOUT_TENSORS_OF_OURS == listed
    assert listed <= registered("AutocastPrivateUse1")


def test_ops_carried_out_as_one_kernel_are_registered() -> None:
    hand_written = {"convolution", "convolution_backward", "native_group_norm"}
    missing = {*backend.ONE_KERNEL, *hand_written} - registered(registration.KEY)
    assert missing == (set() if torch_version() >= (2, 11) else {"linalg__powsum"})


def test_kernels_written_by_hand_are_those_that_run() -> None:
    names = {name.removeprefix("aten.").removesuffix(".default") for name in HAND_WRITTEN if name.startswith("aten.")}
    assert {"cudnn_batch_norm", "cudnn_batch_norm_backward", "convolution", "native_group_norm"} <= names
    assert {name for name in names if registration.is_composed(name)} <= registered(registration.KEY)


def test_batch_norm_runs_the_kernel_of_cudnn() -> None:
    with virtual_device(device_named("a100-80gb")):
        x = torch.ones(2, 4, 8, 8, device="cuda", requires_grad=True)
        y = torch.nn.BatchNorm2d(4, device="cuda")(x)
    assert type(y.grad_fn).__name__ == "CudnnBatchNormBackward0"


def test_a_sum_of_gradients_that_nobody_else_holds_is_recognised() -> None:
    accumulation.measure_once()
    assert accumulation._Unshared.counts is not None


def test_it_is_recognised_alike_where_a_compiler_traces_the_first_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for context in (nullcontext, enable_python_dispatcher):
        for name, value in (("is_measured", False), ("counts", None), ("callers", frozenset())):
            monkeypatch.setattr(accumulation._Unshared, name, value)
        with context():
            accumulation.measure_once()
        counts.append(accumulation._Unshared.counts)
    assert counts[0] == counts[1] is not None


def test_the_gradients_of_a_shared_parameter_are_summed_in_place() -> None:
    with virtual_device(device_named("a100-80gb")) as ledger:
        x = torch.zeros(1000, device="cuda", requires_grad=True).exp()
        (x.mul(2) + x.mul(3) + x.mul(4)).sum().backward()
    kilobytes = [entry.nbytes for entry in ledger.births if entry.nbytes >= 4000]
    # zeros, exp, three products, two sums; of the backward three products and the gradient of exp, but no sum
    assert len(kilobytes) == 7 + 3 + 1


def test_a_gpu_is_seen_although_this_build_has_none_or_is_not_for_cuda() -> None:
    before = torch.cuda.is_available()
    with virtual_device(device_named("h100-80gb")):
        assert torch.cuda.is_available()
        assert torch.cuda.is_initialized()
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.zeros(2, device="cuda").device == torch.device("cuda", 0)
        torch.cuda.synchronize()
        torch.cuda.current_stream().synchronize()
    assert torch.cuda.is_available() == before
    assert torch._C._get_privateuse1_backend_name() == NAME


@pytest.mark.parametrize(
    "options", [{"fused": True}, {"capturable": True}, {"foreach": True}, {"foreach": False}], ids=str
)
def test_steps_are_counted_where_the_optimizer_wants_them(options: dict[str, bool]) -> None:
    on_device = {"fused", "capturable"} & options.keys()
    with virtual_device(device_named("a100-80gb")):
        weight = torch.nn.Parameter(torch.zeros(8, 8, device="cuda"))
        optimizer = torch.optim.AdamW([weight], lr=1e-3, **options)
        for _ in range(3):
            weight.sum().backward()
            optimizer.step()
        step = optimizer.state[weight]["step"]
        assert step.device.type == ("cuda" if on_device else "cpu")
        assert step.item() == 3


def test_a_version_that_is_newer_than_all_that_were_checked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def assumptions() -> list[str]:
        program = SimpleNamespace(setup=lambda: torch.ones(4, device="cuda"), step=lambda: None)
        trace = trace_program(program, device_named("a100-80gb"), num_steps=1).trace
        return [each.text for each in trace.assumptions if "newer than those checked" in each.text]

    monkeypatch.setattr(versions, "_RUNNING", versions.CHECKED[1])
    assert assumptions() == []
    monkeypatch.setattr(versions, "_RUNNING", (2, 99))
    (text,) = assumptions()
    assert text.startswith("torch 2.99 is newer than those checked, 2.10 to 2.13")
