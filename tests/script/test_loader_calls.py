"""Calls of a model with a batch of a script's own data."""

import torch

from memlint.script.loader_calls import calls_with

IMAGES, SMALL, LABELS = torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 4, 4), torch.zeros(2, dtype=torch.long)


def shapes(batch, num_fed=None):
    return [
        ([getattr(each, "ndim", len(each)) for each in args], sorted(named))
        for args, named in calls_with(batch, num_fed)
    ]


def test_labels_stand_behind_what_is_fed_and_crops_are_fed_as_one_list():
    assert shapes([IMAGES, LABELS]) == [([4], [])]
    assert shapes([IMAGES, LABELS], 2) == [([4, 1], []), ([4], [])]
    assert shapes([IMAGES, SMALL, SMALL]) == [([3], []), ([4], [])]
    assert shapes([[IMAGES, SMALL], LABELS], 1) == [([2], []), ([4], [])]


def test_what_has_names_is_fed_by_them_or_as_a_whole():
    assert shapes({"x": IMAGES, "y": LABELS}) == [([], ["x", "y"]), ([2], []), ([4], []), ([1], [])]
    assert shapes("text") == []
