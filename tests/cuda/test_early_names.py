"""Functions that modules took from PyTorch before a device was simulated are those of the device as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from memlint.cuda.facade import factories
from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named

EARLY = """
from functools import partial
import torch
from torch import Generator, as_tensor, load, tensor, zeros
from torch import range as torch_range
from torch.cuda import is_available, memory_allocated, stream
from torch.cuda.memory import max_memory_allocated

TABLE = {"ones": torch.ones}
LIST = [torch.eye]
make_half = partial(torch.zeros, dtype=torch.float16)

def default(make=torch.full, *, other=torch.tril_indices):
    return make, other

class Settings:
    make = torch.arange
    wrapped = staticmethod(torch.tensor)

    def method(self, make=torch.triu_indices):
        return make
"""
MAKERS = {
    "a name": lambda m, d: m.zeros(4, device=d),
    "a name of what goes through no dispatcher": lambda m, d: m.tensor([1.0, 2.0, 3.0, 4.0], device=d),
    "a name of what takes data": lambda m, d: m.as_tensor([1.0, 2.0, 3.0, 4.0], device=d),
    "a name of what has no kernel to share": lambda m, d: m.torch_range(1, 4, device=d),
    "a table": lambda m, d: m.TABLE["ones"](4, device=d),
    "a list": lambda m, d: m.LIST[0](2, device=d),
    "a partial": lambda m, d: m.make_half(8, device=d),
    "a default": lambda m, d: m.default()[0]((4,), 1.0, device=d),
    "a default by name": lambda m, d: m.default()[1](2, 1, device=d),
    "a class": lambda m, d: m.Settings().make(2, device=d),
    "a static method": lambda m, d: m.Settings().wrapped([1.0, 2.0, 3.0, 4.0], device=d),
    "a default of a method": lambda m, d: m.Settings().method()(1, 1, device=d),
}


@pytest.fixture
def early() -> Iterator[ModuleType]:
    yield from _imported("module_with_early_names")


def _imported(name: str) -> Iterator[ModuleType]:
    module = sys.modules[name] = ModuleType(name)
    exec(EARLY, vars(module))
    yield module
    del sys.modules[name]


@pytest.mark.parametrize("device", ["a100-80gb", "cpu"])
@pytest.mark.parametrize("place", MAKERS)
def test_an_early_name_makes_tensors_of_the_simulated_device(early: ModuleType, place: str, device: str) -> None:
    shown = "cpu" if device == "cpu" else "cuda:0"
    with virtual_device(device_named(device)) as ledger:
        tensor = MAKERS[place](early, shown)
        assert str(tensor.device) == shown
        assert [ledger.births[event].nbytes for event in ledger.events] == [tensor.nbytes]


def test_large_tensors_of_the_host_are_virtual_by_an_early_name_too(early: ModuleType) -> None:
    with virtual_device(device_named("a100-80gb")) as ledger:
        assert early.zeros(1 << 40).shape == (1 << 40,)
        assert not ledger.events


def test_early_names_of_cuda_answer_for_the_simulated_gpu(early: ModuleType) -> None:
    with virtual_device(device_named("a100-80gb")):
        kept = early.zeros(1024, device="cuda")
        assert early.is_available()
        assert early.memory_allocated() == early.max_memory_allocated() == kept.nbytes
        assert str(early.Generator("cuda").device) == "cuda:0"
        with early.stream(None):
            assert torch.cuda.memory.memory_allocated() == kept.nbytes
    assert early.is_available() is torch.cuda.is_available()
    assert torch.cuda.memory.memory_allocated is torch.cuda.memory_allocated


def test_all_early_names_are_what_they_were_afterwards(early: ModuleType) -> None:
    def named() -> list[object]:
        return [
            *(early.zeros, early.tensor, early.load, early.Generator, early.is_available, early.stream),
            *(early.TABLE["ones"], early.LIST[0], early.make_half.func, *early.default(), early.Settings.make),
            *(early.Settings.wrapped, early.Settings().method()),
        ]

    before = named()
    with virtual_device(device_named("a100-80gb")):
        assert not any(a is b for a, b in zip(before, named(), strict=True))
    assert all(a is b for a, b in zip(before, named(), strict=True))


def test_a_module_imported_meanwhile_has_pytorchs_functions_afterwards_and_the_devices_the_next_time() -> None:
    real = torch.zeros
    with virtual_device(device_named("a100-80gb")):
        modules = _imported("module_imported_meanwhile")
        module = next(modules)
    assert module.zeros is module.make_half.func is real
    assert module.default() == (torch.full, torch.tril_indices)
    for _ in range(2):
        with virtual_device(device_named("cpu")) as ledger:
            kept = module.make_half(8)
            assert [birth.nbytes for birth in ledger.births] == [kept.nbytes]
    assert next(modules, None) is None


def test_a_name_taken_between_two_simulations_by_a_program_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "early_ones", None, raising=False)
    for name in ("ones", "zeros"):
        monkeypatch.setattr(main, "early_ones", getattr(torch, name))
        with virtual_device(device_named("cpu")) as ledger:
            assert main.early_ones(4).nbytes == ledger.births[0].nbytes


def test_every_factory_that_is_replaced_is_replaced_where_a_module_took_it() -> None:
    lists = factories._FACTORIES, factories._FROM_DATA, factories._LIKE, factories._SPARSE
    names = " ".join(lists).split()
    module = sys.modules["module_of_all"] = ModuleType("module_of_all")
    vars(module).update({name: getattr(torch, name) for name in names})
    with virtual_device(device_named("cpu")):
        assert all(getattr(module, name) is getattr(torch, name) for name in names)
    del sys.modules["module_of_all"]


def test_names_stay_where_no_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("holds_a_name_early")
    module.zeros = torch.zeros  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = torch.zeros
    with virtual_device(device_named("a100-80gb"), for_program=False):
        assert module.zeros is before
        assert torch.zeros is not before
    with virtual_device(device_named("a100-80gb")):
        assert module.zeros is torch.zeros is not before
    assert module.zeros is before
