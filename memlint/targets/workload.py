"""Plain records of Workloads: the model, inputs and settings of a step to analyse."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Self, get_args

from memlint.base.errors import UsageError
from memlint.base.units import (
    LARGEST_SIZE,
    QUANTIZED,
    Cache,
    Compile,
    Dtype,
    Mode,
    dtype_named,
    tensor_dtype_name,
)
from memlint.memory.allocator.settings import AllocatorSettings
from memlint.memory.devices import Device, device_named
from memlint.memory.records import Assumption
from memlint.targets.strategy import Strategy

if TYPE_CHECKING:
    from memlint.source.fed_calls import FedCall
    from memlint.source.shown_inputs import ShownCall

WORST = "worst"
"""The `rank` that stands for whichever rank takes the most memory."""
BATCH = "batch"
"""Name of the dimension that stands for the batch size."""

SEQUENCE = "seq"
"""Name of the dimension that stands for the length of the texts that memlint generates."""

GENERATED: Mapping[str, int] = MappingProxyType({"prompt": 512, "new_tokens": 128, "num_beams": 1})
"""The dimensions of every Workload that generates, with their sizes if nothing says one: tokens of the prompt, tokens
that are added to it, and beams."""

CONSTANT = "constant"
"""The `dtype` of an input that is a plain Python value."""

DEFAULT_GPU = "a100-80gb"
DEFAULT_BATCH = 8
"""The batch size if nothing says one."""

TORCH = re.compile(r"[12]\.\d{1,3}")
OLDEST_TORCH = 1, 7
"""The first version with CUDA 11, which an A100 needs."""

DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int16", "int8"),
    *("uint8", "uint16", "uint32", "uint64", "bool", CONSTANT),
)

_MULTIPLE = re.compile(r"([1-9][0-9]*\*)?[^\W\d]\w*")
"""The name of a dimension, or a multiple of one."""

Origin = Literal["target", "declared", "config", "discovered", "script", "recording"]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of the model's `forward`, without its values.

    `name` is the parameter's name; digits (`0`, `1`) pass the input by position. A dot reaches into a mapping, or with
    digits after it into a list: `batch.0`, `batch.1`. `[]` makes a list with one entry per item of the batch:
    `labels[].boxes` is `[{"boxes": ...}, ...]`.
    """

    name: str
    shape: tuple[int | str, ...]
    """Sizes: `"batch"` is the batch size, any other name a dimension of the Workload, `"256*batch"` a multiple."""
    dtype: str = "float32"
    """A name of `DTYPES`, or `constant` with the value in `low`."""
    low: float | bool | str | None = None
    """Smallest value; None: 0 for integers, normally distributed values for floating point."""
    high: float | None = None
    """Upper bound, which no value reaches; None: 2 for integers."""
    runs: tuple[tuple[int, int], ...] = ()
    """For integers: the values that each entry of the first dimension begins with, and how often each repeats."""
    counted: bool = False
    """True for consecutive numbers from `low` on along the last dimension, such as positions."""

    def __post_init__(self) -> None:
        """Raise UsageError for settings that no tensor can have."""
        object.__setattr__(self, "dtype", tensor_dtype_name(self.dtype))
        whole = (hasattr(each, "__index__") and type(each) is not bool for each in self.shape)  # NumPy's too
        sizes = tuple(int(each) if is_whole else each for each, is_whole in zip(self.shape, whole, strict=True))
        object.__setattr__(self, "shape", sizes)
        if self.dtype not in DTYPES:
            raise UsageError(
                f"input {self.name}: {self.dtype!r} is not a dtype", f"Write one of {', '.join(DTYPES[:-1])}."
            )
        if not isinstance(self.counted, bool):
            raise UsageError(f"input {self.name}: counted is {self.counted!r}", "Write true or leave it out.")
        if self.counted and (not self.shape or self.dtype == CONSTANT):
            raise UsageError(f"input {self.name}: it has no dimension to count along", "Give it a shape.")
        for size in self.shape:
            named = isinstance(size, str) and _MULTIPLE.fullmatch(size) is not None
            if not named and (isinstance(size, bool) or not isinstance(size, int) or size < 0):
                raise UsageError(
                    f"input {self.name}: {size!r} is not a size",
                    f'Write a whole number, "{BATCH}" for the batch size, or the name of a dimension.',
                )

    @classmethod
    def constant(cls, name: str, value: float | bool | str) -> Self:
        """Make an input that is the Python value `value`."""
        return cls(name, (), CONSTANT, low=value)

    @property
    def dimensions(self) -> frozenset[str]:
        """The names in the shape other than the batch."""
        return frozenset(_factors(size)[1] for size in self.shape if isinstance(size, str)) - {BATCH}

    @property
    def is_batched(self) -> bool:
        """True if its shape, or the list that it makes, depends on the batch size."""
        return "[]" in self.name or any(isinstance(size, str) and _factors(size)[1] == BATCH for size in self.shape)

    def sizes(self, batch: int, dimensions: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with numbers for the batch size and the named dimensions."""
        shape = self.with_sizes({**dimensions, BATCH: batch}).shape
        return tuple(size for size in shape if isinstance(size, int))

    def with_sizes(self, sizes: Mapping[str, int]) -> Self:
        """Return the same input with numbers in place of the names in `sizes`."""
        return replace(self, shape=tuple(_with_size(size, sizes) for size in self.shape))

    def described(self, dimensions: Mapping[str, int]) -> str:
        """Return a readable description: `tokens [batch, seq=1024] int64 below 50257`."""
        if self.dtype == CONSTANT:
            return f"{self.name} = {self.low!r}"
        names = {name: f"{name}={size}" for name, size in dimensions.items()}
        shape = ", ".join(names.get(size, size) if isinstance(size, str) else str(size) for size in self.shape)
        text = f"{self.name} [{shape}] {self.dtype}"
        if self.runs:
            begin = ", ".join(f"{count} x {value}" if count > 1 else str(value) for value, count in self.runs)
            return f"{text} each {begin}{f', then below {self.high}' if self.high is not None else ''}"
        if self.counted:
            return f"{text} counting from {self.low or 0}"
        return f"{text} below {self.high}" if self.high is not None else text

    def __str__(self) -> str:
        """Return a readable description without sizes of dimensions: `tokens [batch, seq] int64 below 50257`."""
        return self.described({})


def _factors(size: str) -> tuple[int, str]:
    """Return the number and the name in `256*batch`."""
    number, _, name = size.rpartition("*")
    return int(number or 1), name


def _with_size(size: int | str, sizes: Mapping[str, int]) -> int | str:
    if isinstance(size, int):
        return size
    number, name = _factors(size)
    return number * sizes[name] if name in sizes else size


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


@dataclass(frozen=True, slots=True)
class Workload:
    """How to build the model, its inputs, its loss and its optimizer, and how to run a step."""

    name: str
    target: str
    """The target as typed: `path.py::Name`, `config.json`, `package.module::Name`."""
    path: str = ""
    """Absolute path of the target's file; empty for a target in an installed module."""
    qualname: str = ""
    """The name after `::`."""
    mode: Mode = "train"
    batch: int = DEFAULT_BATCH
    dtype: Dtype = "float32"
    """The dtype of the step; for a script the dtype of its parameters, whichever that is."""
    optimizer: str = "adamw"
    """A name, `file.py::callable` that receives the parameters, or `none`."""
    gpu: str = DEFAULT_GPU
    torch: str = ""
    """Version of PyTorch on the GPU, such as `2.10`; empty: the installed version."""
    context: int = 0
    """Bytes of the CUDA context if measured; 0: memlint's figure for the GPU and its PyTorch."""
    inputs: tuple[InputSpec, ...] | None = None
    """None: the target declares its inputs, or memlint infers them."""
    loss: str | None = None
    """Name of a class of torch.nn, or `file.py::callable`, called as `loss(output, inputs)`.

    None: the loss of the model itself, or the one that the target declares.
    """
    arguments: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Arguments for the target by name, positional ones under digits; values of `memlint.source.values` are built
    first.
    """
    adapter: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Settings of the peft adapter to put on the target's model; empty: no adapter."""
    dimensions: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Sizes of named dimensions besides the batch; `complete` adds the dimensions of the target and the inputs."""
    allocator: str = ""
    """Value of the program's `PYTORCH_ALLOC_CONF`."""
    compile: Compile = "auto"
    """`auto`: `torch.compile` is simulated; `on`: also for a model that nobody compiles; `off`: it is left out."""
    cache: Cache = ""
    """Kind of the cache that `generate` makes; empty: the model's own choice."""
    strategy: str = ""
    """Distribution of the model over ranks, as in memlint.targets.strategy; empty: the target distributes itself."""
    world_size: int = 1
    """Number of ranks."""
    rank: int | Literal["worst"] = 0
    """Rank to analyse; `worst`: the first, middle or last, whichever takes most."""
    origin: Origin = "target"
    assumed: frozenset[str] = frozenset()
    """Those of batch, dtype and optimizer that nobody specified: memlint's defaults."""
    guessed: Mapping[str, object] = field(default_factory=dict, hash=False)
    """The arguments that nobody specified and memlint guessed."""
    found: tuple[Assumption, ...] = ()
    """Statements about it in the project's own files."""
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Sizes of images and texts in the project's training loop."""
    shown: "ShownCall | None" = None
    """The arguments of a call in one of the project's examples."""
    fed: "FedCall | None" = None
    """The call of the model in the loop that trains it; None if none is seen."""
    recorded: bytes | None = None
    """The arguments with which a script has built it, for `memlint.workloads.construction.recorded_arguments`; they
    take the place of `arguments`.
    """
    built_by: str = ""
    """The script that has built it, in words; empty without one."""
    accumulation: int = 1
    """Batches per step."""
    copies: int = 0
    """Number of averages of its weights that stay beside it."""
    frozen: tuple[str, ...] = ()
    """Names of modules and parameters that are not trained."""
    num_gpus: int = 1
    """Number of GPUs among which DataParallel divides its batch, of which the first is analysed."""

    def __post_init__(self) -> None:
        """Raise UsageError for settings that make no sense."""
        if self.mode not in get_args(Mode):
            raise UsageError(
                f"workload {self.name}: mode {self.mode!r} is unknown", f"Write one of {', '.join(get_args(Mode))}."
            )
        if self.compile not in get_args(Compile):
            raise UsageError(
                f"workload {self.name}: compile is {self.compile!r}", f"Write one of {', '.join(get_args(Compile))}."
            )
        if self.cache not in get_args(Cache):
            kinds = ", ".join(filter(None, get_args(Cache)))
            raise UsageError(f"workload {self.name}: cache {self.cache!r} is unknown", f"Write one of {kinds}.")
        if self.origin != "script":
            try:
                object.__setattr__(self, "dtype", dtype_named(self.dtype))
            except UsageError as error:
                raise UsageError(f"workload {self.name}: {error.message}", error.hint) from None
        if self.dtype in QUANTIZED and self.mode == "train":
            raise UsageError(
                f"workload {self.name}: weights in {self.dtype} are not trained",
                'Choose --mode inference or generate; for QLoRA declare adapter = { quantize = "nf4" }.',
            )
        AllocatorSettings.parse(self.allocator)
        if self.torch and not (TORCH.fullmatch(self.torch) and _version(self.torch) >= OLDEST_TORCH):
            oldest = ".".join(map(str, OLDEST_TORCH))
            hint = f"Write a version from {oldest} on, with its first two numbers."
            raise UsageError(f"workload {self.name}: torch is {self.torch!r}", hint)
        if isinstance(self.batch, bool) or not isinstance(self.batch, int) or self.batch < 1:
            raise UsageError(f"workload {self.name}: batch is {self.batch!r}", "Write a whole number from 1.")
        self._check_ranks()
        self._check_dimensions()

    def _check_ranks(self) -> None:
        rank = self.rank_number
        for key, value, least in (("world_size", self.world_size, 1), ("rank", rank, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"workload {self.name}: {key} is {value!r}", f"Write a whole number from {least}.")
        if rank >= self.world_size:
            raise UsageError(f"workload {self.name}: rank {self.rank} of {self.world_size}", "Ranks count from 0.")
        if self.strategy:
            Strategy.parse(self.strategy, self.world_size)
            if self.world_size == 1:
                raise UsageError(
                    f"workload {self.name}: strategy {self.strategy} of one rank",
                    "Give the number of ranks: --ranks 8, or world_size = 8 where it is declared.",
                )

    @property
    def rank_number(self) -> int:
        """Number of the rank to trace: the first rank while the worst one is unknown."""
        return 0 if self.rank == "worst" else self.rank

    @property
    def device(self) -> Device:
        """The GPU, with the version of PyTorch and the measured context, if there is one.

        Raises UsageError for a GPU that is not in the catalogue.
        """
        device = replace(device_named(self.gpu), torch=_version(self.torch) if self.torch else None)
        return device.with_measured_context(self.context) if self.context and device.is_cuda else device

    def _check_dimensions(self) -> None:
        for name, size in self.dimensions.items():
            if name == BATCH or not isinstance(name, str) or not name.isidentifier():
                hint = f"Write {BATCH} = {size}." if name == BATCH else "Write a name as Python's variables have."
                raise UsageError(f"workload {self.name}: {name!r} cannot be the name of a dimension", hint)
            if not is_size(size):
                raise UsageError(
                    f"workload {self.name}: dimension {name} is {size!r}",
                    f"Write a whole number from 1 to {LARGEST_SIZE}.",
                )
            if name in self.arguments:
                raise UsageError(
                    f"workload {self.name}: {name} is one of its arguments and one of its dimensions",
                    "Take it out of arguments: a parameter of the target receives the dimension of its name.",
                )
        for spec in self.inputs or ():
            for name in sorted(spec.dimensions - self.dimensions.keys()):
                close = get_close_matches(name, (BATCH, *self.dimensions), 1)
                known = ", ".join(f'"{each}"' for each in (BATCH, *self.dimensions))
                hint = f'Did you mean "{close[0]}"?' if close else f"Write a whole number or one of {known}."
                raise UsageError(
                    f"workload {self.name}: input {spec.name}: {name!r} is not a size",
                    f"{hint} A dimension is declared as dimensions = {{ {name} = 1024 }}.",
                )


def is_size(value: object) -> bool:
    """Return True if a named dimension may have the size `value`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_SIZE
