"""What the virtual device says of values is what a real run says; what it cannot know is zero, and an assumption."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memlint.accelerator import state, values
from memlint.accelerator.device import entry_of, is_virtual
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlint.accelerator.ledger import Ledger

pytestmark = pytest.mark.usefixtures("checked_torch")


@pytest.fixture
def assumptions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts of the assumptions made."""
    texts: list[str] = []
    monkeypatch.setattr(state.current, "assume", texts.append)
    return texts


# --- random programs, run for real as well ---------------------------------------------------------------------------

T = torch.Tensor
MAKERS: list[Callable[[str], T]] = [
    lambda d: torch.arange(6, device=d).reshape(2, 3),
    lambda d: torch.arange(0, 3, 0.5, device=d).view(2, 3),
    lambda d: torch.zeros(2, 3, device=d),
    lambda d: torch.ones(2, 3, dtype=torch.int64, device=d),
    lambda d: torch.full((2, 3), -1.5, device=d),
    lambda d: torch.tensor([[1.0, -2.0, 0.0], [4.0, 0.5, 3.0]], device=d),
    lambda d: torch.tensor([[True, False, True], [False, False, True]], device=d),
    lambda d: torch.eye(3, device=d)[:2],
    lambda d: torch.linspace(-1, 1, 6, device=d).view(3, 2).t(),
    lambda d: torch.ones(2, 3, device=d).tril(),
    lambda d: torch.zeros(4, 5, device=d)[1:3, 1:4],
    lambda d: torch.arange(3, device=d).expand(2, 3),
    lambda d: torch.arange(12.0).view(4, 3)[::2].to(d, copy=True),
    lambda d: torch.ones(3, device=d).repeat(2, 1),
]
UNARY: list[Callable[[T], T]] = [
    lambda x: x + 1,
    lambda x: x * 2.5,
    lambda x: 1 - x,
    lambda x: x / 2,
    lambda x: x // 2,
    lambda x: x.abs(),
    lambda x: x.float().exp(),
    lambda x: x > 0,
    lambda x: x == 1,
    lambda x: x != 0,
    lambda x: x.long(),
    lambda x: x.bool(),
    lambda x: x.clone(),
    lambda x: x.float().softmax(-1),
    lambda x: x.flip(0),
    lambda x: x.float().cumsum(1),
    lambda x: x.float().clamp(0, 1),
    lambda x: x.float().mean(1, keepdim=True).expand(2, 3),
    lambda x: x.sum(0, keepdim=True).expand(2, 3),
    lambda x: x.roll(1, 1),
    lambda x: x.t().contiguous().t(),
    lambda x: x.sort(1)[0],
    lambda x: x.argsort(1),
    lambda x: torch.zeros_like(x),
    lambda x: torch.ones_like(x),
    lambda x: x.amax(1, keepdim=True).expand(2, 3),
    lambda x: x.any(0, keepdim=True).expand(2, 3),
    lambda x: x.all(1, keepdim=True).expand(2, 3),
    lambda x: x[:, [2, 0, 1]],
    lambda x: x[[1, 0]],
    lambda x: x.masked_fill(x > 1, 0),
    lambda x: torch.cat([x[:1], x[1:]]),
    lambda x: torch.stack([x[0], x[1]]),
    lambda x: x.view(-1)[:6].reshape(2, 3) if x.is_contiguous() else x,
    lambda x: x.float().round(),
    lambda x: x.float().sqrt().nan_to_num(),
    lambda x: torch.where(x > 0, x, 0),
    lambda x: x.to(torch.float16),
    lambda x: x.to(torch.int32),
    lambda x: x.new_full((2, 3), 3),
    lambda x: x.cpu().to(x.device).clone(),
    lambda x: x.isnan(),
    lambda x: torch.isfinite(x),
    lambda x: x.logical_not(),
    lambda x: x.prod(1, keepdim=True).expand(2, 3),
    lambda x: x.cumsum(0),
    lambda x: x.double().norm(dim=1, keepdim=True).expand(2, 3),
    lambda x: x.triu(),
    lambda x: x.gather(1, torch.zeros(2, 3, dtype=torch.int64, device=x.device)),
    lambda x: x.unique()[:1].expand(2, 3),
    lambda x: x.max() * torch.ones(2, 3, device=x.device),
    lambda x: torch.tensor([x.sum().item()] * 6, device=x.device).view(2, 3),
    lambda x: x.scatter(1, torch.ones(2, 1, dtype=torch.int64, device=x.device), 1),
    lambda x: x.repeat_interleave(2, 0)[::2],
    lambda x: torch.nn.functional.pad(x, (1, 0))[:, :3],
    lambda x: x.reshape(6).unfold(0, 3, 3),
    lambda x: x.expand(4, 2, 3)[2],
    lambda x: x @ torch.eye(3, dtype=x.dtype, device=x.device) if x.is_floating_point() else x,
]
BINARY: list[Callable[[T, T], T]] = [
    lambda x, y: x + y,
    lambda x, y: x.float() * y,
    lambda x, y: x < y,
    lambda x, y: x == y,
    lambda x, y: torch.maximum(x, y),
    lambda x, y: torch.where(x.bool(), x, y),
    lambda x, y: torch.cat([x, y])[1:3],
    lambda x, y: x.bool() & y.bool(),
    lambda x, y: (x.bool() | y.bool()) ^ y.bool(),
    lambda x, y: torch.stack([x, y]).sum(0),
    lambda x, y: torch.outer(x.double()[:, 0], y.double()[0]),
    lambda x, y: x.float() - y,
]


def _in_place(change: Callable[[T, T], Any]) -> Callable[[T, T], T]:
    def apply(x: T, y: T) -> T:
        if x.dtype is torch.bool or any(s == 0 for s in x.stride()):
            return x
        change(x, y.to(x.dtype))
        return x

    return apply


IN_PLACE: list[Callable[[T, T], T]] = [
    _in_place(change)
    for change in (
        lambda x, y: x.add_(1),
        lambda x, y: x.mul_(y),
        lambda x, y: x.zero_(),
        lambda x, y: x.fill_(2),
        lambda x, y: x.copy_(y),
        lambda x, y: x[0].fill_(5),
        lambda x, y: x[:, 1].add_(1),
        lambda x, y: x.__setitem__((0, 0), 7),
        lambda x, y: x.__setitem__(slice(1, 2), y[:1]),
        lambda x, y: x[:, ::2].copy_(y[:, ::2]),
        lambda x, y: x.masked_fill_(y > 0, 3),
        lambda x, y: x.t().add_(y.t()),
        lambda x, y: x.clamp_(0, 1),
        lambda x, y: x.index_fill_(0, torch.tensor([1], device=x.device), 4),
        lambda x, y: x.view_as(x).sub_(1),
        lambda x, y: x.__setitem__(y > 0, 9),
        lambda x, y: x.scatter_(1, torch.zeros(2, 1, dtype=torch.int64, device=x.device), y),
        lambda x, y: torch.add(x, y, out=x),
        lambda x, y: x.detach().mul_(2),
        lambda x, y: x[1].normal_() if x.is_floating_point() else None,
        lambda x, y: x.fill_diagonal_(8),
        lambda x, y: x.index_add_(0, torch.tensor([0], device=x.device), y[:1]),
        lambda x, y: x[0].zero_(),
        lambda x, y: x[:0].fill_(9),
        lambda x, y: x.resize_(2, 3),
        lambda x, y: x.swapaxes_(0, 1).swapaxes_(0, 1),
    )
]
STEPS = [*((f, 1) for f in UNARY), *((f, 2) for f in BINARY), *((f, 2) for f in IN_PLACE)]
steps = st.lists(
    st.tuples(st.integers(0, len(STEPS) - 1), st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=8
)
makers = st.lists(st.integers(0, len(MAKERS) - 1), min_size=1, max_size=3)


def interpret(chosen: list[int], program: list[tuple[int, int, int]], device: str) -> Iterator[T]:
    """The tensors of a random program: all that exist after each step, as Python variables."""
    variables = [MAKERS[i](device) for i in chosen]
    for step, a, b in program:
        function, arity = STEPS[step]
        operands = [variables[a % len(variables)], variables[b % len(variables)]][:arity]
        try:
            made = function(*operands)
        except RuntimeError as error:
            if (
                "expand" in str(error)
                or "overlap" in str(error)
                or "not implemented" in str(error)
                or "resize" in str(error)
            ):
                made = operands[0]
            else:
                raise
        if made.shape == (2, 3):
            variables.append(made)
    yield from variables


def uses_chance(program: list[tuple[int, int, int]]) -> bool:
    return any(STEPS[step][0] is IN_PLACE[19] for step, _, _ in program)


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(makers, steps)
def test_every_value_the_device_claims_to_know_is_right(chosen: list[int], program: list[tuple[int, int, int]]) -> None:
    torch.manual_seed(0)
    try:
        expected = [t.clone() for t in interpret(chosen, program, "cpu")]
    except (RuntimeError, IndexError):
        return
    with virtual_device(device_named("a100-80gb")):
        traced = list(interpret(chosen, program, "cuda"))
        assert [(t.shape, t.dtype) for t in traced] == [(t.shape, t.dtype) for t in expected]
        for found, real in zip(traced, expected, strict=True):
            known, uniform = values.content(found), values.uniform_value(found)
            if uses_chance(program):
                continue
            if known is not None:
                assert torch.equal(known.nan_to_num(nan=7e7), real.nan_to_num(nan=7e7)) or torch.allclose(
                    known.double(), real.double(), 1e-3, 1e-3, equal_nan=True
                )
            if uniform is not None and found.numel():
                assert torch.allclose(
                    real.double(), torch.full((), float(uniform), dtype=torch.float64), 1e-3, 1e-3, equal_nan=True
                )
            if is_virtual(found) and (bound := entry_of(found).nonzeros) is not None:
                assert bound >= int(torch.count_nonzero(real))


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(makers, steps)
def test_nothing_is_claimed_of_what_depends_on_chance(chosen: list[int], program: list[tuple[int, int, int]]) -> None:
    """A known tensor is written to by chance somewhere; two real runs differ wherever the device must not know."""
    variants = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        try:
            start = [MAKERS[i]("cpu") for i in chosen]
            variants.append([t.clone() for t in _with_chance(start, program)])
        except (RuntimeError, IndexError):
            return
    with virtual_device(device_named("a100-80gb")):
        traced = _with_chance([MAKERS[i]("cuda") for i in chosen], program)
        for found, first, second in zip(traced, *variants, strict=False):
            same = torch.equal(first.double().nan_to_num(), second.double().nan_to_num())
            healthy = first.dtype is torch.bool and found.dtype is torch.bool  # isnan and isfinite are answered anyhow
            if not same and not healthy:
                assert values.content(found) is None or _by_assumption(program)
                assert values.uniform_value(found) is None or _by_assumption(program)


def _by_assumption(program: list[tuple[int, int, int]]) -> bool:
    """Whether a value is read, or made of comparisons, whose answers are assumed."""
    assumed = {
        UNARY.index(f)
        for f in UNARY
        if f.__code__.co_names and {"item", "isnan", "isfinite", "nan_to_num", "unique"} & set(f.__code__.co_names)
    }
    return any(step in assumed for step, _, _ in program)


def _with_chance(variables: list[T], program: list[tuple[int, int, int]]) -> list[T]:
    first = next((t for t in variables if t.is_floating_point() and 0 not in t.stride()), None)
    if first is None:
        raise IndexError
    first.normal_()
    for step, a, b in program:
        function, arity = STEPS[step]
        made = function(*[variables[a % len(variables)], variables[b % len(variables)]][:arity])
        if made.shape == (2, 3):
            variables.append(made)
    return variables


# --- how values are read ---------------------------------------------------------------------------------------------


def test_known_values_are_read_in_every_way(gpu: Ledger, assumptions: list[str]) -> None:
    x = torch.arange(6, device="cuda").view(2, 3)
    assert x.sum().item() == 15
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x.cpu().numpy().tolist() == x.tolist()
    assert int(x[1, 2]) == 5
    assert float(x.float().mean()) == 2.5
    assert bool((x >= 0).all())
    assert not bool((x > 5).any())
    assert [int(v) for v in x[0]] == [0, 1, 2]
    assert list(range(x[0, 2])) == [0, 1]
    assert x.max() == 5
    assert f"{x.sum().item():d}" == "15"
    assert "0, 1, 2" in repr(x)
    assert "15" in f"{x.sum()}"
    assert len(x) == 2
    assert 3 in x
    assert torch.equal(x, torch.arange(6, device="cuda").view(2, 3))
    assert torch.allclose(x.float(), x.float() + 1e-9)
    assert "abc"[x[0, 1]] == "b"
    assert not assumptions


def test_reading_numpy_of_a_device_tensor_raises_what_a_gpu_raises(gpu: Ledger) -> None:
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
        torch.rand(3, device="cuda").numpy()


def test_a_small_array_of_unknown_values_is_contiguous_as_compiled_code_wants_it(gpu: Ledger) -> None:
    assert torch.rand(256, 1, device="cuda").cpu().numpy().flags.c_contiguous
    assert set(torch.rand(1 << 24, device="cuda").cpu().numpy().strides) == {0}


def test_an_unknown_value_is_zero_and_one_assumption_with_its_line() -> None:
    class Reads:
        def setup(self) -> None:
            self.x = torch.rand(3, device="cuda")

        def step(self) -> None:
            value = self.x.sum().item()  # read here
            assert value == 0

    trace = trace_program(Reads(), device_named("a100-80gb")).trace
    (assumption,) = trace.assumptions
    assert assumption.frame is not None
    assert assumption.frame.path == __file__
    assert "read here" in linecache.getline(__file__, assumption.frame.line)


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda x: x.sum().item(), 0.0),
        (lambda x: bool((x > 0.5).any()), False),
        (lambda x: x.tolist(), [0.0] * 3),
        (lambda x: int(x.argmax()), 2),
        (lambda x: float(x[0]), 0.0),
        (lambda x: x.cpu().tolist(), [0.0] * 3),
        (lambda x: bool((x > 0.5).all()), True),
    ],
)
def test_unknown_reads_are_assumed(gpu: Ledger, assumptions: list[str], read: Any, value: Any) -> None:
    x = torch.rand(3, device="cuda")
    assert read(x) == value
    assert len(assumptions) == 1


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda x: x.isfinite().all(), True),
        (lambda x: x.isnan().any(), False),
        (lambda x: torch.isinf(x).any(), False),
        (lambda x: x.isnan().sum() > 0, False),
        (lambda x: (~x.isfinite()).any(), False),
        (lambda x: (x != x).any(), False),
        (lambda x: x.isinf().logical_or(x.isnan()).any(), False),
        (lambda x: x.isfinite().all(dim=0).all(), True),
    ],
)
def test_a_healthy_run_has_no_nan_and_no_infinity(gpu: Ledger, question: Any, answer: bool) -> None:
    assert bool(question(torch.rand(2000, 1000, device="cuda"))) is answer
    assert bool(question(torch.rand(2, 1, device="cuda").half())) is answer


def test_minus_infinity_that_was_written_is_seen(gpu: Ledger) -> None:
    x = torch.full((3,), float("-inf"), device="cuda")
    assert bool(x.isinf().all())
    assert not bool(torch.isfinite(x).any())


# --- shapes that depend on values ------------------------------------------------------------------------------------


def test_shapes_that_depend_on_known_values_are_exact(gpu: Ledger, assumptions: list[str]) -> None:
    x = torch.tensor([0, 3, 0, 5, 3], device="cuda")
    data = torch.rand(5, 2, device="cuda")
    assert x.nonzero().tolist() == [[1], [3], [4]]
    assert [t.tolist() for t in torch.where(x > 0)] == [[1, 3, 4]]
    assert data[x > 0].shape == (3, 2)
    assert data.masked_select((x > 0)[:, None]).shape == (6,)
    assert x[x > 0].tolist() == [3, 5, 3]
    assert x.unique().tolist() == [0, 3, 5]
    values_, inverse, counts = x.unique(return_inverse=True, return_counts=True)
    assert (values_.tolist(), inverse.tolist(), counts.tolist()) == ([0, 3, 5], [0, 1, 0, 2, 1], [2, 2, 1])
    assert torch.unique_consecutive(torch.tensor([1, 1, 2], device="cuda")).tolist() == [1, 2]
    assert torch.repeat_interleave(torch.tensor([2, 0, 1], device="cuda")).tolist() == [0, 0, 2]
    assert data.repeat_interleave(torch.tensor([2, 0, 1, 1, 1], device="cuda"), dim=0).shape == (5, 2)
    assert torch.bincount(x).tolist() == [2, 0, 0, 2, 0, 1]
    assert torch.masked_select(x, x > 3).tolist() == [5]
    assert x.view(1, 5).unique(dim=0).tolist() == [[0, 3, 0, 5, 3]]
    assert torch.split(data, x[3:4].tolist())[0].shape == (5, 2)
    assert not assumptions


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda x, m: m.nonzero(), (6, 2)),
        (lambda x, m: x[m], (6,)),
        (lambda x, m: torch.where(m)[0], (6,)),
        (lambda x, m: x.masked_select(m), (6,)),
        (lambda x, m: x.masked_select(m[:, :1]), (6,)),
        (lambda x, m: x.unique(), (6,)),
        (lambda x, m: x[m[:, 0]], (2, 3)),
        (lambda x, m: torch.argwhere(m), (6, 2)),
        (lambda x, m: x.unique(dim=0), (2, 3)),
        (lambda x, m: torch.unique_consecutive(x), (6,)),
        (lambda x, m: x[:, m[0]], (2, 3)),
    ],
)
def test_shapes_that_depend_on_unknown_values_are_their_upper_bound(
    gpu: Ledger, assumptions: list[str], make: Any, shape: Any
) -> None:
    x = torch.rand(2, 3, device="cuda")
    assert make(x, x > 0.5).shape == shape
    assert len(assumptions) == 1


def test_gradients_pass_through_masks(gpu: Ledger) -> None:
    x = torch.rand(4, 3, device="cuda", requires_grad=True)
    x[torch.tensor([True, False, True, False], device="cuda")].sum().backward()
    assert x.grad is not None
    assert x.grad.shape == (4, 3)


def test_random_draws_are_not_known(gpu: Ledger) -> None:
    for x in (
        torch.rand(3, device="cuda"),
        torch.randn(3, device="cuda"),
        torch.zeros(3, device="cuda").bernoulli_(0.5),
        torch.randperm(3, device="cuda"),
        torch.zeros(3, device="cuda").uniform_(),
        torch.empty(3, device="cuda").exponential_(),
    ):
        assert values.content(x) is None
        assert values.uniform_value(x) is None


def test_a_part_written_with_the_unknown_makes_the_whole_unknown(gpu: Ledger) -> None:
    x = torch.zeros(4, device="cuda")
    x[1:2] = torch.rand(1, device="cuda")
    assert values.content(x) is None
    assert values.uniform_value(x) is None
    assert entry_of(x).nonzeros in (None, 1, 2, 3, 4)


def test_a_mask_of_ones_is_still_one_when_it_is_resized(gpu: Ledger) -> None:
    mask = torch.ones(2, 1, 600, 600, device="cuda")
    small = torch.nn.functional.interpolate(mask, size=(20, 30)).long()
    assert small[:, 0].sum(dim=1)[:, 0].tolist() == [20, 20]
    assert len(small.nonzero()) == 1200


def test_uniform_values_are_known_at_any_size(gpu: Ledger) -> None:
    big = torch.zeros(1 << 20, 64, device="cuda")
    assert big.sum().item() == 0
    assert (big + 2)[5, 7].item() == 2
    big[3] = 1.0
    assert values.uniform_value(big) is None


def test_a_view_that_reinterprets_bytes_is_read_as_such(gpu: Ledger) -> None:
    x = torch.tensor([1.0, 1.0], device="cuda")
    assert x.view(torch.int32).tolist() == [1065353216, 1065353216]
    assert values.content(torch.ones(2, device="cuda").view(torch.int32)) is None
    assert torch.zeros(4, dtype=torch.uint8, device="cuda").view(torch.float32).tolist() == [0.0]
    big = torch.ones(1 << 20, device="cuda").view(torch.int32)
    assert values.uniform_value(big) in (None, 1065353216)


def test_what_a_permutation_writes_over_is_known(gpu: Ledger, assumptions: list[str]) -> None:
    order = torch.tensor([2, 0, 3, 1], device="cuda")
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(4, device="cuda"))
    assert inverse.tolist() == [1, 3, 0, 2]
    assert not assumptions


def test_what_a_scatter_leaves_as_it_was_is_not_known(gpu: Ledger) -> None:
    some = torch.empty(4, device="cuda").scatter_(0, torch.tensor([2, 0, 2, 1], device="cuda"), torch.ones(4).cuda())
    assert values.content(some) is None


def test_an_operand_that_decides_the_result_makes_it_known(gpu: Ledger, assumptions: list[str]) -> None:
    unknown = torch.randint(0, 5, (4,), device="cuda")
    no, yes = (torch.full((4,), value, device="cuda") for value in (False, True))
    left = torch.ones(4, dtype=torch.long, device="cuda")
    assert not ((unknown == 3) & no).any()
    assert ((unknown == 3) | yes).all()
    assert (left & ~((unknown == 3) | yes)).max() == 0  # how generation finds out that every text is complete
    assert (unknown * torch.zeros_like(unknown)).sum().item() == 0
    assert assumptions == []
    assert bool(torch.isnan(torch.rand(2, device="cuda") * 0).any()) is False


def check_by_assert(x: torch.Tensor) -> None:
    """As Python compiles it: pytest writes assertions of tests anew."""
    exec('assert x.min() > -1 and x.max() < 7, f"out of range: {x.shape}"', {"x": x})


def check_by_if(x: torch.Tensor) -> None:
    if x.max() >= 7:
        raise ValueError(f"out of range: {x.shape}")


def check_by_if_not(x: torch.Tensor) -> None:
    if not (x.max() < 7):
        message = f"out of range: {x.shape}"
        raise ValueError(message)


def check_in_loop(x: torch.Tensor) -> None:
    for _ in range(2):
        if (x < 7).any():
            continue
        raise ValueError


@pytest.mark.parametrize("check", [check_by_assert, check_by_if, check_by_if_not, check_in_loop])
def test_checks_of_unknown_values_pass(check: Callable[[torch.Tensor], None]) -> None:
    assumptions: list[str] = []
    with virtual_device(device_named("a100-80gb")):
        state.current.assume = assumptions.append
        check(torch.randint(0, 5, (1 << 20,), device="cuda"))
    assert "a check of values that are not known is taken as passed" in assumptions


def dispatched(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As mixtures of experts do it: an expert is called for the tokens that it gets, if it gets any."""
    out = torch.zeros_like(x)
    if mask.any():
        out[mask] = x[mask] * 2
    return out


def counted(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    if torch.sum(mask) > 0:
        out[mask] += x[mask] * 2
    return out


def passed_over(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for _ in range(2):
        if not mask.any():
            continue
        out[mask] += x[mask] * 2
    return out


def looked_at(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mask chooses nothing of what is done."""
    return x * 2 if mask.any() else x


@pytest.mark.parametrize(
    ("work", "works"), [(dispatched, True), (counted, True), (passed_over, True), (looked_at, False)]
)
def test_a_mask_by_which_elements_are_then_taken_selects_some(
    work: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], works: bool
) -> None:
    assumptions: list[str] = []
    with virtual_device(device_named("a100-80gb")):
        state.current.assume = assumptions.append
        x = torch.rand(1 << 20, device="cuda")
        work(x, x.multinomial(1) + x > 0.5)
    taken = "any() of a mask that is not known is taken as true where elements are then taken by it"
    assert (taken in assumptions) is works


def test_a_branch_of_which_both_ways_go_on_is_taken_as_false() -> None:
    with virtual_device(device_named("a100-80gb")):
        x = torch.rand(1 << 20, device="cuda")
        assert (1 if x.max() > 0.5 else 2) == 2


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint64, torch.float8_e4m3fn, torch.float8_e8m0fnu])
def test_values_that_pytorch_cannot_count_are_copied_all_the_same(gpu, dtype: torch.dtype) -> None:
    x = torch.zeros(64, dtype=torch.uint8).view(dtype).cuda()
    assert x.cpu().dtype is dtype
    assert x.untyped_storage().nbytes() == 64
