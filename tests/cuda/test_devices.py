"""The catalogue of GPUs and how names are read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlint.base.errors import UsageError
from memlint.memory.context import with_context
from memlint.memory.devices import CATALOGUE, DEFAULT_DEVICE, device_named

GPUS = [device for device in CATALOGUE.values() if device.is_cuda]

# GiB as out-of-memory messages of that GPU print them, newer drivers.
MESSAGES = {
    "t4": 14.74, "v100-32gb": 31.73, "a100-40gb": 39.49, "a100-80gb": 79.25, "l4": 22.03, "rtx3090": 23.56,
    "rtx4090": 23.52, "rtx5090": 31.36, "h100-80gb": 79.19, "h200": 139.80, "b200": 178.35,
    "l20": 44.53, "a30": 23.50, "rtx5080": 15.48, "gh200": 94.50, "gb200": 184.31,
}  # fmt: skip

# MiB and multiprocessors as `torch.cuda.get_device_properties` prints them.
PROPERTIES = {
    "rtx4070-ti-super": (15_934, 66), "rtx4080": (16_049, 76), "rtx-pro-6000": (97_250, 188), "rtx-a6000": (48_676, 84),
    "a40": (45_416, 84), "h20": (97_285, 78), "rtx4060": (7_807, 24), "rtx4060-ti-8gb": (7_806, 34),
    "rtx4070": (12_002, 46), "rtx4070-ti": (12_007, 60), "rtx4080-super": (15_944, 80), "rtx5060-ti-16gb": (15_848, 36),
}  # fmt: skip

THREADS_PER_SM = {(7, 0): 2048, (7, 5): 1024, (8, 0): 2048, (8, 6): 1536, (8, 9): 1536, (9, 0): 2048, (10, 0): 2048, (12, 0): 1536}  # fmt: skip


@pytest.mark.parametrize(("name", "gib"), MESSAGES.items())
def test_capacity_prints_as_in_out_of_memory_messages(name: str, gib: float) -> None:
    assert device_named(name).total_nbytes / 2**30 == pytest.approx(gib, abs=0.0051)


@pytest.mark.parametrize(("name", "printed"), PROPERTIES.items())
def test_a_gpu_prints_its_properties(name: str, printed: tuple[int, int]) -> None:
    device = device_named(name)
    assert (device.total_nbytes // 2**20, device.num_sms) == printed


@pytest.mark.parametrize("device", GPUS, ids=lambda device: device.name)
def test_gpu_is_consistent(device) -> None:
    assert device.threads_per_sm == THREADS_PER_SM[device.capability]
    assert device.num_sms > 0
    assert 0 < device.context_low <= device.context_nbytes <= device.context_high < device.total_nbytes // 6


LAZY, EVERYTHING_SINCE_11_7, EVERYTHING_BEFORE, EVERYTHING_UP_TO_11_1 = 1, 2.8, 3.5, 5


@pytest.mark.parametrize(
    ("torch", "variable", "times"),
    [
        (None, None, LAZY),
        (None, "LAZY", LAZY),
        (None, "DEFAULT", LAZY),
        (None, "EAGER", EVERYTHING_SINCE_11_7),
        ((2, 4), None, LAZY),
        ((2, 4), "DEFAULT", EVERYTHING_SINCE_11_7),  # with CUDA 12.1
        ((2, 5), "DEFAULT", LAZY),
        ((1, 13), None, LAZY),
        ((1, 12), None, EVERYTHING_BEFORE),
        ((1, 9), None, EVERYTHING_BEFORE),
        ((1, 8), None, EVERYTHING_UP_TO_11_1),
        ((1, 12), "LAZY", EVERYTHING_BEFORE),  # CUDA 11.6 cannot
    ],
)
def test_the_context_has_the_modules_that_are_loaded(
    torch: tuple[int, int] | None, variable: str | None, times: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_MODULE_LOADING", raising=False)
    if variable:
        monkeypatch.setenv("CUDA_MODULE_LOADING", variable)
    lazy = device_named("a100")
    device = with_context(replace(lazy, torch=torch))
    assert device.context_nbytes == pytest.approx(times * lazy.context_nbytes, abs=1)
    assert device.context_low <= device.context_nbytes <= device.context_high
    if times != LAZY:
        assert device.context_low >= lazy.context_nbytes


@pytest.mark.parametrize(
    ("name", "torch", "mib"),
    [("v100-16gb", (1, 12), 1343), ("rtx3090", (1, 8), 1685), ("rtx3090", (1, 7), 1486)],
)
def test_contexts_of_cuda_before_it_could_load_lazily_are_within_bounds(
    name: str, torch: tuple[int, int], mib: int
) -> None:
    device = with_context(replace(device_named(name), torch=torch))
    assert device.context_low <= mib << 20 <= device.context_high


@pytest.mark.parametrize(
    ("name", "mib"),
    [
        *(("a100-40gb", mib) for mib in (422, 491, 501, 503, 512, 531, 543, 524)),
        *(("a100-80gb", mib) for mib in (492, 502, 522, 638)),
        *(("h100-80gb", mib) for mib in (510, 599, 601, 666)),
        *(("v100-32gb", mib) for mib in (379, 385, 389, 399)),
        *(("t4", mib) for mib in (115, 135, 141, 164)),
        *(("rtx3090", mib) for mib in (256, 260, 300, 307, 315, 353)),
        *(("rtx4090", mib) for mib in (452, 458, 473)),
        *(("l40s", mib) for mib in (512, 522, 524)),
        ("rtx5090", 614),
        ("h200", 612),
    ],
)
def test_contexts_that_processes_with_one_gpu_were_seen_to_hold_are_within_bounds(name: str, mib: int) -> None:
    """Out-of-memory messages of torch 2.1 to 2.11, and the A100s of itu-rad/CARMA and optimum-benchmark."""
    device = with_context(replace(device_named(name), torch=(2, 6)))
    assert device.context_low <= mib << 20 <= device.context_high
    assert device.context_high - device.context_low < 0.6 * device.context_nbytes


def test_a_context_that_was_measured_is_taken_whatever_the_version_and_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")
    measured = replace(device_named("a100"), torch=(1, 12)).with_measured_context(1431 << 20)
    device = with_context(measured)
    assert device.context_nbytes == 1431 << 20
    # What runs of itu-rad/GPUMemNet on that machine held, of which 1431 is one.
    assert device.context_low <= 1411 << 20 < 1451 << 20 <= device.context_high


def test_driver_keeps_a_little_of_the_advertised_memory() -> None:
    for device in GPUS:
        if device.name.endswith("gb"):
            advertised = int(device.name.split("-")[-1].removesuffix("gb")) * 2**30
            assert 0.95 * advertised < device.total_nbytes < advertised, device.name


def test_catalogue_is_keyed_by_name_and_has_the_default() -> None:
    assert all(name == device.name for name, device in CATALOGUE.items())
    assert DEFAULT_DEVICE in CATALOGUE


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("A100", "a100-80gb"),
        ("a100_40GB", "a100-40gb"),
        ("h100", "h100-80gb"),
        ("RTX 4070 Ti SUPER", "rtx4070-ti-super"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("A6000", "rtx-a6000"),
        ("V100", "v100-16gb"),
        ("NVIDIA H200", "h200"),
        ("RTX 4090", "rtx4090"),
        ("rtx-3090", "rtx3090"),
        ("5090", "rtx5090"),
        ("CPU", "cpu"),
    ],
)
def test_name_is_found_whatever_the_spelling(typed: str, name: str) -> None:
    assert device_named(typed).name == name


def test_host_is_no_gpu_and_has_no_context() -> None:
    host = device_named("cpu")
    assert not host.is_cuda
    assert host.capability == (0, 0)
    assert (host.context_low, host.context_nbytes, host.context_high) == (0, 0, 0)


def test_unknown_gpu_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError) as error:
        device_named("rtx3091")
    assert "rtx3091" in error.value.message
    assert "rtx3090" in error.value.hint


def test_nonsense_is_refused_with_the_list_of_gpus() -> None:
    with pytest.raises(UsageError) as error:
        device_named("quantum")
    assert all(name in error.value.hint for name in CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_name_of_the_catalogue_finds_its_device(name: str) -> None:
    assert device_named(name).name == name
