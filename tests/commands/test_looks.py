"""Capture once, look many times: what a second look needs, and what it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from memlint.base.broken_plugins import GROUP
from memlint.commands.check.check import check
from memlint.commands.check.targets import CheckOptions
from memlint.commands.report import gather
from memlint.memory.devices import device_named
from memlint.memory.estimate import Estimate, estimate
from memlint.memory.timeline import Timeline
from memlint.whatif import simulation
from memlint.worker import capture_store
from memlint.worker.dependencies import seal_of
from memlint.worker.protocol import Dependencies
from memlint.worker.session import Session
from tests.rules.records import Script

pytestmark = pytest.mark.usefixtures("copied_pythons")

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)], nn.Dropout())

    def forward(self, x):
        return self.layers(x)


def memlint_workload(batch=64):
    return Net(), {"x": torch.randn(batch, 256)}
"""


@pytest.fixture
def starts(tmp_path, monkeypatch) -> list[str]:
    """One entry for each child that is started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    started = []
    start = Session.start

    def counted(session, *arguments, **named):
        started.append(session.request.target)
        start(session, *arguments, **named)

    monkeypatch.setattr(Session, "start", counted)
    return started


BLOCKS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(256), nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def memlint_workload(batch=64):
    return Net(), {"x": torch.randn(batch, 512, 256)}
"""


def look(*targets: str, settings=None, **options):
    return check(targets or ("m.py",), settings or {}, CheckOptions(sweep=True, **options)).report


LOOKS = {
    "in detail": lambda: look(thorough=True),
    "a budget": lambda: look(settings={"budget": "1GiB"}),
    "other rules": lambda: look(settings={"select": ("MEM1",)}),
    "the allocator": lambda: look(alloc_conf="expandable_segments:True"),
    "a page": lambda: (
        gather(["m.py"], {}, CheckOptions(timeline=True, sweep=True), lambda _n: b"", lambda *_: None).report
    ),
    "the same": look,
}


def test_however_it_is_looked_at_it_is_traced_once(starts):
    first = look()
    assert starts == ["m.py"]
    assert first.workloads[0].sweep
    for name, second in LOOKS.items():
        report = second()
        assert report.workloads[0].estimate is not None, name
        assert starts == ["m.py"], name
    assert look().workloads == first.workloads


def what_ifs(report) -> list[str]:
    return [each.text for each in report.workloads[0].what_ifs]


def test_a_detailed_look_shows_alternatives_that_are_known_and_runs_nothing_for_others(starts, tmp_path):
    (tmp_path / "m.py").write_text(BLOCKS)
    plain = look()
    for second in LOOKS.values():
        second()
    assert starts == ["m.py"]
    assert what_ifs(look(thorough=True)) == what_ifs(plain) != []
    eager = {"ignore": ("MEM624",)}  # one alternative is enough, and to compile takes ten times as long as all else
    detailed = look(thorough=True, cache=False, settings=eager)
    assert any("every second one" in each for each in what_ifs(detailed))
    assert starts == ["m.py"] * 2
    (tmp_path / "m.py").write_text(BLOCKS + "\n")
    first = look(thorough=True, settings=eager)
    assert what_ifs(look(thorough=True, settings=eager)) == what_ifs(first) == what_ifs(detailed)
    assert starts == ["m.py"] * 3


@pytest.fixture
def folds(monkeypatch) -> list[object]:
    """One entry for each Timeline that is folded over a device."""
    folded = []

    def counted(timeline, *others):
        folded.append(timeline)
        return estimate(timeline, *others)

    monkeypatch.setattr(simulation, "estimate", counted)
    return folded


def test_what_was_folded_is_not_folded_again_and_says_the_same(starts, folds, tmp_path):
    (tmp_path / "m.py").write_text(BLOCKS)
    first = look()
    num_folds = len(folds)
    assert num_folds > 1, "the step, and what the rules have tried"
    assert look().workloads == first.workloads
    assert what_ifs(look(thorough=True)) == what_ifs(first)
    assert len(folds) == num_folds
    planned = look(plan=True, settings={"budget": "100MiB", "ignore": ("MEM624",)}).workloads[0].plan
    assert len(folds) > num_folds
    anew = look(plan=True, cache=False, settings={"budget": "100MiB", "ignore": ("MEM624",)}).workloads[0].plan
    assert planned == anew
    num_folds = len(folds)
    assert look(alloc_conf="expandable_segments:True").workloads[0].estimate
    assert len(folds) > num_folds, "another allocator"


def test_of_what_is_kept_the_buffers_at_the_peak_are_those_of_the_timeline(starts, folds):
    timeline = Timeline.of(trace_of_blocks())
    whole = estimate(timeline, device_named("a100-80gb"), trace_of_blocks().nodes)
    kept = Estimate.decoded(json.loads(json.dumps(whole.encoded())), lambda: timeline)
    assert tuple(kept.at_peak) == whole.at_peak != ()
    assert replace(kept, at_peak=whole.at_peak) == whole


def trace_of_blocks():
    script = Script()
    script.step()
    script.kernel("aten.mm.default")
    script.make(256)
    script.make(64)
    return script.trace()


def test_a_file_that_was_touched_is_the_same_and_one_of_another_content_with_its_old_times_is_not(starts, tmp_path):
    file = tmp_path / "m.py"
    status = file.stat()
    look()
    file.touch()
    look()
    assert starts == ["m.py"]
    file.write_text(MODEL.replace("256", "512"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    look()
    assert starts == ["m.py"] * 2


def test_a_file_with_its_seal_is_not_read(tmp_path):
    file = tmp_path / "part.py"
    file.write_text("x = 1\n")
    kept = Dependencies(files={str(file): "unread"}, packages={}, variables={}, seals={str(file): seal_of(str(file))})
    assert capture_store._holds(kept)
    file.write_text("x = 10\n")
    assert not capture_store._holds(kept)
    file.unlink()
    assert not capture_store._holds(kept)


def test_a_change_of_the_code_is_traced_anew(starts, tmp_path):
    before = look()
    (tmp_path / "m.py").write_text(MODEL.replace("256", "512"))
    after = look()
    assert starts == ["m.py"] * 2
    assert after.workloads[0].estimate.peak.requested.low > before.workloads[0].estimate.peak.requested.low


def test_other_settings_of_the_program_are_traced_anew(starts):
    look()
    look(settings={"batch": 2})
    look(settings={"gpu": "h100"})
    assert starts == ["m.py"] * 3


def test_a_plugin_that_was_installed_meanwhile_counts(starts, monkeypatch):
    look()
    new = [EntryPoint("mamba_ssm", "ours.mamba:LIBRARY", GROUP)]
    monkeypatch.setattr(capture_store, "entry_points", lambda group: [*entry_points(group=group), *new])
    look()
    look()
    assert starts == ["m.py"] * 2


def test_without_the_cache_nothing_is_kept(starts, tmp_path):
    look(cache=False)
    look(cache=False)
    assert starts == ["m.py"] * 2
    assert not (tmp_path / ".memlint_cache" / "captures").exists()


def test_the_allocator_of_a_look_is_that_of_a_program_that_declares_it(starts):
    looked = look(alloc_conf="roundup_power2_divisions:4").workloads[0]
    file = Path("declared.py")
    file.write_text(
        MODEL.replace(
            "def memlint_workload",
            "import memlint\n\n\n@memlint.workload(allocator='roundup_power2_divisions:4')\ndef memlint_workload",
        )
    )
    declared = look("declared.py").workloads[0]
    assert looked.allocator == declared.allocator == "roundup_power2_divisions:4"
    assert looked.estimate.peak == declared.estimate.peak
    plain = look().workloads[0]
    assert plain.estimate.peak.allocated != looked.estimate.peak.allocated


@pytest.mark.parametrize(
    "words", [["check", "m.py", "-v"], ["report", "m.py", "-o", "page.html"], ["check", "step.memlint"]]
)
def test_a_further_look_imports_no_torch(starts, words):
    look()
    subprocess.run([sys.executable, "-m", "memlint", "capture", "m.py", "-o", "step.memlint"], check=True)
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "memlint", *words], check=False, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "memlint.commands.check.check" in imported
    assert not {"torch", "memlint.session.target", "memlint.tracing.recorder"} & imported
    assert "numpy" not in imported or words != ["check", "m.py", "-v"], "the estimates are kept"


def test_what_a_capture_has_decided_cannot_be_asked_for_otherwise(starts):
    from memlint.base.errors import UsageError

    subprocess.run([sys.executable, "-m", "memlint", "capture", "m.py", "-o", "step.memlint"], check=True)
    with pytest.raises(UsageError, match="--batch cannot change"):
        look("step.memlint", settings={"batch": 4})
    from_file, from_code = look("step.memlint").workloads[0], look().workloads[0]
    assert from_file.estimate == from_code.estimate
    assert from_file.assumptions == from_code.assumptions
