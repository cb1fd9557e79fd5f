"""Explanations of recordings: figures that the GPU recorded, and verdicts that follow from them."""

import gzip
import json
import pickle
import zipfile
from itertools import accumulate
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlint.base.errors import TargetError, UsageError
from memlint.capture.recording import read_recordings
from memlint.cli import main
from memlint.commands.explain.page import report_of_recordings
from memlint.commands.explain.recordings import RecordingOptions, explain_recordings
from memlint.explain.recordings.evidence import Evidence
from memlint.explain.recordings.explanation import explain
from memlint.explain.recordings.replay import Program
from memlint.memory.allocator.snapshot import frame
from memlint.memory.devices import device_named
from tests.explain.recorded_program import MIB, RecordedProgram

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
HISTORIES = {file.name.removesuffix(".json.gz"): file for file in sorted((FIXTURES / "histories").glob("*.json.gz"))}
SNAPSHOTS = {file.name.removesuffix(".pickle.gz"): file for file in sorted((FIXTURES / "snapshots").glob("*.gz"))}
WITHOUT_SEGMENTS = "resnet18-train-b8-fp32"
OOM = SNAPSHOTS["oom-expandable"]


def explained(file, **options):
    (explanation,) = explain_recordings([file], RecordingOptions(**options)).explanations
    return explanation


def of_program(program, tmp_path, **options):
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(program.snapshot()))
    return explained(file, **options)


@pytest.mark.parametrize("name", HISTORIES)
def test_a_history_has_the_peaks_of_the_gpu(name):
    recorded = json.loads(gzip.decompress(HISTORIES[name].read_bytes()))["peaks"]
    explanation = explained(HISTORIES[name])
    found = {measure: getattr(explanation, measure) for measure in recorded}
    assert found == recorded
    assert explanation.replayed == explanation.reserved
    assert explanation.moments[-1].nbytes == recorded["requested"]


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_public_snapshot_reserves_in_a_replay_what_it_reserved_on_the_gpu(name):
    (recording,) = [each for each in read_recordings(SNAPSHOTS[name]) if len(each.events) or each.segments]
    replayed = Program(recording).recorded
    assert replayed.reserved == recording.most_reserved()
    in_use = [block.nbytes for each in recording.segments for block in each.blocks if block.state == "active_allocated"]
    assert replayed.at_end == (sum(in_use), recording.reserved)


def test_the_failure_of_a_public_snapshot_is_explained_by_its_own_event():
    """The event `oom` has the request and what the driver said was free."""
    events = pickle.loads(gzip.decompress(OOM.read_bytes()))["device_traces"][1]
    (event,) = [each for each in events if each["action"] == "oom"]
    explanation = explained(OOM)
    assert explanation.cause == "too much alive"
    failure = explanation.failure
    assert (failure.request, failure.free) == (event["size"], event["device_free"])
    assert (failure.path, failure.line) == ("/mnt/data3/haoyangsun/CurProject/src/train/models.py", 181)
    assert failure.num_retries == 1
    assert failure.allocated + failure.cached == failure.reserved
    assert failure.lacking == failure.allocated + failure.request - failure.reserved - failure.free > 0
    assert sum(explanation.moments[0].categories.values()) == explanation.moments[0].nbytes == failure.requested


def test_other_settings_do_not_help_where_too_much_is_alive_and_a_larger_card_does():
    explanation = explained(OOM, gpus=("a100-80gb", "h200"))
    by_name = {each.name: each for each in explanation.other_settings}
    assert by_name["PyTorch's defaults"].fails
    assert by_name["NVIDIA A100 80 GB"].fails
    assert by_name["NVIDIA H200"].fails is False
    needed = by_name["as much memory as it asks for"].reserved
    assert needed >= explanation.failure.allocated + explanation.failure.request


def test_steps_are_found_by_the_optimizer():
    explanation = explained(SNAPSHOTS["anomaly-mode-steps"])
    assert (explanation.num_steps, explanation.steps_by) == (10, "optimizer")  # the script takes ten
    assert explanation.growth is None
    categories = explanation.moments[0].categories
    assert categories["optimizer_state"] == 2 * categories["gradient"]  # Adam's, of the image alone


def test_a_windows_recording_without_cpp_frames_has_its_backward_in_stacks_that_are_empty():
    moment = explained(SNAPSHOTS["windows-python-frames"]).moments[0]
    assert moment.phases["forward"] > 0
    lines = {(line.path.rpartition("\\")[2], line.line) for line in moment.lines if line.path}
    assert ("model.py", 39) in lines


@pytest.mark.parametrize("name", ["without-history", "one-event", "one-event-old-format"])
def test_a_snapshot_without_history_says_what_is_alive_and_that_it_has_none(name):
    explanation = explained(SNAPSHOTS[name])
    assert [moment.kind for moment in explanation.moments] == ["end"]
    assert explanation.moments[0].lines[0].nbytes > 0
    assert explanation.cause == "none"
    assert any("_record_memory_history" in note for note in explanation.notes)


def test_a_snapshot_that_is_full_of_what_is_alive_was_not_fragmented():
    assert "fragmentation can not be why" in explained(SNAPSHOTS["one-event-old-format"]).verdict


def test_a_gpu_that_was_full_is_replayed_with_the_memory_that_it_had():
    explanation = explained(HISTORIES["allocator-oom-retries"])
    assert any("39 times" in note for note in explanation.notes)  # as test_allocator_histories finds
    assert {each.capacity for each in explanation.other_settings if each.reserved} == {explanation.reserved, None}


def test_calls_of_empty_cache_can_be_left_out():
    (recording,) = read_recordings(HISTORIES["allocator-empty-cache"])
    program = Program(recording)
    assert len(program.emptied) == 28
    assert not program.released
    explanation = explain(Evidence.of(recording), "history")
    without = next(each for each in explanation.other_settings if each.name == "without empty_cache()")
    assert not without.is_exact
    assert without.reserved <= explanation.reserved


def fragmented():
    """Two segments of 100 MiB, each half used, and a request of 80 MiB."""
    program = RecordedProgram()
    for number in [program.alloc(100 * MIB, 1), program.alloc(100 * MIB, 2)]:
        program.free(number)
    halves = [program.alloc(50 * MIB, line) for line in (3, 4, 5, 6)]
    program.free(halves[0])
    program.free(halves[2])
    program.fail(80 * MIB, 5, free=10 * MIB)
    return program


def test_fragmentation(tmp_path):
    explanation = of_program(fragmented(), tmp_path)
    assert explanation.cause == "fragmentation"
    failure = explanation.failure
    assert (failure.cached, failure.largest_free, failure.num_free_blocks) == (100 * MIB, 50 * MIB, 2)
    by_name = {each.name: each for each in explanation.other_settings}
    assert by_name["expandable_segments:True"].fails is False
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in explanation.next_step


def test_too_much_alive(tmp_path):
    program = RecordedProgram()
    for line in range(1, 11):
        program.alloc(100 * MIB, line)
    program.fail(120 * MIB, 11, free=50 * MIB)
    explanation = of_program(program, tmp_path)
    assert (explanation.cause, explanation.failure.lacking) == ("too much alive", 70 * MIB)
    assert "/home/me/train.py:11" in explanation.verdict


def test_a_spike_names_its_line(tmp_path):
    program = RecordedProgram()
    program.alloc(300 * MIB, 1)
    program.fail(900 * MIB, 7, free=100 * MIB)
    explanation = of_program(program, tmp_path)
    assert explanation.cause == "spike"
    assert "/home/me/train.py:7" in explanation.verdict


def test_a_limit_where_the_gpu_had_enough(tmp_path):
    program = RecordedProgram()
    program.alloc(300 * MIB, 1)
    program.fail(100 * MIB, 2, free=8000 * MIB)
    assert of_program(program, tmp_path).cause == "a limit"


def test_another_process_where_the_card_is_larger_than_what_this_one_could_have(tmp_path):
    device = device_named("a100-40gb")
    program = RecordedProgram()
    program.alloc(10 * 1024 * MIB, 1)
    program.fail(2048 * MIB, 2, free=1024 * MIB)
    explanation = of_program(program, tmp_path, gpus=("a100-40gb",))
    assert explanation.cause == "another process"
    assert device.title in explanation.verdict
    program = RecordedProgram()
    program.alloc(device.total_nbytes - device.context_nbytes - 1024 * MIB, 1)
    program.fail(2048 * MIB, 2, free=1000 * MIB)
    assert of_program(program, tmp_path, gpus=("a100-40gb",)).cause == "too much alive"


OPTIMIZER = (frame("/lib/torch/optim/adamw.py", 9, "step"),)


def leaking(num_steps, kept, lacking):
    program = RecordedProgram()
    program.alloc(400 * MIB, 1)
    for _ in range(num_steps):
        activations = program.alloc(100 * MIB, 2)
        program.alloc(kept, 3)
        update = program.alloc(20 * MIB, 4, *OPTIMIZER)
        program.free(update)
        program.free(activations)
    allocator = program.allocator.allocator
    cached = allocator.reserved - allocator.allocated
    program.fail(cached + 10 * MIB + lacking, 2, free=10 * MIB)
    return program


def test_a_leak_names_the_line_whose_allocations_stay(tmp_path):
    explanation = of_program(leaking(8, 10 * MIB, 30 * MIB), tmp_path)
    assert explanation.cause == "leak"
    assert (explanation.num_steps, explanation.steps_by) == (8, "optimizer")
    (line,) = explanation.growth.lines
    assert (line.path, line.line, line.per_step) == ("/home/me/train.py", 3, 10 * MIB)
    assert "/home/me/train.py:3" in explanation.verdict


def test_growth_that_is_less_than_what_was_lacking_is_no_leak(tmp_path):
    explanation = of_program(leaking(8, 2 * MIB, 90 * MIB), tmp_path)
    assert explanation.growth is not None
    assert explanation.cause != "leak"


def test_layers_are_no_steps(tmp_path):
    """Memory that comes again and again, and stays, as the activations of layers do, is no step that leaks."""
    program = RecordedProgram()
    for _ in range(12):
        for line in range(2, 10):
            address = program.alloc(10 * MIB, line)
            if line % 2:
                program.free(address)
    program.fail(100 * MIB, 2, free=MIB)
    explanation = of_program(program, tmp_path)
    assert (explanation.steps_by, explanation.growth) == ("none", None)
    assert explanation.cause == "too much alive"


def test_periods_stand_for_steps_where_no_optimizer_is_recorded(tmp_path):
    program = RecordedProgram()
    for _ in range(10):
        addresses = [program.alloc(10 * MIB, line) for line in range(2, 10)]
        program.alloc(MIB, 11)
        for address in addresses:
            program.free(address)
    explanation = of_program(program, tmp_path)
    assert explanation.steps_by == "period"
    assert [(line.line, line.per_step) for line in explanation.growth.lines] == [(11, MIB)]


def test_a_folder_is_one_file_a_rank(tmp_path):
    for name in ("rank0", "rank1"):
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(fragmented().snapshot()))
    (tmp_path / "notes.txt").write_text("not a recording")
    document = explain_recordings([tmp_path])
    assert [Path(each.source).name for each in document.explanations] == ["rank0.pickle", "rank1.pickle"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TargetError, match="no recording"):
        explain_recordings([empty])


def invoked(*arguments, stdin=None):
    return CliRunner().invoke(main, ["explain", *map(str, arguments)], input=stdin)


def test_the_command_says_why_it_failed_and_what_held_the_memory():
    result = invoked(OOM)
    assert result.exit_code == 0
    assert "too much alive: 78.3 GiB were in use when 4.94 GiB more were asked for" in result.output
    assert "models.py:174" in result.output
    assert "the same requests with" in result.output


def test_json_and_markdown_are_the_same_explanation():
    document = json.loads(invoked(OOM, "--output-format", "json").output)
    (explanation,) = document["explanations"]
    assert explanation["cause"] == "too much alive"
    assert explanation["failure"]["request"] == 5308694528
    markdown = invoked(OOM, "--output-format", "markdown").output
    assert markdown.splitlines()[0].endswith("oom-expandable.pickle.gz, device 1: too much alive")
    assert "### When it failed: 78.3 GiB" in markdown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([SNAPSHOTS["one-event"], OOM, "--against", ROOT / "fixtures" / "models" / "mlp.py"], "several GPUs"),
        (["missing.pickle"], "cannot be read"),
        ([OOM, "--device", "7"], "nothing of device 7"),
        ([OOM, "--gpu", "gtx9999"], "no GPU named"),
        ([OOM, "--alloc-conf", "expandable:True"], "no allocator setting"),
        ([__file__, "--gpu", "a100"], "can not be replayed"),
    ],
)
def test_a_mistake_is_one_message(arguments, message):
    result = invoked(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_a_checkpoint_is_neither_a_recording_nor_a_log(tmp_path):
    file = tmp_path / "weights.pt"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    result = invoked(file)
    assert result.exit_code == 2
    assert "neither a log nor a recording" in result.output


def test_names_in_a_recording_obey_nobody(tmp_path):
    program = RecordedProgram()
    program.alloc(MIB, 1, frame("\x1b[2J::error::x\n.py", 1, "f"))
    program.fail(100 * MIB, 2, free=0)
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(program.snapshot()))
    result = invoked(file)
    assert result.exit_code == 0
    assert "\x1b" not in result.output
    assert not any(line.lstrip().startswith("::") for line in result.output.splitlines())


def test_settings_that_cannot_be_read_are_named():
    with pytest.raises(UsageError, match="no allocator setting"):
        explained(OOM, settings=("nonsense:1",))


def test_the_page_marks_the_moment_of_the_failure(tmp_path):
    page = tmp_path / "oom.html"
    result = invoked(OOM, "--output-format", "html", "-o", page)
    assert result.exit_code == 0, result.output
    text = page.read_text(encoding="utf-8")
    assert "too much alive: 78.3 GiB were in use" in text
    assert text.count('class="failure"') == 1
    assert ">oom-expandable ran out of memory</h1>" in text
    assert "made before the steps" not in text
    assert 'class="by-line" name="w0-maps" checked' in text
    timeline = report_of_recordings([OOM], RecordingOptions()).workloads[0].timeline
    live = list(accumulate(timeline.nbytes[e] if e >= 0 else -timeline.nbytes[~e] for e in timeline.events))
    assert [live[position] for position in timeline.failures] == [explained(OOM).failure.requested]


def test_a_page_needs_a_file_and_a_recording():
    result = invoked(OOM, "--output-format", "html")
    assert result.exit_code == 2
    assert "-o snapshot.html" in result.output


BACKWARD = {"filename": "??", "line": 0, "name": "torch::autograd::Engine::thread_main(...)"}


def native(operator):
    return {"filename": "??", "line": 0, "name": f"at::_ops::{operator}::call(at::Tensor const&)"}


def trained(*, keeps_gradients=False, operator="mm", num_steps=3):
    """Steps of a model of 64 MiB with 512 MiB of activations."""
    program = RecordedProgram()
    program.alloc(64 * MIB, 1)
    gradient = 0
    for step in range(num_steps):
        activations = [program.alloc(128 * MIB, 10 + layer, native(operator)) for layer in range(4)]
        if not (keeps_gradients and step):
            program.num += 1
            gradient = program.num
            program.allocator.open(gradient, 64 * MIB, [native("mm"), BACKWARD])
        program.num += 1
        program.allocator.open(program.num, MIB, [native("mm"), BACKWARD])
        program.free(program.num)
        for each in activations:
            program.free(each)
        program.free(program.alloc(MIB, 20, native("mul"), *OPTIMIZER))
        if not keeps_gradients:
            program.free(gradient)
    return program


def codes(explanation):
    return [each.code for each in explanation.findings]


def test_activations_that_hold_most_of_the_peak_are_found(tmp_path):
    explanation = of_program(trained(), tmp_path)
    assert codes(explanation) == ["MEM101"]
    assert explanation.findings[0].nbytes == 512 * MIB
    assert explanation.moments[0].categories["parameter"] == 64 * MIB  # as large as the gradient
    assert codes(explained(SNAPSHOTS["octree-inference"])) == []


def test_gradients_that_live_through_the_next_forward_are_found(tmp_path):
    explanation = of_program(trained(keeps_gradients=True), tmp_path)
    assert "MEM205" in codes(explanation)
    assert "MEM205" not in codes(of_program(trained(), tmp_path))


@pytest.mark.parametrize(("operator", "code"), [("_log_softmax", "MEM106"), ("_softmax", "MEM103")])
def test_operators_whose_results_hold_the_peak_are_found(tmp_path, operator, code):
    assert code in codes(of_program(trained(operator=operator), tmp_path))


def evaluated(num_batches=3, *, with_graph):
    """Batches of a forward of eight layers, whose results are kept until its end or only until the next."""
    program = RecordedProgram()
    program.alloc(64 * MIB, 1)
    for _ in range(num_batches):
        layers = []
        for layer, operator in enumerate(("linear", "gelu", "linear", "native_layer_norm", "mm", "add", "mul", "relu")):
            layers.append(program.alloc(16 * MIB, 10 + layer, native(operator)))
            if not with_graph and len(layers) > 1:
                program.free(layers.pop(0))
        for each in layers:
            program.free(each)
    return program


def test_an_evaluation_that_keeps_a_graph_is_found(tmp_path):
    (finding,) = of_program(evaluated(with_graph=True), tmp_path).findings
    assert (finding.code, finding.nbytes) == ("MEM404", 128 * MIB)
    assert codes(of_program(evaluated(with_graph=False), tmp_path)) == []
    assert "MEM404" not in codes(of_program(trained(), tmp_path))


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_no_public_snapshot_is_taken_for_an_evaluation_that_keeps_a_graph(name):
    """None of them evaluates batch after batch with gradients on."""
    assert "MEM404" not in codes(explained(SNAPSHOTS[name]))


def test_what_each_step_leaves_behind_is_a_finding_with_its_line(tmp_path):
    explanation = of_program(leaking(8, 10 * MIB, 30 * MIB), tmp_path)
    finding = next(each for each in explanation.findings if each.code == "MEM405")
    assert (finding.line, finding.nbytes) == (3, explanation.growth.nbytes)


def test_a_recording_that_contradicts_itself_gets_one_message(tmp_path):
    program = RecordedProgram()
    first, second = program.alloc(MIB // 2, 1), program.alloc(MIB // 2, 2)
    program.free(first)
    program.free(second)
    program.alloc(MIB // 4, 3)
    snapshot = program.snapshot()
    (segment,) = snapshot["segments"]
    snapshot["segments"] = [segment, segment | {"stream": 0}]
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(snapshot))
    result = invoked(file)
    assert "Traceback" not in result.output
    assert result.exit_code in {0, 2}


def test_a_card_that_is_too_small_for_what_was_there_before_fails_at_the_start():
    explanation = explained(HISTORIES["lm-2.7b-train-ctx128-fp32-h100"], gpus=("t4",))
    card = next(each for each in explanation.other_settings if each.name == "NVIDIA T4")
    assert card.fails
