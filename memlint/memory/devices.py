"""The GPUs memlint knows, and the host.

`total_nbytes` is `torch.cuda.get_device_properties(0).total_memory`: the nominal size less the driver's share. It
differs by up to 0.3 % from one driver to the next, and is known here as precisely as its source states it: PyTorch
prints the properties of a device in whole MiB, and in out-of-memory messages in GiB with two decimals. Where drivers
differ, the figure of the newer ones is used.

`context_nbytes` is the memory that a process holds beside PyTorch's segments: the driver's share, and the modules of
PyTorch, cuBLAS and cuDNN that were needed, as PyTorch has them loaded lazily since 1.13 (CUDA_MODULE_LOADING).
Out-of-memory messages give it to 10 MiB: the memory that "this process has in use" less the allocated and the reserved
but unallocated bytes. In MiB: T4 115, 135 (Zheng-Chong/CatVTON issue 133), 141 (FoundationVision/GenerateU issue 10),
164; V100 379, 385, 389, 399; A100 501 (TianheWu/CoSeR issue 10), 512, 531, 860 (PyTorch's page about CUDA memory),
1,096; L4 211, 323; L40S 523, 524; RTX 3090 260, 300, 315, beside 256 before the first tensor (invoke-ai/InvokeAI issue
9413); RTX 5090 614; H100 666, beside 612 on an H200 and 426 on an RTX 6000 Ada (unslothai/unsloth-zoo pull request
1053). H200 (driver 580, torch 2.11 for CUDA 13, NVML's figure for the process: fixtures/measurements/h200): 518 before
the first tensor, 742 in training steps in float32, 758 with half precision, 668 to 692 in inference.

Its bounds are 0.8 and 1.275 times that. Of 42 such messages in files on GitHub (read in November 2026: processes on one
GPU, torch 2.1 to 2.11) 36 lie within: 13 of an A100 say 422 to 543 MiB and one 860, four of an H100 510 to 666, four of
a V100 379 to 399, three of an L40S 512 to 522, three of an RTX 4090 452 to 473, seven of an RTX 3090 260 to 488 and
one, of audio, 1,669. Above are processes on several GPUs, whose communicators are counted apart
(memlint.memory.communicators), and those that have all modules loaded at once: what it is then, and when that is, is in
memlint.memory.context. Where no figure was found for a GPU, it is that of another of its generation.

Numbers of multiprocessors are printed with the properties, or NVIDIA's: CUDA cores by 128 (by 64 on an A30). Linux
keeps more of the memory than Windows: a GPU is left out if only the figure of Windows is known (RTX 4070 SUPER 12,282
MiB, 5060 8,151, 5070 12,227, 5070 Ti 16,303), or none (GB300, RTX 4060 Ti 16 GB). AMD's GPUs are left out although
their sizes are printed (MI300X 196,592 MiB, MI250 65,520 for each of its two dies), and the caching allocator is the
same source: the memory that hipBLASLt, MIOpen and the attention kernels of ROCm take for themselves is not modelled.

It does not include other libraries: plans of cuFFT, other frameworks. NCCL's communicators are added if a program has
some (memlint.memory.communicators).
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Self

from memlint.base.errors import UsageError

_MIB = 2**20
_LAZILY = Fraction(4, 5), Fraction(51, 40)
"""Lower and upper bound of a context as multiples of its likely size: nine of ten of those that were seen."""
_MEASURED_SPREAD = 0.02
"""Difference of contexts between programs on the same machine, as a share: memlint.memory.context."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as `torch.cuda.get_device_properties` describes it, or the host; sizes in bytes."""

    name: str
    """Name as typed after `--gpu`."""
    title: str
    total_nbytes: int
    """0 for the host, whose memory is not known."""
    capability: tuple[int, int]
    num_sms: int
    threads_per_sm: int
    """Resident threads of a multiprocessor: CUDA C++ Programming Guide, technical specifications by capability."""
    context_low: int
    context_nbytes: int
    context_high: int
    """The CUDA context as NVML shows it: at least, most likely, at most; including what libraries hold beside it."""
    torch: tuple[int, int] | None = None
    """Major and minor version of PyTorch there; None is the one that runs here."""
    context_is_measured: bool = False
    """True if the context was measured on this device."""
    loads_everything: bool | None = None
    """True if every module of PyTorch's libraries is loaded there; None: its PyTorch and the environment decide."""

    @property
    def is_cuda(self) -> bool:
        """True if it is a GPU."""
        return self.capability > (0, 0)

    def with_measured_context(self, nbytes: int) -> Self:
        """Return the device with the context of a process that was seen to hold `nbytes` beside PyTorch's memory."""
        spread = int(_MEASURED_SPREAD * nbytes)
        return replace(
            self,
            context_low=nbytes - spread,
            context_nbytes=nbytes,
            context_high=nbytes + spread,
            context_is_measured=True,
        )


def _context(mib: int) -> tuple[int, int, int]:
    """Bounds and estimate of a CUDA context of this many MiB."""
    least, most = (int(mib * _MIB * times) for times in _LAZILY)
    return least, mib * _MIB, most


def _gib(text: str) -> int:
    """Bytes of a capacity as out-of-memory messages give it, in GiB with two decimals."""
    return int(Decimal(text) * 2**30)


_DEVICES = (
    # Printed properties, Colab and Kaggle: 15095 MiB (14.74 GiB); older drivers 15102 and 15109.
    Device("t4", "NVIDIA T4", 15_095 * _MIB, (7, 5), 40, 1024, *_context(140)),
    # Printed properties, Tesla V100-SXM2-16GB: 16160 MiB.
    Device("v100-16gb", "NVIDIA V100 16 GB", 16_160 * _MIB, (7, 0), 80, 2048, *_context(385)),
    # Out-of-memory messages: 31.73 GiB; printed properties of a Tesla V100-PCIE-32GB: 32510 MiB (31.75).
    Device("v100-32gb", "NVIDIA V100 32 GB", _gib("31.73"), (7, 0), 80, 2048, *_context(385)),
    # Printed properties in the TorchCodec documentation, torch 2.15 development build: 22587 MiB.
    Device("a10g", "NVIDIA A10G", 22_587 * _MIB, (8, 6), 80, 1536, *_context(270)),
    # Out-of-memory messages: 39.49 and 39.50 GiB; others 39.38 to 39.59.
    Device("a100-40gb", "NVIDIA A100 40 GB", _gib("39.49"), (8, 0), 108, 2048, *_context(510)),
    # total_memory in bytes of an A100 80GB PCIe, driver 595 (3 MiB less after a reboot); messages: 79.25, older 79.15.
    Device("a100-80gb", "NVIDIA A100 80 GB", 85_097_971_712, (8, 0), 108, 2048, *_context(510)),
    # Out-of-memory messages, Google Cloud g2 machines and Colab: 22.03 GiB.
    Device("l4", "NVIDIA L4", _gib("22.03"), (8, 9), 58, 1536, *_context(270)),
    # Out-of-memory messages: 44.39 and 44.40 GiB; printed properties of 2024: 45589 MiB (44.52).
    Device("l40s", "NVIDIA L40S", _gib("44.39"), (8, 9), 142, 1536, *_context(520)),
    # Out-of-memory messages: 23.56 GiB; printed properties of older drivers: 24259 MiB (23.69).
    Device("rtx3090", "NVIDIA GeForce RTX 3090", _gib("23.56"), (8, 6), 82, 1536, *_context(300)),
    # Out-of-memory messages: 23.52 GiB (driver 595); older 23.64.
    Device("rtx4090", "NVIDIA GeForce RTX 4090", _gib("23.52"), (8, 9), 128, 1536, *_context(430)),
    # Messages: 23.50 GiB (LHRLAB/ChatKBQA issue 2), 23.53 (google/RB-Modulation issue 5); with torch 2.8 24164 MiB.
    Device("a30", "NVIDIA A30", _gib("23.50"), (8, 0), 56, 2048, *_context(510)),
    # Printed by YOLO on Linux with torch 2.5: 7807 MiB.
    Device("rtx4060", "NVIDIA GeForce RTX 4060", 7_807 * _MIB, (8, 9), 24, 1536, *_context(270)),
    # The same with torch 2.12, CUDA 13.0: 7806 MiB.
    Device("rtx4060-ti-8gb", "NVIDIA GeForce RTX 4060 Ti 8 GB", 7_806 * _MIB, (8, 9), 34, 1536, *_context(270)),
    # The same with torch 2.5, CUDA 12.4: 12002 MiB.
    Device("rtx4070", "NVIDIA GeForce RTX 4070", 12_002 * _MIB, (8, 9), 46, 1536, *_context(430)),
    # The same with torch 2.1: 12007 MiB.
    Device("rtx4070-ti", "NVIDIA GeForce RTX 4070 Ti", 12_007 * _MIB, (8, 9), 60, 1536, *_context(430)),
    # Printed properties, driver 560: 15974 MiB, in 2026 15934.
    Device("rtx4070-ti-super", "NVIDIA GeForce RTX 4070 Ti SUPER", 15_934 * _MIB, (8, 9), 66, 1536, *_context(430)),
    # Printed properties: 16049 MiB.
    Device("rtx4080", "NVIDIA GeForce RTX 4080", 16_049 * _MIB, (8, 9), 76, 1536, *_context(430)),
    # Printed by YOLO on Linux with torch 2.12, CUDA 13.0: 15944 MiB.
    Device("rtx4080-super", "NVIDIA GeForce RTX 4080 SUPER", 15_944 * _MIB, (8, 9), 80, 1536, *_context(430)),
    # The same: 15848 MiB, with CUDA 12.8 15850.
    Device("rtx5060-ti-16gb", "NVIDIA GeForce RTX 5060 Ti 16 GB", 15_848 * _MIB, (12, 0), 36, 1536, *_context(610)),
    # Out-of-memory messages: 15.48 GiB (Tencent-Hunyuan/Hunyuan3D-2 issue 238); on Windows 16302 MiB are printed.
    Device("rtx5080", "NVIDIA GeForce RTX 5080", _gib("15.48"), (12, 0), 84, 1536, *_context(610)),
    # Printed properties, RTX PRO 6000 Blackwell Server Edition with torch 2.7, CUDA 12.8: 97250 MiB.
    Device("rtx-pro-6000", "NVIDIA RTX PRO 6000 Blackwell", 97_250 * _MIB, (12, 0), 188, 1536, *_context(610)),
    # Printed properties: 48676 MiB.
    Device("rtx-a6000", "NVIDIA RTX A6000", 48_676 * _MIB, (8, 6), 84, 1536, *_context(300)),
    # Printed properties: 45416 MiB.
    Device("a40", "NVIDIA A40", 45_416 * _MIB, (8, 6), 84, 1536, *_context(300)),
    # Out-of-memory messages: 44.53 GiB (Tencent-Hunyuan/HunyuanCustom issue 36).
    Device("l20", "NVIDIA L20", _gib("44.53"), (8, 9), 92, 1536, *_context(430)),
    # Printed properties: 97285 MiB.
    Device("h20", "NVIDIA H20", 97_285 * _MIB, (9, 0), 78, 2048, *_context(600)),
    # Out-of-memory messages: 31.36 GiB; others 31.34 to 31.39.
    Device("rtx5090", "NVIDIA GeForce RTX 5090", _gib("31.36"), (12, 0), 170, 1536, *_context(610)),
    # Printed properties, H100 80GB HBM3 with torch 2.7, CUDA 12.8: 81089 MiB (79.19 GiB in messages).
    Device("h100-80gb", "NVIDIA H100 80 GB", 81_089 * _MIB, (9, 0), 132, 2048, *_context(600)),
    # Printed properties: 143156 MiB; messages: 139.80 GiB.
    Device("h200", "NVIDIA H200", 143_156 * _MIB, (9, 0), 132, 2048, *_context(742)),
    # The card of 96 GB; messages: 94.50 GiB, 101.5 * 10**9 bytes on Lambda's machines; 132 as on H100 and H200.
    Device("gh200", "NVIDIA GH200 96 GB", _gib("94.50"), (9, 0), 132, 2048, *_context(600)),
    # Out-of-memory messages: 184.31 GiB; 152 multiprocessors (hao-ai-lab/FastVideo, tests of its kernels).
    Device("gb200", "NVIDIA GB200", _gib("184.31"), (10, 0), 152, 2048, *_context(600)),
    # Printed properties: 182631 MiB, another 182642; messages: 178.35 GiB.
    Device("b200", "NVIDIA B200", 182_631 * _MIB, (10, 0), 148, 2048, *_context(600)),
    Device("cpu", "the host", 0, (0, 0), 0, 0, 0, 0, 0),
)

CATALOGUE: Final[Mapping[str, Device]] = MappingProxyType({device.name: device for device in _DEVICES})
DEFAULT_DEVICE: Final = "a100-80gb"

_ALIASES = {
    "a100": "a100-80gb",
    "a100-40g": "a100-40gb",
    "a100-80g": "a100-80gb",
    "h100": "h100-80gb",
    "v100": "v100-16gb",
    "3090": "rtx3090",
    "4060": "rtx4060",
    "4070": "rtx4070",
    "4080": "rtx4080",
    "5080": "rtx5080",
    "a6000": "rtx-a6000",
    "4090": "rtx4090",
    "5090": "rtx5090",
}


def device_named(name: str) -> Device:
    """Look up a Device by name or alias, whatever the case; spaces and underscores read as dashes.

    Raises UsageError for a name that is not in the catalogue.
    """
    key = "-".join(name.lower().replace("_", " ").split()).removeprefix("nvidia-")
    key = key if key in CATALOGUE else key.replace("rtx-", "rtx")
    device = CATALOGUE.get(_ALIASES.get(key, key))
    if device is None:
        close = difflib.get_close_matches(key, [*CATALOGUE, *_ALIASES], n=1)
        known = ", ".join(CATALOGUE)
        raise UsageError(f"no GPU named {name!r}", f"Did you mean {close[0]}?" if close else f"Choose one of: {known}.")
    return device
