"""`torch.cuda` under all of its names: statistics, history, streams, ranges, graphs, properties."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from memlint.cuda.session import virtual_device
from memlint.memory.context import with_context
from memlint.memory.devices import device_named

if TYPE_CHECKING:
    from memlint.accelerator.ledger import Ledger

A100 = device_named("a100-80gb")
MIB = 2**20


@pytest.fixture
def gpu() -> Any:
    with virtual_device(A100) as ledger:
        yield ledger


@pytest.mark.parametrize("modules", ["LAZY", "EAGER"])
def test_what_is_free_is_what_neither_the_context_nor_the_allocator_has(
    modules: str, gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MODULE_LOADING", modules)  # as a program may, before it uses the GPU
    x = torch.zeros(MIB, device="cuda")
    free, total = torch.cuda.mem_get_info()
    context = with_context(A100).context_nbytes
    assert total - free == context + torch.cuda.memory_reserved() == torch.cuda.device_memory_used()
    assert (context > A100.context_nbytes) == (modules == "EAGER")
    del x


def test_nothing_is_free_where_the_program_does_not_fit(gpu: Any) -> None:
    x = torch.empty(2 * A100.total_nbytes, dtype=torch.uint8, device="cuda")
    assert torch.cuda.mem_get_info()[0] == 0
    del x


def test_submodules_answer_as_torch_cuda_does(gpu: Ledger) -> None:
    x = torch.zeros(MIB, device="cuda")
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated() == x.nbytes
    assert torch.cuda.memory.mem_get_info() == torch.cuda.mem_get_info()
    states = torch.cuda.random.get_rng_state_all()
    torch.cuda.random.set_rng_state_all(states)
    torch.cuda.random.manual_seed_all(3)
    assert isinstance(torch.cuda.current_stream(), torch.cuda.streams.Stream)
    assert torch.accelerator.memory_allocated() == x.nbytes


def test_statistics_count_pools_peaks_and_parts_of_segments(gpu: Ledger) -> None:
    small, large = torch.empty(1000, device="cuda"), torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.small_pool.current"] == 4096
    assert stats["requested_bytes.small_pool.current"] == 4000
    assert stats["allocated_bytes.large_pool.current"] == stats["active_bytes.large_pool.current"] == 3 * MIB
    assert stats["segment.all.current"] == stats["num_device_alloc"] == 2
    assert stats["reserved_bytes.large_pool.current"] == 20 * MIB
    assert stats["inactive_split_bytes.all.current"] == (2 * MIB - 4096) + 17 * MIB
    assert stats["inactive_split.all.current"] == 2
    del large
    torch.cuda.empty_cache()
    stats = torch.cuda.memory_stats()
    assert stats["inactive_split_bytes.all.current"] == 2 * MIB - 4096
    assert stats["inactive_split_bytes.all.peak"] == (2 * MIB - 4096) + 17 * MIB
    assert stats["allocated_bytes.all.peak"] == 3 * MIB + 4096
    assert stats["allocation.all.allocated"] == 2
    assert stats["allocation.all.freed"] == stats["num_device_free"] == 1
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == small.nbytes + 96
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def test_the_parts_of_segments_are_those_of_the_blocks(gpu: Ledger) -> None:
    kept: list[torch.Tensor] = []
    for number in range(200):
        kept.append(torch.empty(1 + number * 7919 % 60_000, device="cuda"))
        if number % 3 == 2:
            del kept[number * 31 % len(kept)]
        segments = torch.cuda.memory_snapshot()
        parts = [
            block["size"]
            for segment in segments
            for block in segment["blocks"]
            if block["state"] == "inactive" and block["size"] < segment["total_size"]
        ]
        stats = torch.cuda.memory_stats()
        assert stats["inactive_split_bytes.all.current"] == sum(parts)
        assert stats["inactive_split.all.current"] == len(parts)
        assert stats["reserved_bytes.all.current"] == sum(segment["total_size"] for segment in segments)


def test_the_summary_is_a_table_of_them(gpu: Ledger) -> None:
    x = torch.zeros(MIB, device="cuda")
    rows = [row for row in torch.cuda.memory_summary().splitlines() if row.startswith("| Allocated memory")]
    assert rows
    assert rows[0].split("|")[2].strip() == f"{x.nbytes // 1024} KiB"


def test_a_recorded_history_is_dumped_with_the_lines_that_allocate(gpu: Ledger, tmp_path: Path) -> None:
    before = torch.zeros(MIB, device="cuda")
    torch.cuda.memory._record_memory_history(max_entries=1000)
    made = torch.zeros(2 * MIB, device="cuda")
    gone = torch.zeros(3 * MIB, device="cuda")
    del gone
    file = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    torch.cuda.memory._record_memory_history(enabled=None)
    snapshot = pickle.loads(file.read_bytes())
    (trace,) = snapshot["device_traces"]
    assert [(e["action"], e["size"]) for e in trace if not e["action"].startswith("segment")] == [
        ("alloc", made.nbytes),
        ("alloc", 12 * MIB),
        ("free_requested", 12 * MIB),
        ("free_completed", 12 * MIB),
    ]
    frames = trace[-3]["frames"]
    assert frames[0]["filename"] == __file__
    assert frames[0]["name"] == "test_a_recorded_history_is_dumped_with_the_lines_that_allocate"
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["frames"]]
    assert [block["requested_size"] for block in blocks] == [made.nbytes]
    assert sum(segment["requested_size"] for segment in snapshot["segments"]) == made.nbytes + before.nbytes


def test_pytorchs_own_tools_read_what_is_dumped(gpu: Ledger, tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    torch.cuda.memory._record_memory_history(max_entries=1000)
    kept = torch.zeros(2 * MIB, device="cuda")
    for file in (tmp_path / "before.pickle", tmp_path / "after.pickle"):
        torch.cuda.memory._dump_snapshot(str(file))
        more = torch.zeros(16 * MIB, device="cuda")
    torch.cuda.memory._record_memory_history(enabled=None)
    assert kept.nbytes + more.nbytes == 72 * MIB
    before, after = (pickle.loads((tmp_path / name).read_bytes()) for name in ("before.pickle", "after.pickle"))

    def nbytes(flames: str) -> dict[str, int]:
        """By the kind that the tool makes of a line: bytes."""
        totals: dict[str, int] = {}
        for line in flames.splitlines():
            kind = next(kind for kind in ("active_allocated", "inactive", "cached_segment") if kind in line)
            assert kind != "active_allocated" or "test_queries.py" in line
            totals[kind] = totals.get(kind, 0) + int(line.rpartition(" ")[2])
        return totals

    assert nbytes(viz.memory(after, format_flamegraph=str))["active_allocated"] == 72 * MIB
    assert nbytes(viz.segments(after, format_flamegraph=str))["active_allocated"] == 72 * MIB
    assert str(64 * MIB) in viz.compare(before["segments"], after["segments"], format_flamegraph=str)
    assert viz.trace(after).count("cudaMalloc") == 2
    assert "72.0" in viz.segsum(after)
    for page in (viz.trace_plot(after), viz.segment_plot(after), viz.trace_plot(after, plot_segments=True)):
        assert "add_local_files" in page


def test_a_history_ends_with_the_simulation() -> None:
    with virtual_device(A100):
        torch.cuda.memory._record_memory_history()
    with virtual_device(A100):
        torch.zeros(MIB, device="cuda")
        assert torch.cuda.memory._snapshot()["device_traces"] == [[]]


def test_questions_about_a_device_may_name_it_by_keyword(gpu: Ledger) -> None:
    assert torch.cuda.current_stream(device="cuda:0") == torch.cuda.default_stream(device=0)
    assert torch.cuda.get_stream_from_external(data_ptr=0, device=0) == torch.cuda.current_stream()
    torch.cuda.synchronize(device=torch.device("cuda"))
    assert torch.cuda.device_memory_used(device=0) == torch.cuda.device_memory_used()


def test_ranges_and_profilers_decorate_and_surround(gpu: Ledger) -> None:
    @torch.cuda.nvtx.range("work")
    def work() -> int:
        return 3

    assert work() == 3
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("open"))
    with torch.cuda.nvtx.range("again"), torch.cuda.profiler.profile(), torch.autograd.profiler.emit_nvtx():
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    assert torch.cuda.cudart().cudaMemGetInfo(0) == torch.cuda.mem_get_info()


def test_what_programs_ask_of_a_device_is_there(gpu: Ledger) -> None:
    properties = torch.cuda.get_device_properties(0)
    assert properties.shared_memory_per_multiprocessor == 164 << 10
    assert properties.shared_memory_per_block_optin == 163 << 10
    # "as given by `nvidia-smi`" in its docstring: the CUDA context is in it
    assert torch.cuda.device_memory_used() == with_context(A100).context_nbytes + torch.cuda.memory_reserved()
    assert torch.cuda.memory_reserved() == 0
    assert torch._C._cuda_getDevice() == 0
    assert torch.device("cuda", torch.cuda.current_device()).index == 0
    with torch.cuda.device(0) as _, torch.cuda.device_of(torch.zeros(1, device="cuda")):
        assert torch.zeros(2, device=torch.cuda.current_device()).is_cuda
    assert issubclass(torch.cuda.device, object)


def test_a_default_type_of_the_gpu_makes_tensors_there(gpu: Ledger) -> None:
    torch.set_default_tensor_type("torch.cuda.HalfTensor")
    try:
        assert torch.zeros(2).is_cuda
        assert torch.zeros(2).dtype is torch.float16
        assert torch.nn.Parameter(torch.Tensor(2, 3)).is_cuda
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert not torch.zeros(2).is_cuda
    assert not torch.nn.Parameter(torch.Tensor(2, 3)).is_cuda


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (torch.mm, [(64, 32), (32, 16)]),
        (torch.bmm, [(3, 64, 32), (3, 32, 16)]),
        (torch.addmm, [(64, 16), (64, 32), (32, 16)]),
        (torch.baddbmm, [(3, 64, 16), (3, 64, 32), (3, 32, 16)]),
    ],
)
def test_products_give_the_dtype_asked_for(gpu: Ledger, op: Any, shapes: list[tuple[int, ...]]) -> None:
    operands = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes]
    if len(operands) == 3:
        operands[0] = operands[0].float()
    product = op(*operands, out_dtype=torch.float32)
    assert product.dtype is torch.float32
    assert product.shape == (*shapes[-2][:-1], shapes[-1][-1])
    assert product.untyped_storage().nbytes() == product.nbytes


def test_a_scaler_steps_several_optimizers(gpu: Ledger) -> None:
    models = [nn.Linear(8, 8).cuda() for _ in range(2)]
    optimizers = [torch.optim.SGD(models[0].parameters(), 0.1), torch.optim.AdamW(models[1].parameters())]
    scaler = torch.cuda.amp.GradScaler()
    for _ in range(2):
        with torch.cuda.amp.autocast():
            loss = models[1](models[0](torch.rand(4, 8, device="cuda"))).sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizers[0])
        nn.utils.clip_grad_norm_(models[0].parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    assert len(optimizers[1].state) == 2


def test_the_version_of_cuda_is_known_where_pytorch_is_a_build_without_it() -> None:
    built = torch.version.cuda
    with virtual_device(device_named("a100-80gb")):
        assert torch.version.cuda
        assert int(torch.version.cuda.partition(".")[0]) >= 12  # what packages read of it is a number
    assert torch.version.cuda == built
