"""What each step of a declared loop adds to memory, held against a run of the same steps."""

import re
from dataclasses import replace

import pytest
from memlint_rules.m4_training_loop.mem407_kept_between_steps import KeptBetweenSteps
from memlint_rules.m4_training_loop.mem409_batch_too_large import BatchTooLarge
from memlint_rules.support.growth import FAR_AWAY

from memlint.config import Settings
from memlint.memory.devices import device_named
from memlint.tracing.recorder import trace_program
from memlint.worker.protocol import Request
from memlint.workloads.construction.construct import build_program
from memlint.workloads.discover import find_workloads
from tests.in_process import analyse
from tests.rules.test_cases import analysed, peak

SOURCE = """\
import torch
from torch import nn

import memlint

losses = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(512, 4096)
        self.second = nn.Linear(4096, 512)
        {init}

    def forward(self, x):
        {forward}
        return self.second(self.first(x).relu())


@memlint.workload(batch=1024)
def declared(batch):
    history = {{"logits": []}}
    state = {{"total": 0, "last": None}}

    def step(model, inputs, optimizer):
        output = model(inputs["x"])
        loss = output.square().mean()
        {step}

    return memlint.Declaration(Net(), {{"x": torch.randn(batch, 512)}}, step=step)
"""
STEP = "loss.backward(); optimizer.step(); optimizer.zero_grad()"
GRAPH = 4 * 1024 * (4096 + 512)
"""What the forward saves: the activations of the ReLU, and the outputs that are squared."""
OUTPUT = 4 * 1024 * 512


def run(folder, codes, step, forward="pass", init="self.seen = []", gpu="a100-80gb"):
    file = folder / "loop.py"
    file.write_text(SOURCE.format(step=step, forward=forward, init=init))
    settings = Settings.model_validate({"select": codes, "gpu": gpu})
    result = analyse(Request(target=str(file), path=str(file), root=str(folder), settings=settings))
    assert [workload.error for workload in result.workloads] == [None]
    return result


@pytest.mark.parametrize(
    ("code", "step", "nbytes"),
    [
        pytest.param("MEM402", "losses.append(loss)", GRAPH + 4, id="losses in a global list"),
        pytest.param("MEM402", 'history["logits"].append(output)', GRAPH, id="outputs in a dictionary"),
        pytest.param("MEM401", 'state["total"] = state["total"] + loss', GRAPH, id="a sum of losses"),
        pytest.param("MEM405", f'{STEP}; history["logits"].append(output.detach())', OUTPUT, id="detached outputs"),
        pytest.param("MEM402", f"{STEP}; losses.append(loss)", 4, id="losses after their backward"),
    ],
)
def test_a_growing_step_is_found_with_what_each_step_adds(tmp_path, code, step, nbytes):
    result = run(tmp_path, ["MEM401", "MEM402", "MEM403", "MEM405"], step)
    (finding,) = result.findings
    assert (finding.code, finding.line, finding.nbytes) == (code, 29, nbytes)
    assert finding.confidence == "exact-lifetime"


def test_what_a_step_adds_is_what_a_longer_run_holds_more(tmp_path):
    result = run(tmp_path, ["MEM402"], "losses.append(loss)")
    (finding,) = result.findings
    (workload,) = find_workloads(str(tmp_path / "loop.py"), tmp_path, [], {}).workloads

    def live_after(num_steps):
        program = build_program(workload, tmp_path)
        trace = trace_program(program, device_named("a100-80gb"), num_steps=num_steps).trace
        return sum(buffer.nbytes for buffer in trace.buffers if buffer.died is None)

    assert live_after(7) - live_after(6) == finding.nbytes


def test_the_fall_of_the_peak_is_that_of_the_corrected_step(tmp_path):
    (tmp_path / "good").mkdir()
    bad = run(tmp_path, ["MEM402"], f'{STEP}; history["logits"].append(output)')
    good = run(tmp_path / "good", ["MEM402"], f'{STEP}; history["logits"].append(output.detach().cpu())')
    (finding,) = bad.findings
    assert peak(bad) + finding.peak_change == peak(good)
    assert good.findings == []


@pytest.mark.parametrize(("gpu", "nbytes"), [("t4", 15_095 * 2**20), ("a100-80gb", 85_097_971_712)])
def test_the_steps_until_the_gpu_is_full(tmp_path, gpu, nbytes):
    (finding,) = run(tmp_path, ["MEM402"], "losses.append(loss)", gpu=gpu).findings
    steps = int(re.search(r"full after ([\d,]+) steps", finding.message)[1].replace(",", ""))
    assert steps == pytest.approx(nbytes / GRAPH, rel=0.1)
    assert finding.severity == "error"
    assert steps < FAR_AWAY


def test_four_bytes_a_step_are_a_note(tmp_path):
    (finding,) = run(tmp_path, ["MEM402"], f"{STEP}; losses.append(loss)").findings
    assert finding.severity == "note"


def test_a_module_that_keeps_what_it_sees(tmp_path):
    result = run(tmp_path, ["MEM402", "MEM405"], STEP, forward="self.seen.append(self.first(x).detach())")
    (finding,) = result.findings
    assert (finding.code, finding.line, finding.nbytes) == ("MEM405", 17, 4 * 1024 * 4096)
    assert "`model.seen`" in finding.message


def test_a_hook_that_collects_activations(tmp_path):
    hook = "self.first.register_forward_hook(lambda module, inputs, y: losses.append(y))"
    (finding,) = run(tmp_path, ["MEM402", "MEM405"], STEP, init=hook).findings
    assert (finding.code, finding.line, finding.nbytes) == ("MEM402", 14, 4 * 1024 * 4096)
    assert "`losses`" in finding.message


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_with_a_graph_that_nothing_resets(tmp_path):
    result = run(
        tmp_path, ["MEM401", "MEM402", "MEM403", "MEM405"], "loss.backward(create_graph=True); optimizer.step()"
    )
    assert [(finding.code, finding.line) for finding in result.findings] == [("MEM403", 29)]


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(STEP, id="an ordinary step"),
        pytest.param(
            "optimizer.zero_grad(); loss.backward(); optimizer.step()", id="gradients that stay to the next step"
        ),
        pytest.param(f"{STEP}; losses.append(loss.item())", id="numbers"),
        pytest.param(f'{STEP}; history["logits"].append(output.detach().cpu())', id="outputs on the host"),
        pytest.param(f'{STEP}; state["last"] = output', id="the last output"),
        pytest.param(f"{STEP}; losses.append(output.detach()); del losses[:-2]", id="the last two outputs"),
        pytest.param("loss.backward(create_graph=True); optimizer.step(); optimizer.zero_grad()", id="gradients reset"),
    ],
)
def test_a_step_that_does_not_grow_is_not_reported(tmp_path, step):
    assert run(tmp_path, ["MEM401", "MEM402", "MEM403", "MEM405"], step).findings == []


def test_what_an_attribute_keeps_is_what_the_corrected_module_takes_less(tmp_path):
    rule = KeptBetweenSteps()
    bad = analysed(tmp_path / "bad.py", rule, rule.bad[0])
    good = analysed(tmp_path / "good.py", rule, rule.good[0])
    (finding,) = bad.findings
    assert finding.nbytes == 4 * 1024 * 16384
    assert peak(bad) + finding.peak_change == peak(good)


def test_globals_are_found_and_local_variables_left_to_mem107(tmp_path):
    (finding,) = run(tmp_path, ["MEM407"], f"{STEP}; losses[:] = [output.detach()]").findings
    assert (finding.code, finding.line) == ("MEM407", 29)
    (tmp_path / "local").mkdir()
    assert run(tmp_path / "local", ["MEM407"], STEP).findings == []
    (tmp_path / "growing").mkdir()
    assert run(tmp_path / "growing", ["MEM407"], f"{STEP}; losses.append(output.detach())").findings == []


def test_the_parts_of_a_batch_fit_and_fewer_do_not(tmp_path):
    rule = BatchTooLarge()
    result = analysed(tmp_path / "case.py", rule, rule.bad[0])
    (finding,) = result.findings
    parts, part = map(int, re.search(r"In (\d+) parts of (\d+)", finding.message).groups())
    assert parts * part == 16384
    fits = analysed(tmp_path / "fits.py", rule, with_batch(rule.bad[0], part))
    too_large = analysed(tmp_path / "too_large.py", rule, with_batch(rule.bad[0], 2 * part))
    assert (fits.findings, len(too_large.findings)) == ([], 1)


def with_batch(case, batch):
    return replace(case, source=case.source.replace("batch=16384", f"batch={batch}"))


def test_what_only_a_reference_cycle_keeps_is_said_to_stay_and_not_to_grow(tmp_path):
    forward = "seen = {'x': x * 2}; seen['self'] = seen"
    result = run(tmp_path, ("MEM401", "MEM402", "MEM403", "MEM405", "MEM407"), STEP, forward=forward)
    assert result.findings == []
    (workload,) = result.workloads
    (said,) = [each.text for each in workload.assumptions if "collector" in each.text]
    assert said.startswith("4.00 MiB of the steps")
