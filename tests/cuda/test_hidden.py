"""Memory that kernels take inside themselves, against what was recorded on GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F

from memlint.cuda.hidden import ROWS, cub
from memlint.cuda.hidden.iteration import walk
from memlint.cuda.hidden.staging import Reduction, launches
from memlint.cuda.session import virtual_device
from memlint.cuda.versions import torch_version
from memlint.memory.devices import CATALOGUE, Device, device_named
from tests.cuda.versions import simulated_torch

if TYPE_CHECKING:
    from collections.abc import Callable

H100, A100, AD102, TURING = (132, 2048), (108, 2048), (128, 1536), (72, 1024)
FLOAT, PAIR, BOOL = Reduction(4, 4), Reduction(16, 4), Reduction(1, 1)
ROWS_LAST, ROWS_FIRST, EVERYTHING = (1,), (0,), (0, 1)


def taken(
    shape: tuple[int, int],
    dims: tuple[int, ...],
    reduction: Reduction,
    gpu: tuple[int, int],
    *,
    transposed: bool = False,
) -> tuple[int, int]:
    """Staging and semaphores of one reduction of a matrix; `transposed` has rows as the fastest dimension."""
    stride = (1, shape[0]) if transposed else (shape[1], 1)
    outputs = (4, 8) if reduction is PAIR else (reduction.item,)
    across, parts = launches(shape, stride, 0, dims, outputs, reduction, *gpu)
    assert across == 0
    assert len(parts) <= 1
    return (parts[0].partials, parts[0].semaphores) if parts else (0, 0)


@pytest.mark.parametrize("put", [False, True])
def test_indices_in_int32_are_copied_as_wide_as_all_indices_together(put: bool) -> None:
    with virtual_device(device_named("a100-80gb")) as ledger:
        x = torch.zeros(64, 64, device="cuda")
        rows = torch.zeros(256, 1, dtype=torch.int32, device="cuda")
        columns = torch.zeros(1, 128, dtype=torch.int64, device="cuda")
        values = torch.zeros((), device="cuda")
        number = len(ledger.births)
        if put:
            x[rows, columns] = values
        else:
            assert x[rows, columns].shape == (256, 128)
        assert [birth.nbytes for birth in ledger.births[number:]].count(8 * 256 * 128) == 1


@pytest.mark.parametrize(
    ("tokens", "expected"), [(512, (10_485_760, 16)), (1024, (20_971_520, 32)), (2048, (41_943_040, 64))]
)
def test_sum_over_the_width_with_tokens_fastest(tokens: int, expected: tuple[int, int]) -> None:
    assert taken((tokens, 2560), ROWS_LAST, FLOAT, H100, transposed=True) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"), [(512, (164_626_432, 16)), (1024, (329_252_864, 32)), (2048, (553_648_128, 64))]
)
def test_max_over_a_vocabulary_keeps_the_index_of_each_partial_maximum(tokens: int, expected: tuple[int, int]) -> None:
    assert taken((tokens, 10_000), ROWS_LAST, PAIR, H100, transposed=True) == expected


@pytest.mark.parametrize(
    ("tokens", "expected"), [(512, (41_156_608, 16)), (1024, (82_313_216, 32)), (2048, (138_412_032, 64))]
)
def test_sum_over_a_vocabulary(tokens: int, expected: tuple[int, int]) -> None:
    assert taken((tokens, 10_000), ROWS_LAST, FLOAT, H100, transposed=True) == expected


@pytest.mark.parametrize(
    ("rows", "columns", "gpu", "expected"),
    [
        (1280, 1024, AD102, (10_485_760, 32)),
        (512, 1024, AD102, (0, 0)),
        (1024, 1024, A100, (8_388_608, 32)),
        (2048, 1024, A100, (16_777_216, 32)),
        (4096, 1024, A100, (33_554_432, 32)),
        (2048, 4096, A100, (67_108_864, 128)),
        (2048, 16_384, A100, (117_440_512, 512)),
    ],
)
def test_gradient_of_a_weight_is_a_sum_over_rows(
    rows: int, columns: int, gpu: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert taken((rows, columns), ROWS_FIRST, FLOAT, gpu) == expected


@pytest.mark.parametrize(
    ("numel", "reduction", "gpu", "expected"),
    [
        (10_240_000, FLOAT, AD102, (1_536, 4)),
        (524_288, FLOAT, A100, (256, 4)),
        (1_966_080, FLOAT, TURING, (576, 4)),
        (1_966_080, BOOL, TURING, (144, 4)),
    ],
)
def test_reduction_to_one_element(
    numel: int, reduction: Reduction, gpu: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert taken((1, numel), EVERYTHING, reduction, gpu) == expected


def test_rows_that_a_block_can_reduce_need_no_staging() -> None:
    assert taken((2048, 1024), ROWS_LAST, FLOAT, H100) == (0, 0)


def test_reduction_that_spans_more_than_32_bit_offsets_runs_in_parts() -> None:
    shape, dims = (2**17, 2**14), (0, 1)
    (quarter,) = walk(shape, (2**14, 1), dims, (4, 4)).parts()  # all four are alike
    assert quarter.numel == 2**29
    assert quarter.indexed_by_32_bits
    (half,) = walk(shape, (2**14, 1), dims, (2, 2)).parts()
    assert half.numel == 2**30
    unlike = walk((2**17 + 2, 2**14), (2**14, 1), (0,), (4, 4)).parts()
    assert [part.numel >> 14 for part in unlike] == [2**15, 2**14, 2**14 + 1]
    across, _ = launches(shape, (2**14, 1), 0, dims, (2,), Reduction(4, 2), *A100)
    assert across == 4  # a float32 for the output, as bfloat16 cannot hold what is accumulated


def test_a_reduction_of_any_size_takes_no_time() -> None:
    across, taken = launches((2**60 + 7,), (1,), 0, (0,), (2,), Reduction(4, 2), *A100)
    assert across == 4
    assert 1 < len(taken) < 64


@pytest.mark.parametrize("dims", [(0, 1, 2), (0, 2, 1), (2, 0, 1)])
def test_dimensions_that_follow_each_other_in_memory_are_one_whatever_their_order(dims: tuple[int, ...]) -> None:
    shape, stride = (8, 16, 32), (16 * 32, 32, 1)
    merged = walk([shape[d] for d in dims], [stride[d] for d in dims], range(3), (4, 4))
    assert merged.shape == (8 * 16 * 32,)


# --- through the kernels -------------------------------------------------------------------------------------------


def scratch_of(run: Callable[[], object], gpu: str | Device = "a100-80gb") -> list[int]:
    """What `run` takes and gives back before it ends, that is not among the tensors it makes."""
    device = device_named(gpu) if isinstance(gpu, str) else gpu
    with virtual_device(device) as ledger:
        result = run()
        births, events = list(ledger.births), list(ledger.events)
        del result
    closed = {~e for e in events if e < 0}
    return [births[e].nbytes for e in events if e >= 0 and e in closed]


def test_gradient_of_indexing_sorts_its_indices() -> None:
    """Recorded with torch 2.11 on a GPU before Hopper: 512 indices, and 2,048 of them."""

    def run(count: int) -> Callable[[], object]:
        def backward() -> object:
            table = torch.zeros(10_000, 64, device="cuda")
            indices = torch.zeros(count, dtype=torch.int64, device="cuda")
            values = torch.zeros(count, 64, device="cuda")
            return table, indices, values, torch.ops.aten._index_put_impl_(table, [indices], values, True, True)

        return backward

    assert scratch_of(run(512)) == [4096] * 5 + [1]
    assert scratch_of(run(2048)) == [16_384] * 5 + [1]
    assert cub.radix_sort(4096, 8, 8, bits=14) == 72_191


def test_sum_of_booleans_is_a_sum_of_eight_byte_integers() -> None:
    def run() -> object:
        mask = torch.zeros(1024, 1024, device="cuda", dtype=torch.bool)
        return mask, mask.sum(-1)

    assert scratch_of(run) == [8 * 2**20]


def test_count_for_nonzero() -> None:
    """Recorded: 4 bytes and 1 or 17,663 before the output, 1,023 after it (torch 2.12)."""

    def run(n: int) -> Callable[[], object]:
        def select() -> object:
            x = torch.ones(n, device="cuda")
            return x, x.nonzero()

        return select

    assert scratch_of(run(64))[:2] == [4, 1]
    assert scratch_of(run(100_000))[:2] == [4, 17_663]
    assert cub.scan(64, 8) == 1_023
    assert cub.scan(64, 4) == 767


@pytest.mark.parametrize(("tokens", "sorted_copies"), [(3072, 0), (3073, 2)])
def test_gradient_of_an_embedding_sorts_above_3072_tokens(tokens: int, sorted_copies: int) -> None:
    def run() -> object:
        grad = torch.zeros(tokens, 64, device="cuda")
        indices = torch.zeros(tokens, dtype=torch.int64, device="cuda")
        return grad, indices, torch.ops.aten.embedding_dense_backward(grad, indices, 50_000, -1, False)

    scratch = scratch_of(run)
    assert scratch[:sorted_copies] == [8 * tokens] * sorted_copies
    assert (4 * 64 * (tokens // 10 + tokens) in scratch) == bool(sorted_copies)


@pytest.mark.parametrize("loss", [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy])
@pytest.mark.parametrize("gpu", ["a100-80gb", "cpu"])
def test_reduced_loss_keeps_as_many_bytes_alive_as_on_the_cpu(loss: Callable[..., torch.Tensor], gpu: str) -> None:
    real = loss(torch.rand(1000), torch.rand(1000)).untyped_storage().nbytes()
    with virtual_device(device_named(gpu)) as ledger:
        device = "cpu" if gpu == "cpu" else "cuda"
        x, y = (torch.ones(1000, 1000, device=device) for _ in range(2))
        before = len(ledger.births)
        value = loss(x, y)
        alive = ledger.births[value.untyped_storage().entry.number].nbytes
        made = [b.nbytes for b in ledger.births[before:]]
        del x, y, value
    assert alive == (4_000_000 if real == 4000 else 4)
    assert 4_000_000 in made or gpu == "cpu"


def test_product_with_an_expanded_gradient_copies_it_as_recorded() -> None:
    """The backward of a sum expands a scalar; cuBLAS cannot read it (recorded: attention, 2,097,152 bytes)."""

    def run() -> object:
        weight = torch.zeros(64, 128, device="cuda")
        grad = torch.zeros((), device="cuda").expand(32, 64)
        return weight, grad, grad @ weight

    assert scratch_of(run) == [4 * 32 * 64]


def test_transposed_operands_of_products_are_read_as_they_lie() -> None:
    def run() -> object:
        a, b = torch.zeros(64, 32, device="cuda"), torch.zeros(128, 64, device="cuda")
        return a, b, a.t() @ b.t()

    assert scratch_of(run) == []


@pytest.mark.parametrize(
    ("version", "per_call", "kept"), [((2, 8), [1_048_576], 1), ((2, 9), [], 2), ((2, 12), [], 2), ((2, 13), [], 1)]
)
def test_workspace_of_cublaslt_by_version(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], per_call: list[int], kept: int
) -> None:
    for variable in ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    with simulated_torch(version), virtual_device(device_named("a100-80gb")) as ledger:
        linear, x = torch.nn.Linear(8, 8).to("cuda"), torch.zeros(8, 8, device="cuda")
        begin = len(ledger.events)
        y = linear(x)
        events = ledger.events[begin:]
        closed = {~e for e in events if e < 0}
        taken = [(ledger.births[e].nbytes, e in closed) for e in events if e >= 0]
        del linear, x, y
    assert [n for n, freed in taken if freed] == per_call
    assert [n for n, freed in taken if not freed] == [256, 8_519_680, 1_048_576][: kept + 1]


def test_another_version_is_simulated_only_inside() -> None:
    running = tuple(int(part) for part in torch.__version__.split(".")[:2])
    with simulated_torch((2, 4)):
        with simulated_torch((2, 9)):
            assert torch_version() == (2, 9)
        assert torch_version() == (2, 4)
    assert torch_version() == running


def test_layer_norm_of_very_many_short_rows_keeps_partial_gradients() -> None:
    def run() -> object:
        x = torch.zeros(65_568, 64, device="cuda")
        mean = rstd = torch.zeros(65_568, 1, device="cuda")
        weight, bias = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        return (
            x,
            mean,
            weight,
            bias,
            torch.ops.aten.native_layer_norm_backward(x, x, [64], mean, rstd, weight, bias, [True, True, True]),
        )

    assert scratch_of(run)[:2] == [4 * 2049 * 64] * 2


def test_a_copy_on_the_host_takes_nothing_of_the_gpu() -> None:
    def run() -> object:
        mask = torch.zeros(4096, 4096, dtype=torch.bool)
        return mask, mask.sum(), (mask.float() @ mask.float()).sum()

    assert scratch_of(run) == []


@pytest.mark.parametrize("gpu", [name for name, device in CATALOGUE.items() if device.is_cuda])
def test_every_gpu_of_the_catalogue_can_reduce(gpu: str) -> None:
    def run() -> object:
        x = torch.zeros(4096, 1024, device="cuda")
        return x, x.sum(0)

    partials, semaphores = scratch_of(run, gpu)
    assert semaphores == 32
    assert 0 < partials <= 2 * 4 * 4096 * 1024


def test_every_row_names_its_source_and_says_what_it_takes() -> None:
    entered = [
        (op, device) for row in ROWS for op in row.ops for device in row.devices.replace("any", "gpu host").split()
    ]
    assert len(set(entered)) == len(entered)
    for row in ROWS:
        assert row.what.endswith(".")
        assert row.source
        assert row.versions


def test_gradient_of_a_sum_is_spread_out_before_a_softmax_can_read_it() -> None:
    def run() -> object:
        x = torch.zeros(64, 64, device="cuda")
        y = x.softmax(-1)
        return x, y, torch.ops.aten._softmax_backward_data(torch.ones((), device="cuda").expand(64, 64), y, -1, x.dtype)

    assert scratch_of(run)[-1:] == [4 * 64 * 64]


@pytest.mark.parametrize(("mode", "rows"), [("sum", 51 + 512), ("mean", 51 + 512), ("max", 0)])
def test_gradient_of_bags_of_embeddings_sorts_however_few_tokens_there_are(mode: str, rows: int) -> None:
    def run() -> object:
        bags = torch.nn.EmbeddingBag(1000, 64, mode=mode).to("cuda")
        tokens = torch.zeros(32, 16, dtype=torch.int64, device="cuda")
        bags(tokens).sum().backward()
        return bags, tokens

    assert (rows * 64 * 4 in scratch_of(run)) == bool(rows)


def test_norm_of_many_gradients_keeps_one_number_a_chunk() -> None:
    def run() -> object:
        tensors = [torch.zeros(n, device="cuda") for n in (300_000, 10, 70_000)]
        return tensors, torch._foreach_norm(tensors)

    assert scratch_of(run) == [4 * 5 * 3]


@pytest.mark.parametrize(("values", "expected"), [(1, []), (100, [8 * 100 * 2])])
def test_assignment_by_a_mask_finds_its_positions_unless_it_fills(values: int, expected: list[int]) -> None:
    def run() -> object:
        x = torch.zeros(64, 64, device="cuda")
        mask = torch.ones(64, 64, device="cuda", dtype=torch.bool)
        filled = torch.ones(values, device="cuda")
        return x, mask, filled, torch.ops.aten._index_put_impl_(x, [mask], filled, False, True)

    assert scratch_of(run) == expected


@pytest.mark.parametrize(("gpu", "kept"), [("a100-80gb", [4096]), ("cpu", [4096, 4096])])
def test_logsigmoid_keeps_a_buffer_on_the_host_alone(gpu: str, kept: list[int]) -> None:
    with virtual_device(device_named(gpu)) as ledger:
        x = torch.zeros(32, 32, device="cpu" if gpu == "cpu" else "cuda", requires_grad=True)
        before = len(ledger.births)
        F.logsigmoid(x)
    assert [birth.nbytes for birth in ledger.births[before:] if birth.nbytes] == kept


def test_the_gradient_of_a_running_product_may_meet_zeros() -> None:
    with virtual_device(device_named("a100-80gb")) as ledger:
        for x in (torch.rand(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")):
            x.requires_grad_().cumprod(-1).sum().backward()
    assert list(ledger.doubts.values()) == [(0, 64 * 64 * 30)]  # 29.8 and 30.0 for each number on H200
