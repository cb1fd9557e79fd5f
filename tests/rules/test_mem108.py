"""MEM108: each function it knows, against the same program with the function called."""

from dataclasses import replace

import pytest
from memlint_rules.m1_activations.mem108_unfused_composite import UnfusedComposite

from tests.rules.test_cases import analysed, peak

RULE = UnfusedComposite()


@pytest.mark.parametrize("number", range(len(RULE.bad)), ids=[case.title or "GELU" for case in RULE.bad])
def test_the_saving_is_near_what_the_function_takes_less(tmp_path, number):
    bad = analysed(tmp_path / "bad.py", RULE, RULE.bad[number])
    good = analysed(tmp_path / "good.py", RULE, RULE.good[number])
    (finding,) = bad.findings
    assert -finding.peak_change == pytest.approx(peak(bad) - peak(good), rel=0.1)


@pytest.mark.parametrize("number", range(3), ids=["GELU", "SiLU", "Mish"])
def test_under_autocast_the_saving_leaves_what_the_function_keeps_of_its_input(tmp_path, number):
    bad = analysed(tmp_path / "bad.py", RULE, replace(RULE.bad[number], dtype="bf16-amp"))
    good = analysed(tmp_path / "good.py", RULE, replace(RULE.good[number], dtype="bf16-amp"))
    (finding,) = bad.findings
    assert finding.peak_change == peak(good) - peak(bad)


@pytest.mark.parametrize(
    "function",
    [
        "hidden = hidden * torch.sigmoid(1.702 * hidden)",
        "gate = torch.sigmoid(hidden)\n        hidden = hidden * gate + gate",
        "hidden = hidden - hidden.mean(-1, keepdim=True)\n        hidden = hidden / hidden.std(-1, keepdim=True)",
        "hidden = hidden * torch.rsqrt(hidden.pow(2).mean(0, keepdim=True) + 1e-6)",
        "hidden = 0.5 * hidden * (1 + torch.tanh(hidden))",
    ],
    ids=["quick GELU", "the gate is used again", "standard deviation", "over the batch", "tanh of the input"],
)
def test_formulas_that_are_no_such_function_are_left_alone(tmp_path, function):
    source = RULE.good[0].source.replace('hidden = F.gelu(hidden, approximate="tanh")', function)
    assert function in source
    file = tmp_path / "model.py"
    assert analysed(file, RULE, type(RULE.good[0])(source=source)).findings == []
