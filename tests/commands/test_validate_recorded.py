"""Recorded runs as Measurements: the figures are the recording's, and nothing of anybody's code is kept."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlint.base.errors import UsageError
from memlint.capture.recording import read_recordings
from memlint.cli import main
from memlint.commands.validate.recorded import keep, machine_of, measurement_of, read_run
from memlint.explain.recordings.evidence import Evidence
from memlint.validate.measurement import Measurement, Subject

FIXTURES = Path(__file__).parents[2] / "fixtures"
SUBJECT = Subject(name="net", table={"target": "net.py::Net", "batch": 8})


def kept(file, folder):
    evidence = read_run(file)
    measurement = keep(evidence, measurement_of(evidence, SUBJECT, machine_of("h100-80gb", "535.54", "2.6")), folder)
    return evidence, measurement


def test_a_history_gives_its_own_peaks(tmp_path):
    file = FIXTURES / "histories" / "lm-2.7b-train-ctx128-fp32-h100.json.gz"
    recorded = json.loads(gzip.decompress(file.read_bytes()))["peaks"]
    _, measurement = kept(file, tmp_path)
    assert measurement.peaks.model_dump(exclude_none=True) == recorded
    assert (measurement.machine.gpu, measurement.machine.driver, measurement.machine.torch) == (
        "h100-80gb",
        "535.54",
        "2.6",
    )
    stored = Measurement.read(tmp_path / "h100-80gb" / "2.6" / "net.json")
    assert stored == measurement
    assert stored.subject == SUBJECT


def test_a_snapshot_is_kept_with_its_history_and_without_any_path(tmp_path):
    source = FIXTURES / "snapshots" / "anomaly-mode-steps.pickle.gz"
    evidence, measurement = kept(source, tmp_path)
    folder = tmp_path / "h100-80gb" / "2.6"
    history = folder / measurement.history
    again = Evidence.of(read_recordings(history)[0])
    assert again.course.nbytes_at_peak == evidence.course.nbytes_at_peak == measurement.peaks.requested
    assert again.recording.most_reserved() == evidence.recording.most_reserved() == measurement.peaks.reserved
    assert len(again.alive) == len(evidence.alive)
    assert measurement.num_steps == 10
    text = gzip.decompress(history.read_bytes()).decode() + (folder / "net.json").read_text()
    assert not [part for part in ("/oscar", "jsolt", "/home", "latent_cnn", "counterfactuals") if part in text]


def test_the_gpu_must_be_named():
    with pytest.raises(UsageError, match="which GPU"):
        machine_of(None, "", None)


def test_a_recording_of_several_gpus_is_refused(tmp_path):
    with pytest.raises(UsageError, match="of 0 GPUs"):
        read_run(FIXTURES / "snapshots" / "without-history.pickle.gz")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--of", "net.py"], "one recording"),
        (["a.pickle", "--of", "net.py"], "one recording"),
        (["a.pickle", "--history", "--of", "net.py", "--cap"], "runs nothing"),
        (["model.py", "--gpu", "h100"], "the device says"),
        (["a.pickle", "--history", "--of", "net.py"], "which GPU"),
        (["a.pickle", "--history", "--of", "net.py", "--gpu", "h100"], "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_named(arguments, message):
    result = CliRunner().invoke(main, ["validate", *arguments])
    assert result.exit_code == 2
    assert message in result.output
