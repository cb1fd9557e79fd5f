"""Masks of routed tokens: an equal share each, which makes the sum over all experts that of a real run."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from memlint.accelerator import state
from memlint.accelerator.device import entry_of
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

EXPERTS = 8
GPU = device_named("a100-80gb")


def by_equality(scores: Tensor) -> list[int]:
    chosen = scores.topk(2, dim=-1).indices
    return [len(torch.where(chosen == expert)[0]) for expert in range(EXPERTS)]


def by_one_hot(scores: Tensor) -> list[int]:
    mask = F.one_hot(scores.topk(2, dim=-1).indices, EXPERTS).permute(2, 1, 0)
    return [len(torch.where(mask[expert])[0]) for expert in range(EXPERTS)]


def by_argmax_mask(scores: Tensor) -> list[int]:
    chosen = scores.argmax(dim=-1)
    return [len(scores[chosen == expert]) for expert in range(EXPERTS)]


def by_any(scores: Tensor) -> list[int]:
    chosen = scores.topk(2, dim=-1).indices
    return [len((chosen == expert).any(dim=-1).nonzero()) for expert in range(EXPERTS)]


def by_parts(scores: Tensor) -> list[int]:
    """Rows of each expert as the sparse dispatcher of many mixtures of experts cuts them."""
    values, chosen = scores.topk(2, dim=-1)
    gates = torch.zeros_like(scores).scatter(1, chosen, values.softmax(-1))
    rows = scores[torch.nonzero(gates)[:, 0]]
    return [len(part) for part in rows.split((gates > 0).sum(0).tolist())]


@pytest.mark.parametrize("route", [by_equality, by_one_hot, by_argmax_mask, by_any, by_parts])
@pytest.mark.parametrize("tokens", [1000, 37])
def test_all_experts_together_get_as_many_tokens_as_in_a_real_run(route, tokens):
    real = route(torch.randn(tokens, EXPERTS))
    with virtual_device(GPU):
        predicted = route(torch.randn(tokens, EXPERTS, device="cuda"))
    assert sum(real) <= sum(predicted) < sum(real) + EXPERTS


def test_the_equal_share_is_an_assumption(monkeypatch):
    said = []
    monkeypatch.setattr(state.current, "assume", said.append)
    with virtual_device(GPU):
        by_equality(torch.randn(1000, EXPERTS, device="cuda"))
    assert said[0] == "nonzero() of a mask of shape [1000, 2] is taken to select an equal share, 250 elements"


def test_a_mask_of_unknown_origin_selects_everything():
    with virtual_device(GPU):
        assert len((torch.randn(50, device="cuda") > 0).nonzero()) == 50


def test_a_mask_beside_its_negation_is_true_half_of_the_time():
    with virtual_device(GPU):
        mask = torch.randn(2, 50, device="cuda") > 0
        both = torch.cat([mask, ~mask], dim=1)
        assert torch.arange(100, device="cuda").expand(2, 100)[both].reshape(2, 50).shape == (2, 50)
        negated = mask.logical_not()
        mask.fill_(True)
        mask[0] = negated[1]
        assert len(torch.cat([mask, negated]).nonzero()) == 200


def test_known_indices_are_counted():
    with virtual_device(GPU):
        chosen = torch.tensor([0, 1, 1, 3], device="cuda")
        assert [len((chosen == value).nonzero()) for value in range(4)] == [1, 2, 0, 1]


def test_positions_that_were_marked_are_counted_in_masks_of_them():
    def marked(number):
        mask = torch.zeros(1000, dtype=torch.uint8, device="cuda")
        mask[(torch.randn(1000, device="cuda") > 0).nonzero()[:, 0][:number]] = 1
        return mask

    with virtual_device(GPU):
        assert len(torch.where(marked(30) | marked(12))[0]) == 42
        assert len(torch.where(marked(30) & marked(12))[0]) == 12


def test_parts_of_unknown_size_in_a_row_are_counted_by_their_likely_sizes():
    with virtual_device(GPU) as ledger:
        some = torch.arange(600, device="cuda")[torch.randn(600, device="cuda") > 0]
        joined = torch.cat([some, torch.arange(200, device="cuda"), some])
        number = entry_of(joined).number
    assert joined.shape == (1400,)
    assert ledger.size(number) == (8 * 800, 0, 8 * 1400)


def test_values_that_are_only_counted_are_few_enough_for_a_program_that_raises_on_many() -> None:
    def validate(target: Tensor) -> None:  # as torchmetrics does
        num_unique_values = len(torch.unique(target, dim=None))
        if num_unique_values > 6:
            raise RuntimeError(f"found {num_unique_values}")

    with virtual_device(GPU):
        target = torch.randn(512, 512, device="cuda").long()
        validate(target)
        assert len(torch.unique(target)) == 512 * 512  # by which a size may go
