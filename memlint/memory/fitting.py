"""GPUs into which a step would fit."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from memlint.memory.context import with_context
from memlint.memory.devices import CATALOGUE, Device, device_named


class FittingGpu(NamedTuple):
    """A GPU into which a step fits, and its cost in the unit that the user chose; None if no price is known."""

    device: Device
    price: float | None


def fitting_gpus(most: int, device: Device, alone: Device, prices: Mapping[str, float]) -> list[FittingGpu]:
    """Return the GPUs of the catalogue into which a step traced on `device` certainly fits, by its kernels.

    `most` is the `most_device` of the step there. `alone` is the same GPU without the memory that other libraries hold
    on it, as communicators do. The cheapest of those with a price come first, then the smallest of the others. Raises
    UsageError for the price of an unknown GPU.
    """
    price_of = {device_named(name).name: price for name, price in prices.items()}
    besides_context = most - with_context(alone).context_high
    others = (
        with_context(replace(each, torch=device.torch, loads_everything=device.loads_everything))
        for each in CATALOGUE.values()
        if each.is_cuda
    )
    fitting = [each for each in others if besides_context + each.context_high <= each.total_nbytes]
    fitting.sort(key=lambda each: (each.name not in price_of, price_of.get(each.name, 0), each.total_nbytes))
    return [FittingGpu(each, price_of.get(each.name)) for each in fitting]
