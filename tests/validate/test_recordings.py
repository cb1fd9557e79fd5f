"""Today's estimates against the committed measurements: no worse than the committed scoreboard, and as the page says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from memlint.commands.validate import validate as command
from memlint.commands.validate.validate import Options, Validation
from memlint.report.text_style import TextStyle
from memlint.validate.scoreboard import Scoreboard, scoreboard, worse
from memlint.validate.store import read_measurements
from memlint.validate.suite import read_suite
from tests.forks.pythons import copies_used

if TYPE_CHECKING:
    from tests.forks.pythons import Template

ROOT = Path(__file__).parents[2]
MEASUREMENTS = ROOT / "fixtures" / "measurements"
BASELINE = MEASUREMENTS / "scoreboard.json"
PAGE = ROOT / "docs" / "accuracy.md"


def test_every_measurement_is_of_the_suite_as_it_is() -> None:
    subjects = {entry.subject.name: entry.subject for entry in read_suite(ROOT / "fixtures" / "suite.toml", ROOT)}
    for measurement in [*read_measurements(MEASUREMENTS), *read_measurements(ROOT / "fixtures" / "compiled")]:
        assert measurement.subject == subjects[measurement.subject.name]


def test_every_small_workload_is_measured_on_the_host() -> None:
    small = {e.subject.name for e in read_suite(ROOT / "fixtures" / "suite.toml", ROOT) if e.cpu}
    assert {m.subject.name for m in read_measurements(MEASUREMENTS / "cpu")} == small


@pytest.fixture(scope="module")
def result(template_of_pythons: Template | None) -> Validation:
    recorded = {score.torch.rpartition(".")[0] for score in baseline().scores if score.gpu == "cpu"}
    mine = torch.__version__.partition("+")[0].rpartition(".")[0]
    if mine not in recorded:
        pytest.skip(f"recorded with torch {', '.join(sorted(recorded))}, whose kernels are not those of {mine}")
    with copies_used(template_of_pythons):
        return command.validate((), Options(against=MEASUREMENTS / "cpu"))


def baseline(gpu: str = "") -> Scoreboard:
    """The committed scoreboard, or the part of one machine."""
    whole = Scoreboard.model_validate_json(BASELINE.read_bytes())
    return whole.model_copy(update={"scores": [score for score in whole.scores if gpu in ("", score.gpu)]})


def test_the_scoreboard_is_no_worse_than_the_committed_one(result: Validation) -> None:
    assert worse(scoreboard(result.comparisons), baseline("cpu")) == [], (
        f"Mend the model; if the change is right, write {BASELINE.name} anew as fixtures/measurements/README.md says."
    )


def test_every_recorded_workload_has_an_estimate(result: Validation) -> None:
    assert [c.measurement.subject.name for c in result.comparisons if c.prediction.error is not None] == []


_EXACT = """
    gpt2-b8-bf16amp llama-b4-bf16amp-gqa bert-b16-masked-fp32 vit-b32-bf16amp moe-b4-bf16amp t5-b8-bf16
    convnext-b32-channels-last-bf16amp gpt2-b16-checkpoint-bf16amp recommender-b4096-fp32 mlp-b4096-fp32
    generate-llama-dynamic-bf16
"""


def test_steps_on_an_h200_are_predicted_to_32_kib(template_of_pythons: Template | None) -> None:
    names = tuple(_EXACT.split())
    with copies_used(template_of_pythons):
        compared = command.validate((), Options(against=MEASUREMENTS / "h200", only=names)).comparisons
    assert {each.measurement.subject.name for each in compared} == {*names}
    differences = {
        each.measurement.subject.name: each.prediction.peaks["requested"].estimate - each.measurement.peaks.requested
        for each in compared
    }
    assert {name: n for name, n in differences.items() if abs(n) > 32 << 10} == {}


@pytest.mark.slow
def test_the_whole_scoreboard_is_no_worse_and_the_page_is_what_the_command_prints(
    template_of_pythons: Template | None,
) -> None:
    with copies_used(template_of_pythons):
        whole = command.validate((), Options(against=MEASUREMENTS))
    assert worse(scoreboard(whole.comparisons), baseline()) == []
    assert whole.rendered("markdown", TextStyle()) == PAGE.read_text(encoding="utf-8"), (
        f"Write {PAGE.name} anew as its first paragraph says."
    )
