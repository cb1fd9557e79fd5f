"""Sparse tensors are counted by their parts, and have the shapes that PyTorch gives them on a real device."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.accelerator import state
from memlint.accelerator.sparse import parts_of
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.memory.records import Category, Phase, Trace
from memlint.tracing.recorder import trace_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memlint.accelerator.ledger import Ledger

ROWS, COLUMNS, ELEMENTS = 30, 40, 50


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # sparse layouts are in beta, PyTorch says
        yield


def indices() -> torch.Tensor:
    """Row and column of 50 different elements of a 30 x 40 matrix, sorted."""
    positions = torch.arange(ELEMENTS) * 23
    return torch.stack([positions // COLUMNS, positions % COLUMNS])


def coo(device: str, *, coalesced: bool = True) -> torch.Tensor:
    made = torch.sparse_coo_tensor(indices().to(device), torch.rand(ELEMENTS, device=device), (ROWS, COLUMNS))
    return made.coalesce() if coalesced else made


def csr(device: str) -> torch.Tensor:
    rows = torch.zeros(ROWS + 1, dtype=torch.int64)
    rows[1:] = torch.bincount(indices()[0], minlength=ROWS).cumsum(0)
    values = torch.rand(ELEMENTS, device=device)
    return torch.sparse_csr_tensor(rows.to(device), indices()[1].to(device), values, (ROWS, COLUMNS))


def dense(device: str, *shape: int) -> torch.Tensor:
    return torch.rand(shape, device=device)


def masked(device: str) -> torch.Tensor:
    made = torch.zeros(ROWS, COLUMNS, device=device)
    made[indices()[0].to(device), indices()[1].to(device)] = 1.0
    return made


CALLS: dict[str, Callable[[str], Any]] = {
    "from-lists": lambda d: torch.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3), device=d),  # type: ignore[arg-type]
    "without-size": lambda d: torch.sparse_coo_tensor(
        torch.tensor([[0, 1], [2, 0]], device=d), torch.ones(2, device=d)
    ),
    "empty": lambda d: torch.empty(3, 4, layout=torch.sparse_coo, device=d),
    "csr-from-lists": lambda d: torch.sparse_csr_tensor([0, 1, 2], [1, 1], [2.0, 3.0], device=d),
    "hybrid": lambda d: torch.sparse_coo_tensor(indices().to(d), dense(d, ELEMENTS, 5), (ROWS, COLUMNS, 5)).coalesce(),
    "coo": coo,
    "uncoalesced": lambda d: coo(d, coalesced=False),
    "indices": lambda d: coo(d).indices(),
    "values": lambda d: coo(d).values(),
    "doubled-coalesced": lambda d: (coo(d) + coo(d)).coalesce(),
    "to-dense": lambda d: coo(d).to_dense(),
    "to-csr": lambda d: coo(d).to_sparse_csr(),
    "dense-to-sparse": lambda d: masked(d).to_sparse(),
    "dense-to-csr": lambda d: masked(d).to_sparse_csr(),
    "dense-to-bsr": lambda d: torch.eye(20, device=d).to_sparse_bsr((5, 5)),
    "dtype": lambda d: coo(d).to(torch.float64),
    "negated": lambda d: -coo(d),
    "scaled": lambda d: coo(d) * 2,
    "scaled-in-place": lambda d: coo(d).mul_(2),
    "divided": lambda d: coo(d) / 3,
    "squared": lambda d: coo(d).pow(2),
    "relu": lambda d: torch.relu(coo(d)),
    "transposed": lambda d: coo(d).t(),
    "concatenated": lambda d: torch.cat([coo(d), coo(d)]),
    "dense-plus-sparse": lambda d: dense(d, ROWS, COLUMNS) + coo(d),
    "dense-plus-sparse-in-place": lambda d: dense(d, ROWS, COLUMNS).add_(coo(d, coalesced=False), alpha=2),
    "dense-times-sparse": lambda d: dense(d, ROWS, COLUMNS) * coo(d),
    "sparse-times-sparse": lambda d: coo(d) * coo(d),
    "masked": lambda d: dense(d, ROWS, COLUMNS).sparse_mask(coo(d)),
    "sum": lambda d: torch.sparse.sum(coo(d)),
    "sum-of-rows": lambda d: torch.sparse.sum(coo(d), 1),
    "softmax": lambda d: torch.sparse.softmax(coo(d), 1),
    "norm": lambda d: coo(d).norm(),
    "index-select": lambda d: coo(d).index_select(0, torch.tensor([1, 2, 2], device=d)),
    "mm": lambda d: torch.sparse.mm(coo(d), dense(d, COLUMNS, 5)),
    "mm-uncoalesced": lambda d: torch.sparse.mm(coo(d, coalesced=False), dense(d, COLUMNS, 5)),
    "matmul": lambda d: coo(d) @ dense(d, COLUMNS, 5),
    "vector": lambda d: coo(d) @ dense(d, COLUMNS),
    "addmm": lambda d: torch.sparse.addmm(dense(d, ROWS, 5), coo(d), dense(d, COLUMNS, 5)),
    "sparse-sparse-mm": lambda d: torch.sparse.mm(coo(d), coo(d).t()),
    "bmm": lambda d: torch.bmm(torch.stack([coo(d), coo(d)]), dense(d, 2, COLUMNS, 5)),
    "zeroed": lambda d: coo(d).zero_(),
    "csr": csr,
    "csr-transposed": lambda d: csr(d).t(),
    "csr-to-csc": lambda d: csr(d).to_sparse_csc(),
    "csr-to-coo": lambda d: csr(d).to_sparse(),
    "csr-to-dense": lambda d: csr(d).to_dense(),
    "csr-scaled": lambda d: csr(d) * 2,
    "csr-relu": lambda d: csr(d).relu(),
    "csr-sum": lambda d: csr(d).sum(),
    "csr-plus-csr": lambda d: csr(d) + csr(d),
    "csr-mm": lambda d: csr(d) @ dense(d, COLUMNS, 5),
    "csr-vector": lambda d: csr(d) @ dense(d, COLUMNS),
    "dense-times-csr": lambda d: dense(d, 5, ROWS) @ csr(d),
    "csr-plus-other": lambda d: csr(d) + torch.eye(ROWS, COLUMNS, device=d).to_sparse_csr(),
    "csr-plus-in-place": lambda d: csr(d).add_(torch.eye(ROWS, COLUMNS, device=d).to_sparse_csr()),
    "csr-csr-mm": lambda d: csr(d) @ csr(d).t().to_sparse_csr(),
}


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    parts = [(tuple(p.shape), p.dtype) for p in parts_of(tensor)] if tensor.layout is not torch.strided else []
    coalesced = tensor.is_coalesced() if tensor.layout is torch.sparse_coo else None
    return tuple(tensor.shape), tensor.dtype, tensor.layout, coalesced, parts


@pytest.mark.parametrize("name", CALLS)
def test_results_are_those_of_a_real_device(name: str) -> None:
    real = facts(CALLS[name]("cpu"))
    with virtual_device(device_named("a100-80gb")):
        result = CALLS[name]("cuda")
        assert result.is_cuda
        assert facts(result) == real


def mm_gradients(device: str, *, sparse_operand: bool, make: Callable[[str], torch.Tensor]) -> list[tuple[Any, ...]]:
    matrix, features = make(device), dense(device, COLUMNS, 5).requires_grad_()
    matrix.requires_grad_(sparse_operand)
    torch.sparse.mm(matrix, features).sum().backward()
    return [facts(x.grad) for x in (matrix, features) if x.grad is not None]


@pytest.mark.parametrize("make", [coo, csr])
@pytest.mark.parametrize("sparse_operand", [False, True])
def test_gradients_of_products_are_those_of_a_real_device(*, sparse_operand: bool, make: Any) -> None:
    real = mm_gradients("cpu", sparse_operand=sparse_operand, make=make)
    with virtual_device(device_named("a100-80gb")):
        assert mm_gradients("cuda", sparse_operand=sparse_operand, make=make) == real
    assert len(real) == 1 + sparse_operand


def live(ledger: Ledger) -> int:
    born = [e for e in ledger.events if e >= 0]
    dead = [~e for e in ledger.events if e < 0]
    return sum(ledger.births[n].nbytes for n in born) - sum(ledger.births[n].nbytes for n in dead)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("shape", [(1000,), (100, 200), (10, 20, 30)])
def test_coo_takes_its_indices_and_values_and_is_freed(gpu: Ledger, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    before = live(gpu)
    made = torch.sparse_coo_tensor(
        torch.randint(0, 10, (len(shape), 7), device="cuda"), torch.rand(7, device="cuda", dtype=dtype), shape
    )
    assert live(gpu) - before == 7 * (8 * len(shape) + dtype.itemsize)
    assert made._nnz() == 7
    del made
    assert live(gpu) == before


def test_csr_takes_its_row_pointers_columns_and_values(gpu: Ledger) -> None:
    made = csr("cuda")
    assert live(gpu) == (ROWS + 1) * 8 + ELEMENTS * (8 + 4)
    del made
    assert live(gpu) == 0


@pytest.mark.parametrize("make", [coo, csr])
def test_moving_to_the_host_and_back_moves_the_parts(gpu: Ledger, make: Callable[[str], torch.Tensor]) -> None:
    made = make("cpu")
    assert made.device.type == "cpu"
    assert live(gpu) == 0
    moved = made.cuda()
    nbytes = sum(p.untyped_storage().nbytes() for p in parts_of(moved))
    assert moved.is_cuda
    assert live(gpu) == nbytes
    back = moved.cpu()
    assert not back.is_cuda
    del moved
    assert live(gpu) == 0
    assert back._nnz() == ELEMENTS


def test_a_large_matrix_of_the_host_costs_the_device_nothing(gpu: Ledger) -> None:
    positions = torch.randint(0, 100_000, (2, 1_000_000))
    made = torch.sparse_coo_tensor(positions, torch.rand(1_000_000), (100_000, 100_000))
    assert made.device.type == "cpu"
    assert live(gpu) == 0
    moved = made.to("cuda")
    assert moved.is_cuda
    assert live(gpu) == 1_000_000 * (16 + 4)


def test_operands_on_host_and_device_do_not_meet(gpu: Ledger) -> None:
    with pytest.raises(RuntimeError, match="two devices"):
        torch.sparse.mm(coo("cuda"), torch.rand(COLUMNS, 5))
    with pytest.raises(RuntimeError, match="two devices"):
        torch.sparse.mm(coo("cuda").cpu(), torch.rand(COLUMNS, 5, device="cuda"))


def test_wrong_shapes_fail(gpu: Ledger) -> None:
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch.sparse.mm(coo("cuda"), torch.rand(ROWS, 5, device="cuda"))


def test_an_operation_that_is_not_known_is_named(gpu: Ledger) -> None:
    with pytest.raises(NotImplementedError, match="aten::hspmm on sparse COO tensors"):
        torch.hspmm(coo("cuda"), torch.rand(COLUMNS, 5, device="cuda"))


def test_coalescing_unknown_indices_keeps_at_most_every_position(gpu: Ledger) -> None:
    made = torch.sparse_coo_tensor(torch.randint(0, 4, (2, 50), device="cuda"), torch.rand(50, device="cuda"), (4, 4))
    assert made.coalesce()._nnz() == 16


def test_coalesce_takes_a_sorted_copy_beside_its_result(gpu: Ledger) -> None:
    made = coo("cuda", coalesced=False)
    before, start = live(gpu), len(gpu.events)
    result = made.coalesce()
    peak = current = 0
    for event in gpu.events[start:]:
        number = event if event >= 0 else ~event
        current += gpu.births[number].nbytes * (1 if event >= 0 else -1)
        peak = max(peak, current)
    assert live(gpu) - before == ELEMENTS * (2 * 8 + 4)
    assert peak > live(gpu) - before
    assert result.is_coalesced()


def test_a_product_of_unknown_sparse_matrices_is_as_full_as_it_can_be(
    gpu: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    monkeypatch.setattr(state.current, "assume", noted.append)
    positions = torch.randint(0, 100, (2, 10), device="cuda")
    x = torch.sparse_coo_tensor(positions, torch.rand(10, device="cuda"), (100, 100))
    assert torch.sparse.mm(x, x)._nnz() == 100
    assert any("as full as it can be" in text for text in noted)


def test_reading_a_kernel_shows_the_parts_of_its_sparse_operands() -> None:
    traced = trace(lambda: GraphConvolution(compressed=False), OPTIMIZERS["sgd"], features=torch.rand(100, 8))
    adjacency = {b.id for b in traced.buffers if b.name == "adjacency"}
    product = next(n for n in traced.nodes if n.op == "aten.addmm.default" and adjacency < {g.buffer for g in n.inputs})
    assert [(g.shape, g.dtype) for g in product.inputs if g.buffer in adjacency] == [
        ((2, 500), "int64"),
        ((500,), "float32"),
    ]


class Embeddings(nn.Module):
    def __init__(self, *, uses: int = 1) -> None:
        super().__init__()
        self.table = nn.Embedding(1000, 16, sparse=True)
        self.uses = uses

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.table(ids + i) for i in range(self.uses)])


class Bag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(1000, 16, sparse=True, mode="sum")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.table(ids)
        return result


class GraphConvolution(nn.Module):
    def __init__(self, *, compressed: bool) -> None:
        super().__init__()
        edges = torch.stack([torch.arange(500) // 5, torch.arange(500) * 7 % 100])
        adjacency = torch.sparse_coo_tensor(edges, torch.ones(500), (100, 100)).coalesce()
        self.register_buffer("adjacency", adjacency.to_sparse_csr() if compressed else adjacency)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(torch.sparse.mm(self.adjacency, self.first(features)))
        result: torch.Tensor = torch.sparse.mm(self.adjacency, self.second(hidden))
        return result


class Training:
    """Two steps of a model on the device; what its optimizer and inputs are is given."""

    def __init__(self, model: Callable[[], nn.Module], optimizer: Callable[..., Any], **inputs: torch.Tensor) -> None:
        self.made = (model, optimizer, inputs)

    def setup(self) -> None:
        model, optimizer, inputs = self.made
        self.model = model().to("cuda")
        self.optimizer = optimizer(self.model.parameters())
        self.inputs = {name: x.to("cuda") for name, x in inputs.items()}

    def step(self) -> None:
        output = self.model(**self.inputs)
        (output * output).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def trace(model: Callable[[], nn.Module], optimizer: Callable[..., Any], **inputs: torch.Tensor) -> Trace:
    return trace_program(Training(model, optimizer, **inputs), device_named("a100-80gb")).trace


IDS = torch.arange(128).reshape(4, 32)
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "sparse-adam": lambda p: torch.optim.SparseAdam(list(p)),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", [Embeddings, Bag])
def test_sparse_gradients_of_embeddings_train(model: type[nn.Module], optimizer: str) -> None:
    traced = trace(model, OPTIMIZERS[optimizer], ids=IDS)
    gradients = {b.nbytes for b in traced.buffers if b.category is Category.GRADIENT and b.nbytes}
    # The indices of a bag's gradient are the input itself.
    assert gradients == ({128 * 8, 128 * 16 * 4} if model is Embeddings else {128 * 16 * 4})


def test_the_state_of_sparse_adam_is_dense() -> None:
    traced = trace(Embeddings, OPTIMIZERS["sparse-adam"], ids=IDS)
    state = [b for b in traced.buffers if b.category is Category.OPTIMIZER_STATE]
    assert [b.nbytes for b in state if b.nbytes] == [1000 * 16 * 4] * 2


def test_an_embedding_used_twice_has_a_gradient_of_both_uses() -> None:
    traced = trace(lambda: Embeddings(uses=2), OPTIMIZERS["sparse-adam"], ids=IDS)
    gradients = {b.nbytes for b in traced.buffers if b.category is Category.GRADIENT and b.nbytes}
    assert gradients == {2 * 128 * 8, 2 * 128 * 16 * 4}


def test_gradients_of_several_backward_passes_accumulate(gpu: Ledger) -> None:
    model = Embeddings().cuda()
    for passes in range(1, 4):
        model(IDS.cuda()).sum().backward()
        gradient = model.table.weight.grad
        assert gradient is not None
        assert gradient.layout is torch.sparse_coo
        assert gradient._nnz() == passes * 128


def test_dense_optimizers_refuse_sparse_gradients() -> None:
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients"):
        trace(Embeddings, torch.optim.Adam, ids=IDS)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_graph_convolution_with_a_sparse_adjacency_trains(*, compressed: bool) -> None:
    traced = trace(lambda: GraphConvolution(compressed=compressed), torch.optim.Adam, features=torch.rand(100, 8))
    adjacency = [b for b in traced.buffers if b.name == "adjacency"]
    expected = [101 * 8, 500 * 4, 500 * 8] if compressed else [500 * 4, 2 * 500 * 8]
    assert sorted(b.nbytes for b in adjacency) == sorted(expected)
    assert {b.category for b in adjacency} == {Category.BUFFER}
    products = [
        n
        for n in traced.nodes
        if n.op.startswith("aten.addmm") and {g.buffer for g in n.inputs} > {b.id for b in adjacency}
    ]
    assert {n.phase for n in products} >= {Phase.FORWARD}


def test_sparse_products_note_that_cusparse_is_not_counted_once() -> None:
    traced = trace(lambda: GraphConvolution(compressed=False), torch.optim.Adam, features=torch.rand(100, 8))
    assert len({a.text for a in traced.assumptions if "cuSPARSE" in a.text}) == 1
