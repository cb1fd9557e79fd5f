"""Sizes of the images of a data set, by the transforms and the settings that it holds."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import ConcatDataset, Subset

from memlint.script.data_sides import image_sides
from memlint.workloads import torchvision_schemas

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "steps",
    [
        lambda of: [of.Resize((300, 200))],
        lambda of: [of.Resize(256), of.CenterCrop(224)],
        lambda of: [of.RandomResizedCrop(size=176), of.RandomHorizontalFlip()],
        lambda of: [of.RandomApply([of.ColorJitter()]), of.RandomCrop(64)],
    ],
)
def test_transforms_say_the_size_that_they_give(steps: Callable[[Any], list[Any]]) -> None:
    torchvision_schemas.install()
    of, datasets = import_module("torchvision.transforms"), import_module("torchvision.datasets")
    data = datasets.FakeData(4, (3, 320, 320), transform=of.Compose(steps(of)))
    image, _label = data[0]
    assert image_sides(data) == [(image.height, image.width)]
    assert image_sides(Subset(data, [0])) == image_sides(ConcatDataset([data, data])) == image_sides(data)


@pytest.mark.parametrize(
    ("attributes", "sides"),
    [
        ({"ps": 256}, (256, 256)),
        ({"input_shape": [300, 300], "num_classes": 21}, (300, 300)),
        ({"input_shape": (1, 128, 96)}, (128, 96)),
        ({"options": {"patch_size": 192}}, (192, 192)),
        ({"length": 256, "sizex": 512, "classes": 21}, None),
        ({"ps": None}, None),
    ],
)
def test_settings_of_a_data_set_say_the_size_to_which_it_cuts(
    attributes: dict[str, object], sides: tuple[int, int] | None
) -> None:
    assert image_sides(SimpleNamespace(**attributes)) == ([] if sides is None else [sides])


def test_a_data_set_with_each_image_in_two_sizes_says_both() -> None:
    torchvision_schemas.install()
    of = import_module("torchvision.transforms")
    low, high = of.Compose([of.Resize(256), of.Resize(22)]), of.RandomCrop(88)
    assert image_sides(SimpleNamespace(lr_transform=low, hr_transform=high, crop_size=100)) == [(88, 88), (22, 22)]
