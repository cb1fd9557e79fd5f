"""What a report says of ranks and streams: of an unmodified script for torchrun, in every format that people read."""

from pathlib import Path

import pytest

from memlint.commands.comment.body import render_body
from memlint.compare.changes import compare
from memlint.memory.devices import device_named
from memlint.memory.records import Collective
from memlint.memory.traffic import sent
from memlint.report.formats.markdown import render_markdown
from memlint.report.model import Report
from memlint.report.page.render import render_page
from memlint.report.terminal import render_text
from memlint.report.text_style import TextStyle
from tests.script.running import run_script

pytestmark = pytest.mark.usefixtures("copied_pythons")

SCRIPT = Path(__file__).parent / "train_fsdp2.py"
GIB = 2**30


@pytest.fixture(scope="module")
def report() -> Report:
    checked = run_script(SCRIPT, ranks=8, rank=3, gpu="h100-80gb")
    (workload,) = checked.report.workloads
    assert workload.error is None, checked.outputs
    return checked.report


def test_a_script_for_torchrun_says_its_rank_its_streams_and_what_it_exchanges(report: Report) -> None:
    (workload,) = report.workloads
    ranks, estimate = workload.ranks, workload.estimate
    assert ranks is not None
    assert estimate is not None
    assert (ranks.rank, ranks.world_size) == (3, 8)
    calls = {each.kind: each.calls for each in ranks.traffic}
    assert calls["all_gather"] == 16  # each of eight blocks in forward and in backward
    assert calls["reduce_scatter"] == 8
    gathered = next(each for each in ranks.traffic if each.kind == "all_gather")
    assert gathered.sent == gathered.nbytes * 7 // 8
    assert estimate.streams[0].stream == 0
    assert sum(each.reserved for each in estimate.streams) == estimate.peak.reserved.estimate
    assert any("reduce_scatter" in each.collectives for each in estimate.streams[1:])
    context, nccl = ranks.outside
    assert (context.name, context.nbytes.estimate) == ("CUDA context", device_named("h100-80gb").context_nbytes)
    assert nccl.name == "NCCL among 8 ranks (broadcast, all_gather, reduce_scatter, all_reduce)"
    outside = context.nbytes.estimate + nccl.nbytes.estimate
    assert estimate.peak.device.estimate == estimate.peak.reserved.estimate + outside


@pytest.mark.slow
def test_a_script_of_ddp_says_the_same() -> None:
    checked = run_script(SCRIPT.with_name("train_ddp.py"), ranks=8, gpu="h100-80gb")
    (workload,) = checked.report.workloads
    assert workload.error is None, checked.outputs
    assert workload.ranks is not None
    calls = {each.kind: each.calls for each in workload.ranks.traffic}
    assert calls == {"all_reduce": 2, "broadcast": 2}
    for text in (
        render_text(checked.report, TextStyle()),
        render_page(checked.report),
        render_body(compare(None, checked.report)),
    ):
        assert "rank 0 of 8" in text
        assert "2 x all_reduce of 8 ranks within a machine" in text
        assert "NCCL among 8 ranks" in text


def test_every_format_for_people_shows_them(report: Report) -> None:
    comment = render_body(compare(None, report))
    texts = [render_text(report, TextStyle()), render_page(report), render_markdown(report), comment]
    for text in texts:
        assert "rank 3 of 8" in text
        assert "16 x all_gather of 8 ranks within a machine" in text
        assert "CUDA context" in text
        assert "NCCL among 8 ranks (broadcast, all_gather" in text
        assert "(reduce_scatter)" in text


def test_what_a_rank_holds_stands_under_no_heading_of_what_it_exchanges(report: Report) -> None:
    (workload,) = report.workloads
    assert workload.ranks is not None
    idle = workload.model_copy(update={"ranks": workload.ranks.model_copy(update={"traffic": []})})
    text = render_text(report.model_copy(update={"workloads": [idle]}), TextStyle())
    assert "NCCL among 8 ranks" in text
    assert "Exchanged in a step" in render_text(report, TextStyle())
    assert "Exchanged in a step" not in text


def test_one_process_and_several_are_told_apart(report: Report) -> None:
    (workload,) = report.workloads
    alone = report.model_copy(update={"workloads": [workload.model_copy(update={"ranks": None})]})
    (change,) = compare(alone, report).workloads
    assert "one process in base, rank 3 of 8 in head" in change.notes


@pytest.mark.parametrize(
    ("kind", "nbytes"),
    [
        ("all_gather", 700),
        ("reduce_scatter", 700),
        ("all_reduce", 1400),
        ("broadcast", 800),
        ("send", 800),
        ("recv", 0),
    ],
)
def test_what_a_rank_sends_in_a_ring(kind: str, nbytes: int) -> None:
    assert sent(Collective(0, kind, "0", 8, True, 800, 800, 0, "nccl", (7, 1), False)) == nbytes
