"""Single ops and chains of them, as programs that run for real on the CPU and on the virtual device. Sizes are bytes.

The ops and their operands are those of OpInfo, the database that PyTorch tests itself with, at larger sizes than there.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import operator
import random
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch

from memlint.memory.devices import device_named
from memlint.memory.estimate import Interval, peaks
from memlint.session.real.cpu import measure_cpu_step
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SIZES = {"S": 16, "M": 24, "L": 40}
"""What OpInfo calls small, medium and large (5, 10 and 20 there): so small that a copy could hide in the tolerance."""
MAX_NBYTES = 16 << 20
"""Operands above this are left out: they say no more and take long."""
SAMPLES_AN_OP = 4
WRITTEN_DOWN = 16
"""Integer operands of up to so many elements are known on the virtual device, as where a program writes them down."""
TOLERANCE = 64


class Difference(NamedTuple):
    """What an op takes really, and what was predicted."""

    real: int
    predicted: Interval | None
    """None where it could not be traced."""
    error: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the estimate is right to some bytes."""
        return self.predicted is not None and abs(self.real - self.predicted.estimate) <= TOLERANCE

    @property
    def is_right(self) -> bool:
        """Whether it is, or the interval holds the real number."""
        return self.predicted is not None and (self.is_exact or self.predicted.low <= self.real <= self.predicted.high)

    def is_under(self, share: float) -> bool:
        """Whether the prediction is wrong and its upper bound lower than real by more than this share."""
        return not self.is_right and (self.predicted is None or self.predicted.high < (1 - share) * self.real)


class Operands:
    """Operands of an op, to be made anew for real and on the virtual device."""

    def __init__(self, values: Any, *, differentiable: bool) -> None:
        self.values = values
        self.differentiable = differentiable

    def make(self, *, virtual: bool) -> Any:
        """Operands with the geometry of those given: their values too for real, their range on the virtual device."""
        return mapped(self.values, lambda x: self._made(x, virtual=virtual))

    def _made(self, x: torch.Tensor, *, virtual: bool) -> torch.Tensor:
        numel = x.untyped_storage().nbytes() // x.element_size()
        whole = x.detach().as_strided((numel,), (1,), 0)
        is_whole = not (x.is_floating_point() or x.is_complex())
        if is_whole and numel <= WRITTEN_DOWN:
            base = torch.tensor(whole.tolist(), dtype=x.dtype)
        else:
            base = torch.empty(numel, dtype=x.dtype)
            if not virtual:
                base.copy_(whole)
            elif is_whole and x.dtype is not torch.bool:
                base.random_(int(whole.min()), int(whole.max()) + 1)
        made = base.as_strided(x.shape, x.stride(), x.storage_offset())
        return made.requires_grad_() if x.requires_grad and self.differentiable else made


class OpProgram:
    """One call of an op in each step, and its backward where the operands are differentiable."""

    def __init__(self, name: str, function: Callable[..., Any], operands: Operands) -> None:
        self.name = name
        self.function = function
        self.operands = operands
        self.virtual = False

    def setup(self) -> None:
        """Make the operands."""
        self.made = self.operands.make(virtual=self.virtual)

    def step(self) -> None:
        """Call the op, and go back through it."""
        arguments, options = self.made
        function = self.function
        with contextlib.suppress(AttributeError):  # a factory is replaced while a device is simulated
            function = operator.attrgetter(self.name)(torch) if self.name.split(".")[-1] in _FACTORIES else function
        outputs = [t for t in tensors_in(function(*arguments, **options)) if t.requires_grad]
        if outputs and self.operands.differentiable:
            torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])
            for t in tensors_in(self.made):
                t.grad = None


_NAMES = """
    arange empty empty_like empty_permuted empty_strided eye full full_like linspace logspace ones ones_like rand_like
    randint randint_like randn randn_like scalar_tensor tril_indices triu_indices zeros zeros_like
"""
_FACTORIES = frozenset(_NAMES.split())


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in operands or results, those in containers included."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for each in value for tensor in tensors_in(each)]
    return [value] if isinstance(value, torch.Tensor) else []


def mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`value` with its tensors replaced."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {name: mapped(each, function) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        made = [mapped(each, function) for each in value]
        return made if type(value) is list else tuple(made)
    return value


def database() -> Sequence[Any]:
    """PyTorch's list of ops with operands, at SIZES. Importing it would forbid later tests to set flags."""
    with patch("torch.backends.disable_global_flags"):
        from torch.testing._internal.common_methods_invocations import op_db
    return sorted((op for op in op_db if op.dtypes), key=name_of)


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


@contextlib.contextmanager
def _larger() -> Iterator[None]:
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.opinfo import core, definitions

    modules = [common_methods_invocations, core, *(vars(definitions)[n] for n in ("_masked", "linalg", "special"))]
    with contextlib.ExitStack() as exits:
        for module, (name, size) in itertools.product(modules, SIZES.items()):
            if hasattr(module, name):
                exits.enter_context(patch.object(module, name, size))
        yield


def samples(op: Any) -> list[tuple[Any, dict[str, Any]]]:
    """The largest operands that the database has for `op`: positional ones and options."""
    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
    for sized in (_larger, contextlib.nullcontext):
        torch.manual_seed(0)
        random.seed(0)
        try:
            with sized():
                made = list(
                    itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=_has_backward(op, dtype)), 100)
                )
        except Exception:  # some sizes depend on each other, and some ops need another build of PyTorch
            continue
        operands = [((s.input, *s.args), dict(s.kwargs)) for s in made]
        usable = [each for each in operands if _is_usable(each)]
        return sorted(usable, key=lambda each: -_nbytes(each))[:SAMPLES_AN_OP]
    return []


def _has_backward(op: Any, dtype: torch.dtype) -> bool:
    return bool(op.supports_autograd and (dtype.is_floating_point or dtype.is_complex))


def _nbytes(operands: Any) -> int:
    return sum(t.untyped_storage().nbytes() for t in tensors_in(operands))


def _is_usable(operands: Any) -> bool:
    plain = (t.layout is torch.strided and not t.is_quantized and not t.is_nested for t in tensors_in(operands))
    return all(plain) and _nbytes(operands) <= MAX_NBYTES


def programs(op: Any) -> Iterator[tuple[str, OpProgram]]:
    """Every sample of `op`, forward and, where it has one, backward; by a name that stays."""
    for index, operands in enumerate(samples(op)):
        for direction in ("forward", "backward"):
            differentiable = direction == "backward"
            if differentiable and not any(t.requires_grad for t in tensors_in(operands)):
                continue
            program = OpProgram(op.name, op.op, Operands(operands, differentiable=differentiable))
            yield f"{name_of(op)} {direction} {index}", program


class Chain:
    """Ops one after another in each step, each of what those before it made, and a backward through them."""

    def __init__(self, functions: Sequence[tuple[str, Callable[..., Any], tuple[int, ...]]]) -> None:
        self.functions = functions
        self.names = [name for name, _function, _operands in functions]
        self.virtual = False

    def setup(self) -> None:
        """Make what the first op takes."""
        values = torch.rand(CHAIN_SHAPE) + 0.1
        self.made: Any = Operands([values.requires_grad_()], differentiable=True).make(virtual=self.virtual)

    def step(self) -> None:
        """Call the ops and go back through them."""
        made = list(self.made)
        for _name, function, operands in self.functions:
            made.append(function(*(made[i] for i in operands)))
        if made[-1].requires_grad:
            made[-1].backward(torch.ones_like(made[-1]))
            made[0].grad = None


CHAIN_SHAPE = (8, 12, 16)
CHAIN_LENGTH = 10
MAX_CHAIN_NUMEL = 1 << 16


def _result(function: Callable[..., Any], *operands: torch.Tensor) -> torch.Tensor | None:
    """What an op makes of these operands, where that can be the operand of another."""
    torch.manual_seed(0)
    try:
        result = function(*operands)
    except Exception:
        return None
    is_next = isinstance(result, torch.Tensor) and result.dtype is torch.float32 and result.layout is torch.strided
    return result if is_next and 1 < result.numel() <= MAX_CHAIN_NUMEL and bool(result.isfinite().all()) else None


def _is_random(op: Any) -> bool:
    """Whether what it makes differs from run to run: random numbers, or memory that nothing was written to."""
    return "empty" in op.name or "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ())


@patch("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)
def chains(count: int, seed: int) -> Iterator[Chain]:
    """`count` chains of ops that take one or two tensors, chosen by `seed`."""
    start = torch.rand(CHAIN_SHAPE, generator=torch.Generator().manual_seed(seed)) + 0.1
    ops = [(name_of(op), op.op) for op in database() if not _is_random(op)]
    pools = {n: [each for each in ops if _result(each[1], *[start.clone()] * n) is not None] for n in (1, 2)}
    choose = random.Random(seed)
    for _ in range(count):
        made, functions = [start.clone()], []
        while len(functions) < CHAIN_LENGTH:
            name, function = choose.choice(pools[2 if choose.random() < 0.3 else 1])
            num_operands = 2 if (name, function) in pools[2] and choose.random() < 0.5 else 1
            operands = (len(made) - 1, *(choose.randrange(len(made)) for _ in range(num_operands - 1)))
            result = _result(function, *(made[i] for i in operands))
            if result is not None:
                made.append(result)
                functions.append((name, function, operands))
        yield Chain(functions)


@patch("torch.testing._utils.freeze_rng_state", contextlib.nullcontext)  # asks the device's module
def difference(program: Any) -> Difference | None:
    """What a program takes really and as predicted; None where it does not run."""
    program.virtual = False
    try:
        program.setup()
        program.step()  # what is taken once for a process belongs to no op
    except Exception:  # operands that are no good at these sizes
        return None
    program.made = None
    torch.manual_seed(0)
    with patch("gc.collect", functools.partial(gc.collect, 0)):  # what the database is made of takes long to search
        return _difference(program)


def _difference(program: Any) -> Difference:
    real = measure_cpu_step(program, num_steps=1).peak_nbytes
    program.made = None
    program.virtual = True
    try:
        trace = trace_program(program, device_named("cpu"), num_steps=1).trace
    except Exception as error:
        return Difference(real, None, f"{type(error).__name__}: {error}".split("\n")[0])
    finally:
        program.made = None
    sizes = [buffer.nbytes for buffer in trace.buffers]
    return Difference(real, peaks(sizes, trace.events, trace.doubts, device_named("cpu")).requested)
