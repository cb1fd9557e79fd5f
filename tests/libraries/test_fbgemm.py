"""Tables of fbgemm_gpu take the bytes that its sources say, by hand; its own Python runs."""

from __future__ import annotations

import pytest
import torch
from memlint_libraries import fbgemm

from memlint.base.after_import import after_import
from tests.libraries.events import simulated

pytest.importorskip("fbgemm_gpu")
BATCH, ENTRIES, TABLES = 32, 100, 2
NUMBER = BATCH * ENTRIES * TABLES
WIDTH = 64 + 128


@pytest.fixture(scope="module", autouse=True)
def installed():
    for module, patch in fbgemm.library.patches.items():
        after_import(module, patch)


def tables(**options):
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    place = EmbeddingLocation.DEVICE, ComputeDevice.CUDA
    return SplitTableBatchedEmbeddingBagsCodegen(
        [(100_000, 64, *place), (5_000, 128, *place)],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        device=torch.device("cuda"),
        **options,
    )


def entries():
    offsets = torch.arange(0, NUMBER + 1, ENTRIES, device="cuda")
    return torch.randint(5_000, (NUMBER,), device="cuda"), offsets


def test_rows_and_states_are_the_tables_and_backward_sorts_entries():
    with simulated() as seen:
        module = tables()
        weights = 4 * (100_000 * 64 + 5_000 * 128)
        # rows, a state of each, and small buffers of the module
        assert weights + 4 * 105_000 <= seen.held < weights + 4 * 105_000 + 4096
        indices, offsets = entries()
        seen.begin()
        out = module(indices, offsets)
        assert out.shape == (BATCH, WIDTH)
        assert seen.events == [4 * BATCH * WIDTH]
        gradient = torch.ones_like(out)
        seen.begin()
        out.backward(gradient)
        assert seen.held == 0
        births = [nbytes for nbytes in seen.events if nbytes > 0]
        sorting = births.pop(4)
        assert 12 * NUMBER < sorting < 14 * NUMBER  # spare keys and entries
        of_runs, of_ends = births.pop(7), births.pop(8)
        assert max(of_runs, of_ends) < 2048
        blocks = NUMBER // 1024
        assert births == [
            *(4 * NUMBER, 4 * NUMBER, 8 * NUMBER, 8 * NUMBER),  # entries and their places, before and after
            *(8 * NUMBER, 4 * NUMBER, 4, 4 * (NUMBER + 1)),  # places that differ, how often, how many, and their ends
            4 * TABLES,
            *(4 * NUMBER, 4, 4 * NUMBER, 4),  # long ones, and those longer than a block adds up
            *(4 * blocks, 4 * blocks * 128),
        ]
        assert any("1.8.0" in text for text in seen.assumptions)


def test_a_mean_has_a_gradient_of_its_own():
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode

    for pooling in PoolingMode.SUM, PoolingMode.MEAN:
        with simulated() as seen:
            module, (indices, offsets) = tables(pooling_mode=pooling), entries()
            out = module(indices, offsets)
            gradient = torch.ones_like(out)
            seen.begin()
            out.backward(gradient)
            assert (seen.events.count(4 * BATCH * WIDTH) == 1) == (pooling is PoolingMode.MEAN)


def test_rows_that_are_not_pooled_are_as_many_as_entries():
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    with simulated():
        module = SplitTableBatchedEmbeddingBagsCodegen(
            [(5_000, 64, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)] * 2,
            optimizer=EmbOptimType.EXACT_SGD,
            pooling_mode=PoolingMode.NONE,
            device=torch.device("cuda"),
        )
        out = module(*entries())
        assert out.shape == (NUMBER, 64)
        out.sum().backward()
