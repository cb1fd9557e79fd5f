"""A recording beside the simulated step of its program: the programs behind the histories are known."""

from pathlib import Path

import pytest

from memlint.capture.recording import read_recordings
from memlint.commands.explain.comparing import comparison_of
from memlint.explain.recordings.evidence import Evidence
from memlint.tracing.recorder import trace_program
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
