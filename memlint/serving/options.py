"""How an engine is started: the options that change what it does with memory."""

from typing import Final

from memlint.base.errors import UsageError
from memlint.memory.devices import Device
from memlint.report.model import Record

GIB: Final = 2**30
FLOATS: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
"""Bytes of the dtypes that engines run models in."""
CACHE_DTYPES: Final = {"fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, **FLOATS}
"""Bytes of a value in the cache, by `--kv-cache-dtype`."""


class ServeOptions(Record):
    """Options of an engine; None for its own default."""

    engine: str
    version: tuple[int, ...]
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    dtype: str = "bfloat16"
    max_model_len: int | None = None
    utilization: float | None = None
    """Share of the GPU that the engine may take: `--gpu-memory-utilization`, `--mem-fraction-static`."""
    kv_cache_dtype: str = "auto"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    quantization: str | None = None
    enforce_eager: bool = False

    @property
    def cache_itemsize(self) -> int:
        """Bytes of a value in the cache. Raises UsageError."""
        name = self.dtype if self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        if name not in CACHE_DTYPES:
            raise UsageError(
                f"--kv-cache-dtype {name} is not known", f"Choose one of: auto, {', '.join(CACHE_DTYPES)}."
            )
        return CACHE_DTYPES[name]

    def runs_on(self, device: Device) -> bool:
        """Return True if the GPU computes in the dtype: bfloat16 needs compute capability 8 in all engines."""
        return device.is_cuda and (self.dtype != "bfloat16" or device.capability >= (8, 0))

    def require_support(self, device: Device) -> None:
        """Raise UsageError if the GPU does not compute in the dtype."""
        if not self.runs_on(device):
            raise UsageError(
                f"{device.title} does not compute in {self.dtype}, so that the engine refuses to start",
                "Give --dtype float16." if device.is_cuda else "Give a GPU.",
            )

    @property
    def itemsize(self) -> int:
        """Bytes of a value of a model that is not quantized."""
        return FLOATS[self.dtype]


def version_of(text: str) -> tuple[int, ...]:
    """Return `0.19.1` as numbers. Raises UsageError."""
    parts = text.strip().removeprefix("v").split(".")
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--engine-version {text!r} is no version", "Write it as 0.19.0.")
    return tuple(int(part) for part in parts)
