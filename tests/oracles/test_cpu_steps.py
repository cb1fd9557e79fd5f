"""memlint's prediction for the host (`--gpu cpu`) against real steps on the CPU, by the profiler's memory events."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_param import alloc_storage, free_storage
from torch.distributed.utils import _alloc_storage, _free_storage

from memlint.cuda.versions import torch_version
from memlint.memory.devices import device_named
from memlint.memory.timeline import Timeline, alive_at, live, peak_event
from memlint.tracing.recorder import trace_program
from tests.oracles.measure import CpuMeasurement, measure_cpu_step, measure_memtracker_without_computing
from tests.oracles.programs import OPTIMIZERS, PROGRAMS, TrainingProgram, measured_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Sizes = dict[str, int]


class Case(NamedTuple):
    program: str
    optimizer: str
    sizes: Sizes

    def make(self) -> TrainingProgram:
        return PROGRAMS[self.program](OPTIMIZERS[self.optimizer], **self.sizes)

    def __str__(self) -> str:
        return "-".join([self.program, self.optimizer, *(f"{name}{size}" for name, size in self.sizes.items())])


OTHER_SIZES: Mapping[str, Sizes] = {
    "vit": {"batch": 3, "size": 48},
    "mixer": {"batch": 3, "size": 48},
    "mlp": {"batch": 7},
    "gpt2": {"batch": 3, "length": 77},
    "gpt2-dropout": {"batch": 3, "length": 77},
    "bert": {"batch": 3, "length": 77},
    "llama": {"batch": 3, "length": 77},
    "swin": {"batch": 3, "size": 128},
    "convnext": {"batch": 2, "size": 32},
    "lstm": {"batch": 3, "length": 45},
}
EXACT = [
    *(Case(program, optimizer, {}) for program in OTHER_SIZES for optimizer in OPTIMIZERS),
    *(Case(program, "adamw", sizes) for program, sizes in OTHER_SIZES.items()),
]


class Held(NamedTuple):
    """Memory alive at a peak."""

    nbytes: int
    op: str
    """The operator that took it."""


class Comparison(NamedTuple):
    real: int
    predicted: int
    only_real: list[Held]
    only_predicted: list[Held]

    def __str__(self) -> str:
        return "\n".join(
            [
                f"predicted {self.predicted:,} bytes, really {self.real:,}: {self.predicted - self.real:+,}",
                *(f"alive at the real peak only: {held.nbytes:,} of {held.op}" for held in self.only_real),
                *(f"alive at the predicted peak only: {held.nbytes:,} of {held.op}" for held in self.only_predicted),
            ]
        )


def predicted(case: Case) -> Timeline:
    return Timeline.of(trace_program(case.make(), device_named("cpu")).trace)


def predicted_peak(program: str, optimizer: str) -> int:
    return max(live(of_defaults(program, optimizer)))


@cache
def of_defaults(program: str, optimizer: str) -> Timeline:
    """The prediction in the default sizes, made once for all tests."""
    return predicted(Case(program, optimizer, {}))


def compare(case: Case) -> Comparison:
    measured = measure_cpu_step(case.make()) if case.sizes else measured_step(case.program, case.optimizer)
    timeline = predicted(case) if case.sizes else of_defaults(case.program, case.optimizer)
    ours = [Held(buffer.nbytes, buffer.op) for buffer in alive_at(timeline, peak_event(timeline))]
    theirs = alive_at_peak(measured)
    return Comparison(measured.peak_nbytes, max(live(timeline)), lacking_from(ours, theirs), lacking_from(theirs, ours))


def alive_at_peak(measured: CpuMeasurement) -> list[Held]:
    alive: dict[int, Held] = {}
    for event in measured.events:
        if event.nbytes > 0:
            alive[event.address] = Held(event.nbytes, event.op)
        else:
            del alive[event.address]
        if event.total == measured.peak_nbytes:
            return list(alive.values())
    return []


def lacking_from(some: Iterable[Held], others: Iterable[Held]) -> list[Held]:
    """Those of `others` for whose size `some` has no like."""
    sizes = Counter(held.nbytes for held in some)
    lacking = []
    for held in others:
        sizes[held.nbytes] -= 1
        if sizes[held.nbytes] < 0:
            lacking.append(held)
    return lacking


@pytest.mark.parametrize("case", EXACT, ids=str)
def test_the_requested_peak_is_equal_to_the_byte(case: Case) -> None:
    comparison = compare(case)
    assert comparison.predicted == comparison.real, str(comparison)


class Product(nn.Module):
    """A product whose first operand has no fastest dimension, and so small a weight that its copy is the peak."""

    def __init__(self, multiply: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.multiply = multiply
        self.weight = nn.Parameter(torch.zeros(4, 256, 3))
        self.bias = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x[..., ::2], self.weight, self.bias)


PRODUCTS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "mm": lambda x, weight, _bias: x[0] @ weight[0],
    "addmm": lambda x, weight, bias: torch.addmm(bias, x[0], weight[0]),
    "mv": lambda x, weight, _bias: torch.mv(x[0], weight[0, :, 0]),
    "bmm": lambda x, weight, _bias: torch.bmm(x, weight),
    "transposed": lambda x, weight, _bias: x[0].t() @ x[0] @ weight[0],
    "expanded": lambda x, weight, _bias: x[:1, 0, :1].expand(512, 256) @ weight[0],
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_copies_of_operands_of_a_product_are_equal_to_the_byte(name: str) -> None:
    def make() -> TrainingProgram:
        return TrainingProgram(
            lambda: Product(PRODUCTS[name]),
            lambda device: {"x": torch.randn(4, 512, 512, device=device)},
            lambda model, inputs: ((product := model(inputs["x"])), product.sum()),
        )

    measured = measure_cpu_step(make()).peak_nbytes
    assert max(live(Timeline.of(trace_program(make(), device_named("cpu")).trace))) == measured


class Cast(nn.Module):
    """What a kernel casts for itself is the peak: a small number of the result is used."""

    def __init__(self, compute: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.compute = compute
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        result = self.compute(x, self.weight)
        return result.flatten()[:4].float() * self.weight


CASTS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum of a mask": lambda x, _weight: (x > 0).sum(-1),
    "sum of a mask in float": lambda x, _weight: (x > 0).sum(-1, dtype=torch.float32),
    "sum of a mask over its rows": lambda x, _weight: (x > 0).t().sum(-1),
    "sum of all of a mask": lambda x, _weight: (x > 0).sum(),
    "sum of numbers of the result's dtype": lambda x, _weight: x.sum(-1),
    "sum in another dtype": lambda x, _weight: x.sum(-1, dtype=torch.float64),
    "cumsum of a mask": lambda x, _weight: (x > 0).cumsum(-1),
    "product of a mask": lambda x, _weight: (x > 0).prod(-1),
    "mean in another dtype": lambda x, _weight: x.mean(-1, dtype=torch.float64),
    "norm of float16 in float32": lambda x, _weight: torch.linalg.vector_norm(x.half(), 2, -1, dtype=torch.float32),
    "truth of floats": lambda x, _weight: x.all(-1),
    "truth of a mask": lambda x, _weight: (x > 0).any(-1),
    "amax, whose backward counts a mask": lambda x, weight: (x * weight).amax(-1),
    "product with a mask": lambda x, _weight: x * (x > 0),
    "product in place with a mask": lambda x, _weight: x.clone().mul_(x > 0),
    "sum in place in a wider dtype": lambda x, _weight: x.half().add_(x),
    "sum in place in a narrower dtype": lambda x, _weight: x.clone().add_(x.half()),
    "comparison of two dtypes": lambda x, _weight: x > x.half(),
    "where of two dtypes": lambda x, _weight: torch.where(x > 0, x, x.half()),
    "masked fill": lambda x, _weight: x.masked_fill(x > 0, 0.0),
    "ternary of two dtypes": lambda x, _weight: torch.addcmul(x, x.half(), x > 0),
    "broadcast operand of another dtype": lambda x, _weight: x * (x[:1] > 0),
    "a mask and a number": lambda x, _weight: (x > 0) * 2.5,
    "square root of whole numbers": lambda x, _weight: x.long().sqrt(),
    "quotient of whole numbers": lambda x, _weight: x.long() / x.int(),
    "quotient of whole numbers and one": lambda x, _weight: x.long() / 3,
}


@pytest.mark.parametrize("name", CASTS)
def test_copies_of_operands_in_another_dtype_are_equal_to_the_byte(name: str) -> None:
    def make() -> TrainingProgram:
        return TrainingProgram(
            lambda: Cast(CASTS[name]),
            lambda device: {"x": torch.ones(512, 1024, device=device)},
            lambda model, inputs: ((picked := model(inputs["x"])), picked.sum()),
        )

    measured = measure_cpu_step(make()).peak_nbytes
    assert max(live(Timeline.of(trace_program(make(), device_named("cpu")).trace))) == measured


KERNELS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax of columns that do not lie together": lambda x, _weight: x[:, 1:].t().softmax(-1),
    "backward of a softmax whose rows are moved": lambda x, w: (x * w).view(8, 64, -1).softmax(-1).transpose(0, 1),
    "logsigmoid keeps a buffer": lambda x, weight: F.logsigmoid((x * weight)[:, 1:].t()),
    "histogram of a view": lambda x, _weight: torch.histc(x[:, 1:].t(), 1000),
    "bags that are averaged": lambda x, weight: F.embedding_bag(
        x.long().view(64, -1), (x * weight)[:, 1:].t(), mode="mean"
    ),
    "bags that are summed": lambda x, weight: F.embedding_bag(x.long().view(64, -1), x * weight, mode="sum"),
    "indices in int32": lambda x, weight: (x * weight).flatten()[x.flatten().int()],
    "indices of two dtypes": lambda x, weight: (x * weight)[x[:, :1].int(), x[:1].long()],
    "layer norm of an expanded gradient": lambda x, weight: F.layer_norm(x * weight, (1024,)).sum().reshape(1),
    "covariance with weights": lambda x, weight: torch.cov(x * weight, aweights=x[0].abs(), fweights=x[0].long()),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_a_kernel_of_the_host_takes_for_itself_is_equal_but_for_numbers(name: str) -> None:
    def make() -> TrainingProgram:
        return TrainingProgram(
            lambda: Cast(KERNELS[name]),
            lambda device: {"x": torch.ones(512, 1024, device=device)},
            lambda model, inputs: ((picked := model(inputs["x"])), picked.sum()),
        )

    measured = measure_cpu_step(make()).peak_nbytes
    predicted = max(live(Timeline.of(trace_program(make(), device_named("cpu")).trace)))
    assert abs(predicted - measured) <= 64


class Storages:
    """A program without a model: what it does to the storage of a tensor of 4,096 bytes."""

    def __init__(self, change: Callable[[Tensor], object]) -> None:
        self.change = change
        self.results: list[object] = []

    def setup(self) -> None:
        self.x = torch.empty(1024)

    def step(self) -> None:
        storage = self.x.untyped_storage()
        self.results.append(self.change(self.x))
        self.results.append((storage.size(), storage.nbytes(), len(storage), self.x.shape))


def resized(*sizes: int) -> Callable[[Tensor], object]:
    return lambda x: [x.untyped_storage().resize_(nbytes).size() for nbytes in sizes]


def set_to(*geometry: Any) -> Tensor:
    return torch.empty(0).set_(*geometry)


def freed_by_fsdp(x: Tensor) -> None:
    for _ in range(2):
        _free_storage(x)
        _free_storage(x)
        _alloc_storage(x, x.shape)
        _alloc_storage(x, x.shape)


def freed_by_fsdp2(x: Tensor) -> None:
    for _ in range(2):
        free_storage(x)
        free_storage(x)
        alloc_storage(x)
        alloc_storage(x)


STORAGES: Mapping[str, Callable[[Tensor], object]] = {
    "freed and taken back": resized(0, 4096, 0, 4096),
    "smaller and larger": resized(1024, 2048, 8192, 4096),
    "freed by FSDP": freed_by_fsdp,
    "freed by FSDP2": freed_by_fsdp2,
    "freed, taken back by the tensor": lambda x: (len(x.untyped_storage().resize_(0)), x.resize_(32, 32).shape),
    "freed, taken back by another tensor": lambda x: set_to(x.untyped_storage().resize_(0), 256, (512,)).shape,
    "freed, taken back as a typed storage": lambda x: (x._typed_storage()._resize_(0), x._typed_storage()._resize_(9)),
    "grown by another tensor": lambda x: set_to(x.untyped_storage(), 0, (2048,), (1,)).shape,
    "read by another tensor": lambda x: set_to(x.untyped_storage().resize_(2048)).shape,
    "freed and cloned": lambda x: x.untyped_storage().resize_(16).clone().size(),
}


@pytest.mark.parametrize("name", STORAGES)
def test_storages_that_are_freed_and_taken_back_are_equal_to_the_byte(name: str) -> None:
    real, ours = Storages(STORAGES[name]), Storages(STORAGES[name])
    measured = measure_cpu_step(real, num_steps=1)
    trace = trace_program(ours, device_named("cpu"), num_steps=1).trace
    sizes = [trace.buffers[e].nbytes if e >= 0 else -trace.buffers[~e].nbytes for e in trace.events]
    assert sizes == [event.nbytes for event in measured.events]
    assert repr(ours.results) == repr(real.results)


CONVOLUTIONS = [
    Case("resnet50", "sgd", {}),
    Case("unet", "sgd", {"batch": 3}),
    Case("convnext", "adamw", {"batch": 3, "size": 96}),
    Case("vit", "sgd", {"batch": 1, "size": 40}),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_a_peak_inside_a_convolution_is_within_bounds(case: Case) -> None:
    """oneDNN copies weights and inputs into blocked layouts of its own, which differ from machine to machine."""
    comparison = compare(case)
    assert 0.85 * comparison.real <= comparison.predicted <= 1.02 * comparison.real, str(comparison)


LONG = ("resnet50", "convnext")
NOT_LESS = [
    pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
    for name in PROGRAMS
    if name not in ("mlp", "swin", "unet", "lstm")
]
LESS = [
    pytest.param("mlp", 12, id="mlp-less-a-number-that-a-kernel-makes-a-tensor"),
    pytest.param("swin", 32, id="swin-less-numbers-that-kernels-make-tensors", marks=pytest.mark.slow),
    pytest.param("unet", 24_572, id="unet-less-a-copy-inside-a-kernel", marks=pytest.mark.slow),
    pytest.param(
        "lstm", 2_383_804 if torch_version() <= (2, 10) else 1_463_908, id="lstm-less-what-onednn-takes-inside-a-layer"
    ),
]


@pytest.mark.parametrize("name", NOT_LESS)
def test_memtracker_under_fake_tensors_reports_no_less(name: str) -> None:
    program = Case(name, "adamw", {}).make()
    assert predicted_peak(name, "adamw") <= measure_memtracker_without_computing(program)


@pytest.mark.parametrize(("name", "unseen"), LESS)
def test_what_memtracker_does_not_see_is_named(name: str, unseen: int) -> None:
    program = Case(name, "adamw", {}).make()
    assert predicted_peak(name, "adamw") <= measure_memtracker_without_computing(program) + unseen
