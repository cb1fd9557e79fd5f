"""What is analysed, as plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from memlint.cuda.allocator_settings import AllocatorSettings
from memlint.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH = "batch"
"""The named dimension that stands for the batch size."""

CONSTANT = "constant"
"""The `dtype` of an input that is a plain Python value."""

DTYPES = (
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "complex64",
    "complex128",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    CONSTANT,
)

Mode = Literal["train", "inference"]
Precision = Literal["float32", "bfloat16", "float16", "bf16-amp", "fp16-amp"]
Origin = Literal["target", "declared", "config", "discovered"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of the model's `forward`, without its values.

    `name` is the parameter's name; digits (`0`, `1`) pass it by position. A dot reaches into a mapping and `[]`
    makes a list with one entry per item of the batch: `labels[].boxes` is `[{"boxes": ...}, ...]`.
    """

    name: str
    shape: tuple[int | str, ...]
    """Sizes; `"batch"` is the batch size."""
    dtype: str = "float32"
    """A name of `DTYPES`. For `constant` the value stands in `low`."""
    low: float | bool | str | None = None
    """Smallest value; None: 0 for integers, normally distributed for floating point."""
    high: float | None = None
    """Values stay below it; None: 2 for integers."""

    def __post_init__(self) -> None:
        """Raise UsageError for what no tensor can have."""
        if self.dtype not in DTYPES:
            raise UsageError(
                f"input {self.name}: {self.dtype!r} is not a dtype", f"Write one of {', '.join(DTYPES[:-1])}."
            )
        for size in self.shape:
            if size != BATCH and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
                raise UsageError(
                    f"input {self.name}: {size!r} is not a size",
                    f'Write a whole number, or "{BATCH}" for the batch size.',
                )

    @classmethod
    def constant(cls, name: str, value: float | bool | str) -> InputSpec:
        """Make an input that is the Python value `value`."""
        return cls(name, (), CONSTANT, low=value)

    def sizes(self, batch: int) -> tuple[int, ...]:
        """Shape with the batch size put in."""
        return tuple(batch if isinstance(size, str) else size for size in self.shape)

    def __str__(self) -> str:
        """As people read it: `tokens [batch, 1024] int64 below 50257`."""
        if self.dtype == CONSTANT:
            return f"{self.name} = {self.low!r}"
        text = f"{self.name} [{', '.join(map(str, self.shape))}] {self.dtype}"
        return f"{text} below {self.high}" if self.high is not None else text


@dataclass(frozen=True, slots=True)
class Workload:
    """How to build the model, its inputs, its loss and its optimizer, and how a step of it runs."""

    name: str
    target: str
    """As typed: `path.py::Name`, `config.json`, `package.module::Name`."""
    path: str = ""
    """Absolute path of the target's file; empty for a target in an installed module."""
    qualname: str = ""
    """The name after `::`."""
    mode: Mode = "train"
    batch: int = 8
    dtype: Precision = "float32"
    optimizer: str = "adamw"
    """A name, `file.py::callable` taking the parameters, or `none`."""
    gpu: str = "a100-80gb"
    inputs: tuple[InputSpec, ...] | None = None
    """None: the target gives them, or else they are inferred."""
    loss: str | None = None
    """`file.py::callable`, called as `loss(output, inputs)`. None: the model's own, or the target's."""
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Keyword arguments for the target."""
    allocator: str = ""
    """`PYTORCH_ALLOC_CONF` of the program."""
    origin: Origin = "target"

    def __post_init__(self) -> None:
        """Raise UsageError for settings that make no sense."""
        for key, allowed in (("mode", get_args(Mode)), ("dtype", get_args(Precision))):
            if getattr(self, key) not in allowed:
                raise UsageError(
                    f"workload {self.name}: {key} {getattr(self, key)!r} is unknown",
                    f"Write one of {', '.join(allowed)}.",
                )
        AllocatorSettings.parse(self.allocator)
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise UsageError(f"workload {self.name}: batch is {self.batch!r}", "Write a whole number from 1.")
