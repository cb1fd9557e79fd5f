"""What the kernels of a program were called with, and that they can be called again."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from memlint.cuda.session import virtual_device
from memlint.memory.devices import device_named
from memlint.scaling.recorded_calls import TooLongError, can_be_made_alone, make_alone, recorded

GPU = device_named("a100-80gb")


def calls_of(name: str, program):
    with virtual_device(GPU), recorded() as calls:
        kept = program()
    del kept
    return [made.call for made in calls if made.call.kernel.name == name]


def test_calls_that_say_the_same_are_one_object() -> None:
    def program():
        x = torch.empty(8, 16, device="cuda")
        return [x.tanh(), x.tanh(), x.t().tanh(), x.double().tanh(), torch.empty(8, 17, device="cuda").tanh()]

    first, again, *others = calls_of("aten.tanh.default", program)
    assert first is again
    assert len({id(call) for call in (first, *others)}) == 4
    assert len({call.form for call in (first, *others)}) == 2  # one of them is of another dtype


def test_numbers_are_told_apart_by_their_type() -> None:
    def program():
        x = torch.empty(8, 16, device="cuda", dtype=torch.int64)
        return [x.pow(exponent) for exponent in (3, 3.0, 3)]

    whole, real, again = calls_of("aten.pow.Tensor_Scalar", program)
    assert whole is again
    assert (whole.form == real.form, whole.numbers[-1]) == (False, 3)


def test_where_tensors_are_is_part_of_a_call() -> None:
    def program():
        return [torch.empty(4096, 4096, device=device).tanh() for device in ("cuda", "cpu", "cuda")]

    device, host, again = calls_of("aten.tanh.default", program)
    assert device is again
    assert device.form != host.form
    assert device.numbers == host.numbers


def test_a_recorded_call_keeps_no_storage_alive() -> None:
    with virtual_device(GPU) as ledger, recorded() as calls:
        tensor = torch.empty(0, device="cuda")
        tensor.set_(torch.empty(1 << 20, device="cuda").untyped_storage())
        alive = sum(event >= 0 for event in ledger.events) - sum(event < 0 for event in ledger.events)
        del tensor
        left = sum(event >= 0 for event in ledger.events) - sum(event < 0 for event in ledger.events)
        assert (bool(calls), alive, left) == (True, 1, 0)


def test_a_call_made_alone_takes_what_it_took_and_more_where_it_is_larger() -> None:
    def program():
        x = torch.empty(8, 16, device="cuda")
        return torch.cat([x, x.tanh()], 1)

    (call,) = calls_of("aten.cat.default", program)
    assert can_be_made_alone(call)
    with virtual_device(GPU):
        same = make_alone(call, call.numbers)
        larger = make_alone(call, tuple(32 if number == 8 else number for number in call.numbers))
    assert same is not None
    assert larger is not None
    assert [birth.nbytes for birth in same.births] == [8 * 32 * 4]
    assert [birth.nbytes for birth in larger.births] == [32 * 32 * 4]


def test_a_call_that_fails_is_none_that_was_made_and_the_next_is() -> None:
    def program():
        x = torch.empty(8, 16, device="cuda")
        with pytest.raises(RuntimeError):
            torch.mm(x, x)
        return torch.mm(x, x.t())

    calls = calls_of("aten.mm.default", program)
    assert calls[-1].numbers[:4] == (8, 16, 16, 1)


def test_no_more_calls_are_recorded_than_were_asked_for() -> None:
    with virtual_device(GPU), recorded(3) as calls:
        x = torch.empty(8, device="cuda")
        while len(calls) < 3:
            x = x.tanh()
        with pytest.raises(TooLongError, match="more than 3 kernels"):
            x.tanh()


def test_calls_that_are_not_needed_are_dropped_where_there_are_too_many_and_the_program_goes_on() -> None:
    with recorded(3, is_needed=False) as calls, virtual_device(GPU) as ledger:
        x = torch.empty(8, device="cuda")
        while len(calls) < 3:
            x = x.tanh()
        num_events = len(ledger.events)
        x.tanh().tanh()
        assert calls == []
        assert len(ledger.events) > num_events
