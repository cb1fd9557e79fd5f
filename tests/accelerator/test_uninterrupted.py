"""Where a handler of a signal finds itself when one is due as a function begins."""

import ctypes
import functools
import operator
import signal
from types import FrameType

import pytest

from memlint.base.uninterrupted import uninterrupted


@pytest.mark.parametrize("is_uninterrupted", [False, True])
def test_a_handler_runs_as_of_the_function_that_has_begun(is_uninterrupted: bool) -> None:
    places: list[str] = []
    began: list[int] = []

    def handle(_number: int, frame: FrameType | None) -> None:
        assert frame is not None
        places.append(frame.f_code.co_name)
        raise InterruptedError

    def function() -> None:
        began.append(1)

    if is_uninterrupted:
        uninterrupted(function)
    send = getattr(ctypes.CDLL(None), "raise")  # Python's own look for signals themselves
    before = signal.signal(signal.SIGALRM, handle)
    try:
        with pytest.raises(InterruptedError):  # both are called from C, so that nothing looks for signals in between
            list(map(operator.call, [functools.partial(send, signal.SIGALRM), function]))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert bool(began) == is_uninterrupted
    assert not is_uninterrupted or places == ["function"]
