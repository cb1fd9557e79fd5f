"""`memlint.watch`: what it writes, and that the program stays as it is."""

import json
import logging
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import memlint
from memlint.accelerator import private
from memlint.base.errors import MemlintError
from memlint.cuda.session import virtual_device
from memlint.explain.watch.expectation import Expectation
from memlint.memory.devices import device_named
from tests.explain.watched.out_of_memory import MESSAGE, fail

A100 = device_named("a100-80gb")
WATCHED = Path(__file__).parent / "watched"
CAPTURE = Path(__file__).parents[2] / "fixtures/captures/mlp.memlint"
MIB = 2**20


@pytest.fixture
def gpu():
    with virtual_device(A100) as ledger:
        yield ledger


def test_a_failure_is_explained_and_the_exception_goes_on_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-u", "train.py", "--lr", "3e-4"])
    watch = memlint.watch(tmp_path / "oom")
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 226") as caught, watch:
        fail()
    assert caught.value.__cause__ is None
    assert caught.value.args == (MESSAGE,)
    (file,) = watch.files
    text = file.read_text("utf-8")
    assert "too much was alive: 14.8 GiB of 15.7 GiB" in text
    assert "memlint run train.py --lr 3e-4" in text
    assert "out_of_memory.py" in text


def test_the_command_of_a_rank_says_which_of_how_many_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "pkg.train", "--lr", "1"])
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("RANK", "3")
    watch = memlint.watch(tmp_path)
    with pytest.raises(torch.OutOfMemoryError), watch:
        fail()
    assert watch.files[0].name.endswith("-rank3.txt")
    assert "memlint run --ranks 8 --rank 3 -m pkg.train --lr 1" in watch.files[0].read_text("utf-8")


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3), RuntimeError("shapes differ")])
def test_an_exception_about_something_else_leaves_no_file(tmp_path, error):
    watch = memlint.watch(tmp_path / "oom")
    with pytest.raises(type(error)), watch:
        raise error
    assert not (tmp_path / "oom").exists()


def test_without_a_gpu_it_says_so_and_records_nothing(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "memlint.watch"), memlint.watch(tmp_path) as watch:
        watch.step()
    assert "no CUDA or HIP device" in caplog.text
    assert list(tmp_path.iterdir()) == []
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" not in os.environ


def test_on_a_gpu_the_snapshot_has_the_allocations_and_their_lines(gpu, tmp_path):
    watch = memlint.watch(tmp_path)
    kept = []

    def step():
        with watch:
            kept.append(torch.zeros(2 * MIB, device="cuda"))
            fail()

    with pytest.raises(torch.OutOfMemoryError):
        step()
    snapshot, explanation = watch.files
    (trace,) = pickle.loads(snapshot.read_bytes())["device_traces"]
    (allocation,) = [event for event in trace if event["action"] == "alloc"]
    assert allocation["size"] == kept[0].nbytes
    assert allocation["frames"][0]["filename"] == __file__
    assert f"memlint explain {snapshot}" in explanation.read_text("utf-8")
    assert not private.is_history_recorded()


def test_recording_is_bounded_by_steps_and_by_entries(gpu, tmp_path):
    with memlint.watch(tmp_path, steps=2, max_entries=3) as watch:
        kept = [torch.zeros(MIB, device="cuda") for _ in range(8)]
        assert private.is_history_recorded()
        assert len(private.snapshot()["device_traces"][0]) == 3
        watch.step()
        assert private.is_history_recorded()
        watch.step()
        assert not private.is_history_recorded()
        watch.step()
    assert len(kept) == 8


def test_a_history_that_the_program_records_goes_on(gpu, tmp_path):
    private.record_history("all", max_entries=1000)
    kept = torch.zeros(MIB, device="cuda")
    with memlint.watch(tmp_path, steps=1, max_entries=1) as watch:
        watch.step()
    more = torch.zeros(MIB, device="cuda")
    assert private.is_history_recorded()
    allocations = [event["size"] for event in private.snapshot()["device_traces"][0] if event["action"] == "alloc"]
    assert allocations == [kept.nbytes, more.nbytes]
    private.record_history(None)


def test_what_goes_wrong_in_the_watch_is_logged_and_the_error_of_the_program_goes_on(tmp_path, caplog):
    (tmp_path / "taken").write_text("a file, where the folder should be")
    with pytest.raises(torch.OutOfMemoryError), memlint.watch(tmp_path / "taken" / "oom"):
        fail()
    assert "the failure could not be explained" in caplog.text


def test_the_first_step_that_leaves_the_interval_is_logged_once(gpu, tmp_path, caplog):
    watch = memlint.watch(tmp_path)
    watch._expectation = Expectation({"allocated": (0, 8 * MIB), "reserved": (64 * MIB, 128 * MIB)})
    held = []
    with watch:
        for _ in range(4):
            held.append(torch.zeros(MIB, device="cuda"))
            watch.step()
    lines = [record.message for record in caplog.records]
    assert lines == [
        "step 2: the peak of reserved memory is 20.0 MiB, and the estimate says at least 64.0 MiB",
        "step 3: the peak of allocated memory is 12.0 MiB, and the estimate says at most 8.00 MiB",
    ]


def test_an_estimate_is_a_capture_or_its_file_or_a_report(tmp_path):
    capture = memlint.open(CAPTURE)
    of_file = Expectation.of(str(CAPTURE)).bounds
    assert Expectation.of(capture).bounds == of_file
    low, high = of_file["allocated"]
    assert 0 < low <= high
    from click.testing import CliRunner

    from memlint.cli import main

    report = tmp_path / "report.json"
    result = CliRunner().invoke(main, ["report", str(CAPTURE), "--format", "json", "-o", str(report)])
    assert result.exit_code == 0, result.output
    name = json.loads(report.read_text("utf-8"))["workloads"][0]["name"]
    assert Expectation.of(report).bounds == of_file == Expectation.of(f"{report}::{name}").bounds
    for wrong in (f"{report}::other", str(tmp_path / "nowhere.json"), str(tmp_path / "nowhere.memlint")):
        with pytest.raises(MemlintError):
            memlint.watch(estimate=wrong)


def test_a_hook_is_taken_back_and_a_later_one_stays(monkeypatch):
    before = sys.excepthook
    watch = memlint.watch()
    watch.hook()
    watch.hook()
    watch.unhook()
    assert sys.excepthook is before
    watch.hook()

    def later(*error):
        pass

    monkeypatch.setattr(sys, "excepthook", later)
    watch.unhook()
    assert sys.excepthook is later


def test_importing_memlint_and_making_a_watch_loads_no_torch():
    code = "import sys, memlint; memlint.watch(); print('torch' in sys.modules, 'pydantic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.split()[0] == "False"


def run(script, folder, *arguments):
    folder.mkdir()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, str(WATCHED / script), *arguments]
    return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow  # they import transformers, lightning and accelerate, of which the last two are no packages of dev
@pytest.mark.parametrize(
    ("script", "package"),
    [("trainer.py", "accelerate"), ("lightning_fit.py", "lightning"), ("accelerated.py", "accelerate")],
)
def test_a_watched_training_ends_as_it_does_without_and_leaves_the_explanation(tmp_path, script, package):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    alone, watched = run(script, tmp_path / "alone"), run(script, tmp_path / "watched", "--watch")
    assert (alone.returncode, watched.returncode) == (1, 1), watched.stderr
    assert alone.stderr.splitlines()[-1] == watched.stderr.splitlines()[-1] == f"torch.OutOfMemoryError: {MESSAGE}"
    assert alone.stdout == watched.stdout
    assert "out of memory in step 4" in watched.stderr
    (file,) = (tmp_path / "watched" / "memlint-oom").iterdir()
    text = file.read_text("utf-8")
    assert f"{script} --watch" in text
    assert "too much was alive: 14.8 GiB of 15.7 GiB" in text
    assert not (tmp_path / "alone" / "memlint-oom").exists()
