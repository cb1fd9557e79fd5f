"""A recording beside the simulated step of its program: the programs behind the histories are known."""

import pickle
from pathlib import Path

import pytest

from memlint.capture.recording import read_recordings
from memlint.commands.explain.recordings import RecordingOptions, comparison_of, explain_recordings
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.text import render_markdown, render_text
from memlint.memory.devices import device_named
from memlint.report.text_style import TextStyle
from memlint.tracing.recorder import trace_program
from tests.explain.recorded_program import MIB, RecordedProgram
from tests.oracles.recordings import DIRECTORY, RECORDINGS, environment


def compared(name, history):
    recording = RECORDINGS[name]
    with environment(recording):
        trace = trace_program(recording.program(), recording.device, num_steps=recording.num_steps).trace
    (recorded,) = read_recordings(Path(DIRECTORY) / f"{history}.json.gz")
    return comparison_of(Evidence.of(recorded), trace, name)


@pytest.mark.parametrize("name", ["mlp-no-checkpoint", "mlp-checkpoint-a", "attention-forward-backward", "nca-own"])
def test_the_program_of_a_recording_has_its_every_allocation(name):
    comparison = compared(name, name)
    assert comparison.recorded == comparison.simulated == comparison.paired
    assert comparison.num_pairs > 0
    assert (comparison.only_recorded, comparison.only_simulated) == ([], [])


def test_another_program_shows_what_each_has_alone():
    comparison = compared("mlp-no-checkpoint", "mlp-checkpoint-a")
    alone = sum(each.nbytes for each in comparison.only_recorded)
    assert alone == comparison.recorded - comparison.paired > 0
    assert sum(each.nbytes for each in comparison.only_simulated) == comparison.simulated - comparison.paired


@pytest.mark.usefixtures("copied_pythons")
def test_a_failure_comes_with_changes_that_were_simulated_on_the_program(tmp_path):
    """The step needs more than there was; with the changes it keeps below the memory that PyTorch could have."""
    program = RecordedProgram()
    program.alloc(60 * MIB, 1)
    program.alloc(40 * MIB, 2)
    program.fail(900 * MIB, 3, free=740 * MIB)
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(program.snapshot()))
    target = Path(__file__).parents[2] / "fixtures" / "models" / "mlp.py"
    document = explain_recordings([file], RecordingOptions(against=str(target)))
    (explanation,) = document.explanations
    plan = explanation.against.plan
    room = explanation.failure.reserved + explanation.failure.free
    assert plan.limit == room + device_named("a100-80gb").context_nbytes
    assert plan.met
    assert plan.changes[-1].peak.device.high <= plan.limit
    assert all(change.peak_change < 0 for change in plan.changes)
    text = render_text(document, TextStyle())
    assert "changes that bring the simulated step below" in text
    assert plan.changes[0].text in text
    markdown = render_markdown(document)
    assert f"### Beside {target}" in markdown.replace("\\", "")
    assert f"1. {plan.changes[0].text}" in markdown.replace("\\", "")
