"""MEM105: which masks are causal, by how they are written."""

import pytest
import torch
from memlint_rules.m1_activations.mem105_explicit_causal_mask import ExplicitCausalMask

from memlint.lint.rule import Case
from tests.rules.test_cases import analysed

RULE = ExplicitCausalMask()
OF_BOOLS = "torch.ones(length, length, dtype=torch.bool, device=x.device)"
INFINITE = 'torch.full((length, length), float("-inf"), device=x.device)'


def findings(tmp_path, mask, dtype="float32"):
    source = RULE.good[0].source.replace("is_causal=True", "attn_mask=mask")
    source = source.replace("        y = F", f"        mask = {mask}\n        y = F")
    return analysed(tmp_path / "model.py", RULE, Case(source=source, dtype=dtype)).findings


@pytest.mark.parametrize(
    "mask",
    [
        f"torch.tril({OF_BOOLS})",
        f"torch.tril(\n            {OF_BOOLS}\n        )",
        f"{OF_BOOLS}.triu(1).logical_not()",
        f"torch.triu({INFINITE}, diagonal=1)",
        f"torch.zeros(length, length, device=x.device).masked_fill({OF_BOOLS}.triu(1), float('-inf'))",
        "nn.Transformer.generate_square_subsequent_mask(length, device=x.device)",
        "torch.tril(torch.ones(2048, 2048, dtype=torch.bool)).cuda()",
    ],
)
def test_causal_masks_are_found(tmp_path, mask):
    assert len(findings(tmp_path, mask)) == 1


@pytest.mark.parametrize(
    "mask",
    [
        f"{OF_BOOLS}.tril(-1)",
        f"torch.tril({OF_BOOLS}, diagonal=64)",
        f"torch.triu({INFINITE}, 64)",
        f"{OF_BOOLS}.tril().triu(-64)",
        f"{OF_BOOLS}.tril() & (x[0, :, 0] > 0)",
        "torch.zeros(length, length, device=x.device)",
    ],
)
def test_other_masks_are_left_alone(tmp_path, mask):
    assert findings(tmp_path, mask) == []


def test_pytorchs_module_gets_the_hint_beside_the_mask_which_it_cannot_do_without(tmp_path):
    module = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(1, 4, 8)
    with pytest.raises(RuntimeError, match="attn_mask"):
        module(x, x, x, is_causal=True, need_weights=False)
    case = Case.of_layers(
        {"attention": "nn.MultiheadAttention(64, 2, batch_first=True)"},
        f"""length = x.size(1)
mask = torch.triu({INFINITE}, diagonal=1)
return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]""",
        {"x": "torch.randn(2, 1024, 64)"},
    )
    (finding,) = analysed(tmp_path / "model.py", RULE, case).findings
    assert "beside `attn_mask`" in finding.fix
