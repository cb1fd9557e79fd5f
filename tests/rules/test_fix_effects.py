"""What Corrections do to memory: the examples of the rules, traced before and after."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from memlint.config import Settings
from memlint.lint.fixes import fix_text
from memlint.lint.registry import load_rules
from memlint.lint.runner import check_source
from memlint.worker.protocol import Request

WIDTH, BATCH = 512, 64
WORKLOAD = """

import memlint


def memlint_workload(batch):
    layers = [torch.nn.Linear({width}, {width}, bias=False) for _ in range(4)]
    model = torch.nn.Sequential(*[module for layer in layers for module in (layer, torch.nn.Sigmoid())])

    def one_step(model, inputs, optimizer):
        x = inputs["x"]
        loader = [(x, x)] * {num_batches}
        {call}

    return memlint.Declaration(model, {{"x": torch.zeros(batch, {width})}}, step=one_step)
"""
ACTIVATION = BATCH * WIDTH * 4
PARAMETERS = 4 * WIDTH * WIDTH * 4


def rule_of(code):
    return load_rules()[code]


def corrected(rule, text):
    better, codes = fix_text(text, "case.py", lambda source: check_source(source, [rule]), unsafe=True)
    assert codes
    return better


def estimate(directory, text, call, num_batches=3):
    from tests.in_process import analyse

    directory = Path(tempfile.mkdtemp(dir=directory))  # a module that was imported once is not imported again
    file = directory / "case.py"
    head = "" if "import torch\n" in text else "import torch\n"
    file.write_text(head + text + WORKLOAD.format(width=WIDTH, num_batches=num_batches, call=call))
    settings = Settings.model_validate({"batch": BATCH, "select": ["MEM003"]})
    (workload,) = analyse(Request(target=str(file), path=str(file), root=str(directory), settings=settings)).workloads
    assert workload.error is None
    return workload.estimate


def peak(*arguments):
    return estimate(*arguments).peak.requested.estimate


def growth(directory, text, call):
    """Bytes by which three more batches raise the peak."""
    return peak(directory, text, call, 6) - peak(directory, text, call, 3)


def test_gradients_that_are_freed_are_not_there_in_the_next_forward(tmp_path):
    rule = rule_of("MEM205")
    text, call = rule.bad[0].source, "step(model, optimizer, x, x)"
    before, after = estimate(tmp_path, text, call), estimate(tmp_path, corrected(rule, text), call)
    assert before.phase_peaks["forward"] - after.phase_peaks["forward"] == PARAMETERS
    assert after.peak.requested.estimate == peak(tmp_path, rule.good[0].source, call)


def test_a_sum_of_detached_losses_does_not_grow(tmp_path):
    rule = rule_of("MEM401")
    text, call = rule.bad[0].source, "validate(model, loader)"
    assert growth(tmp_path, text, call) >= 3 * 4 * ACTIVATION
    assert growth(tmp_path, corrected(rule, text), call) == 0
    assert peak(tmp_path, corrected(rule, text), call) == peak(tmp_path, rule.good[0].source, call)


def test_a_list_of_detached_outputs_grows_by_the_outputs_alone(tmp_path):
    rule = rule_of("MEM402")
    text, call = rule.bad[0].source, "evaluate(model, loader)"
    assert growth(tmp_path, text, call) >= 3 * 4 * ACTIVATION
    assert growth(tmp_path, corrected(rule, text), call) == pytest.approx(3 * 2 * ACTIVATION, abs=3 * ACTIVATION)


def test_a_guarded_loop_takes_what_its_hand_corrected_twin_takes(tmp_path):
    rule = rule_of("MEM404")
    text, call = rule.bad[0].source, "accuracy(model, [(x, x[:, 0])] * 3)"
    before, after = peak(tmp_path, text, call), peak(tmp_path, corrected(rule, text), call)
    assert after == peak(tmp_path, rule.good[0].source, call)
    assert before - after >= 2 * ACTIVATION


def test_predictions_on_the_host_do_not_grow_on_the_device(tmp_path):
    rule = rule_of("MEM405")
    text, call = rule.bad[0].source, "predict(model, loader, x.device)"
    assert growth(tmp_path, text, call) >= 3 * ACTIVATION
    assert growth(tmp_path, corrected(rule, text), call) == 0


def test_a_cache_that_is_not_emptied_changes_no_peak_of_tensors(tmp_path):
    rule = rule_of("MEM601")
    text, call = rule.bad[0].source, "fit(model, loader, optimizer)"
    assert peak(tmp_path, corrected(rule, text), call) == peak(tmp_path, text, call)
