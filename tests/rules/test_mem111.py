"""MEM111: where an activation may work in place, and where real PyTorch would fail or change the result."""

import pytest
import torch
from memlint_rules.m1_activations.mem111_effective_inplace import EffectiveInplace

from memlint.lint.rule import Case
from tests.rules.test_cases import analysed, peak

RULE = EffectiveInplace()
SOURCE = """\
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        h = self.first(x)
        {body}


def memlint_workload():
    return Model(), torch.randn(8, 3, 64, 64)
"""
MAY = {
    "after a convolution": "return self.second(F.leaky_relu(h, inplace=False))",
    "after a normalisation": "return self.second(F.elu(self.norm(h), inplace=False))",
    "after another reader that keeps nothing": "z = h + 1\n        return self.second(F.elu(h, inplace=False)) + z",
}
MAY_NOT = {
    "the input is a result that backward needs": "return self.second(F.leaky_relu(torch.sigmoid(h), inplace=False))",
    "the input was saved before": "z = h * h\n        return self.second(F.leaky_relu(h, inplace=False)) + z",
    "the input is read afterwards": "return self.second(F.leaky_relu(h, inplace=False)) + h",
    "a view of the input is read afterwards": "z = h.flatten(1)\n        "
    "return self.second(F.leaky_relu(h, inplace=False)).flatten(1) + z",
    "twice of the same input": "z = F.elu(h)\n        return self.second(F.elu(h, inplace=False)) + z",
}


def findings_and_peak(file, source):
    result = analysed(file, RULE, Case(source=source))
    return result.findings, peak(result)


def gradients(source):
    """Of one real step on the host; None if autograd refuses because of what was overwritten."""
    namespace = {}
    exec(source, namespace)
    torch.manual_seed(0)
    model, x = namespace["memlint_workload"]()
    loss = model(x[:1]).square().mean()
    try:
        loss.backward()
    except RuntimeError as error:
        if "modified by an inplace operation" in str(error):
            return None
        raise
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def in_place(source):
    changed = source.replace("inplace=False", "inplace=True")
    assert changed != source
    return changed


@pytest.mark.parametrize("body", MAY.values(), ids=MAY.keys())
def test_in_place_saves_what_is_said_and_computes_the_same(tmp_path, body):
    source = SOURCE.format(body=body)
    (finding,), before = findings_and_peak(tmp_path / "model.py", source)
    assert before + finding.peak_change == findings_and_peak(tmp_path / "in_place.py", in_place(source))[1]
    torch.testing.assert_close(gradients(in_place(source)), gradients(source))


@pytest.mark.parametrize("body", MAY_NOT.values(), ids=MAY_NOT.keys())
def test_where_in_place_would_fail_or_change_the_result_nothing_is_said(tmp_path, body):
    source = SOURCE.format(body=body)
    assert findings_and_peak(tmp_path / "model.py", source)[0] == []
    changed = gradients(in_place(source))
    assert changed is None or not torch.allclose(changed, gradients(source))
