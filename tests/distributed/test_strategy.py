"""A model of one GPU spread over ranks by a name, and one that spreads itself where its ranks are declared."""

from pathlib import Path

import pytest

from memlint.base.errors import UsageError
from memlint.commands.sweep.sweep import spread_of
from memlint.commands.sweep.tables_text import render_fits
from memlint.config import Settings
from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.records import Category, Trace
from memlint.memory.timeline import Timeline
from memlint.report.model import SweepRow
from memlint.report.tables import Fit, FitOrder, Fits, Way
from memlint.report.text_style import TextStyle
from memlint.scaling.sizes import Sizes
from memlint.session.fits import fit
from memlint.session.target import Target
from memlint.targets.strategy import Strategy
from memlint.targets.workload import Workload
from memlint.tracing.workload_errors import trace_of_workload
from memlint.worker.protocol import Request
from memlint.workloads.construction.construct import complete, completed_program
from memlint.workloads.construction.worst_rank import of_worst_rank

TEXT = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(256, 1024)
        self.down = nn.Linear(1024, 256)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(256, 1024, bias=False)
        self.up_proj = nn.Linear(256, 1024, bias=False)
        self.down_proj = nn.Linear(1024, 256, bias=False)

    def forward(self, x):
        return x + self.down_proj(torch.relu(self.gate_proj(x)) * self.up_proj(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(256, 64)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def plain(batch):
    return Net(), torch.randn(batch, 256)


def gated(batch):
    return nn.Sequential(*(Gated() for _ in range(4))), torch.randn(batch, 256)


def staged(batch):
    torch.distributed.init_process_group()
    rank = torch.distributed.get_rank()
    return nn.Sequential(*(Gated() for _ in range(6 if rank == 7 else 2))), torch.randn(batch, 256)


def wraps_itself(batch):
    net, mesh = Net(), init_device_mesh("cuda", (8,))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh), torch.randn(batch, 256)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(TEXT)
    return path


def declared(file: Path, name: str, **fields: object) -> Workload:
    workload = Workload(name, f"{file}::{name}", str(file), name, batch=16, gpu="h100-80gb", **fields)  # type: ignore[arg-type]
    return complete(workload, file.parent)[0]


def traced(file: Path, strategy: str, world_size: int = 8, name: str = "plain") -> Trace:
    workload = declared(file, name, strategy=strategy, world_size=world_size)
    return trace_of_workload(completed_program(workload, file.parent), workload.device)


def held(trace: Trace, category: Category) -> int:
    return sum(b.nbytes for b in trace.buffers if b.category is category and b.died is None)


def requested(trace: Trace) -> int:
    return estimate(Timeline.of(trace), device_named("h100-80gb"), trace.nodes).requested.estimate


def test_each_strategy_holds_what_its_ranks_hold(file: Path) -> None:
    alone = held(traced(file, "", 1), Category.PARAMETER)
    assert held(traced(file, "ddp"), Category.PARAMETER) == alone
    assert held(traced(file, "fsdp"), Category.PARAMETER) == pytest.approx(alone / 8, rel=0.02)
    assert held(traced(file, "hsdp:2x4"), Category.PARAMETER) == pytest.approx(alone / 4, rel=0.02)
    assert held(traced(file, "ddp"), Category.COMMUNICATION) == alone
    assert requested(traced(file, "fsdp-no-reshard")) > requested(traced(file, "fsdp"))


def test_layers_are_cut_by_the_names_that_llama_has(file: Path) -> None:
    alone = held(traced(file, "", 1, "gated"), Category.PARAMETER)
    cut = traced(file, "tp:8", name="gated")
    assert held(cut, Category.PARAMETER) == alone // 8
    assert {(each.kind, each.size) for each in cut.collectives} >= {("all_reduce", 8)}
    both = traced(file, "tp:4+fsdp", name="gated")
    assert held(both, Category.PARAMETER) == alone // 8
    assert {each.size for each in both.collectives} == {2, 4}
    with pytest.raises(UsageError, match="Net has no plan"):
        traced(file, "tp:8")


def test_the_worst_rank_is_the_one_that_takes_most(file: Path) -> None:
    workload = Workload("staged", f"{file}::staged", str(file), "staged", gpu="h100-80gb", world_size=8, rank="worst")
    worst, (assumption,) = of_worst_rank(workload, file.parent)
    assert worst.rank == 7
    assert "rank 0 " in assumption.text
    assert "rank 4 " in assumption.text


def test_blocks_are_found_and_sharded_as_one_writes_it(file: Path) -> None:
    by_name, by_hand = traced(file, "fsdp"), traced(file, "", name="wraps_itself")
    assert by_hand.world is not None
    assert dict(by_hand.modules)["blocks.0"] == "Block"
    assert by_hand.world.size == 8
    assert requested(by_name) == requested(by_hand)
    assert [each.kind for each in by_name.collectives] == [each.kind for each in by_hand.collectives]


def test_a_batch_of_several_streams_follows_from_smaller_ones(file: Path) -> None:
    workload = declared(file, "plain", strategy="fsdp", world_size=8)
    sizes = Sizes(workload, lambda each: completed_program(each, file.parent), workload.device)
    assert sizes.learn([64]) is None
    computed = sizes.at((300,))
    assert computed.evidence == "computed"
    other = Sizes(workload, sizes.program, workload.device)
    assert computed.peaks == other.at((300,)).peaks


def test_what_is_known_on_one_number_of_ranks_serves_for_another(file: Path) -> None:
    def sizes_of(strategy: str, world_size: int) -> Sizes:
        workload = declared(file, "plain", strategy=strategy, world_size=world_size)
        return Sizes(workload, lambda each: completed_program(each, file.parent), workload.device)

    known, more = sizes_of("fsdp", 8), sizes_of("fsdp", 64)
    assert known.learn([64]) is None
    assert more.follow(known, [64])
    assert len(more.lives) == 2
    computed = more.at((300,))
    assert computed.evidence == "computed"
    assert computed.peaks == sizes_of("fsdp", 64).at((300,)).peaks
    assert computed.peaks != known.at((300,)).peaks
    assert not sizes_of("ddp", 8).follow(known, [64])


@pytest.mark.slow
def test_ranks_that_are_fitted_together_are_as_each_alone(file: Path) -> None:
    def fitted(*world_sizes: int) -> list[object]:
        settings = Settings.model_validate({"select": ["MEM010"], "gpu": "t4", "batch": 8})
        request = Request(
            target=f"{file.name}::plain",
            path=str(file),
            qualname="plain",
            root=str(file.parent),
            settings=settings,
        )
        return list(fit(Target(request), FitOrder(strategy="fsdp", world_sizes=world_sizes)).fits)

    together = fitted(2, 8, 64)
    assert together == [*fitted(2), *fitted(8), *fitted(64)]


@pytest.mark.parametrize("name", ["zero", "hsdp", "hsdp:0x8", "hsdp:2x8", "tp:4", "tp:3+fsdp", "pp"])
def test_other_strategies_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        Strategy.parse(name, 8)
    assert refused.value.hint


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy": "fsdp"},
        {"world_size": 0},
        {"world_size": True},
        {"rank": 8, "world_size": 8},
        {"rank": -1},
        {"rank": "last"},
    ],
)
def test_ranks_that_make_no_sense_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Workload("net", "model.py::Net", **fields)  # type: ignore[arg-type]


def test_strategies_and_ranks_are_tried_together() -> None:
    assert spread_of(None, None) == ((None, None),)
    assert spread_of(None, "1:4") == (("", 1), ("ddp", 2), ("fsdp", 2), ("ddp", 4), ("fsdp", 4))
    assert spread_of("hsdp:2x4", "8") == (("hsdp:2x4", 8),)
    assert spread_of("fsdp,tp:4+fsdp", "1:4") == (("", 1), ("fsdp", 2), ("fsdp", 4), ("tp:4+fsdp", 4))
    with pytest.raises(UsageError):
        spread_of("fsdp", None)
    with pytest.raises(UsageError):
        spread_of("tp:8", "1:4")


def test_the_overview_names_the_fewest_gpus() -> None:
    def fit(strategy: str, world_size: int, *batches: int) -> Fit:
        ways = [
            Way(changes=("checkpoint",) * bool(number), effect="exact", largest=SweepRow(batch=batch))
            for number, batch in enumerate(batches)
        ]
        return Fit(
            name="gpt",
            target="gpt.py::GPT",
            mode="train",
            optimizer="adamw",
            dtype="float32",
            batch=8,
            gpu="a100-40gb",
            gpu_title="NVIDIA A100 40 GB",
            gpu_nbytes=39 << 30,
            strategy=strategy,
            world_size=world_size,
            ways=tuple(ways),
        )

    fits = (fit("", 1, 1, 2), fit("fsdp", 8, 4, 8), fit("fsdp", 16, 9, 12))
    text = render_fits(Fits(tool="memlint", fits=fits), "text", TextStyle())
    assert "gpt: batch 8 of each rank fits 8 x NVIDIA A100 40 GB (fsdp on 8 ranks; checkpoint)." in text
    assert "fsdp on 16 ranks" in text
    alone = render_fits(Fits(tool="memlint", fits=fits[:1]), "text", TextStyle())
    assert "Ranks" not in alone
