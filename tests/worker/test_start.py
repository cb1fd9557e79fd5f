"""A signal that comes while a child is started finds it known, and so ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from memlint.base.own_process import signals_wait
from memlint.worker.start import started

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


def _by_itself() -> None:
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def _through_another_thread() -> None:
    """As a process does that has threads of a library: one of them takes the signal, though this one blocks it."""
    there = threading.Event()

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        there.set()

    thread = threading.Thread(target=take)
    thread.start()
    there.wait()
    thread.join()


@pytest.mark.parametrize("interrupt", [_by_itself, _through_another_thread])
def test_a_child_that_is_being_started_at_an_interrupt_is_ended(interrupt: Callable[[], None]) -> None:
    children = []

    def start(_folder: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
        children.append(subprocess.Popen(sleeping, stdout=stdout, stderr=stderr, start_new_session=True))
        interrupt()
        return children[0]

    with pytest.raises(KeyboardInterrupt), started(start):
        pytest.fail("the interrupt came before")
    assert children[0].poll() == -signal.SIGKILL


def test_signals_that_waited_do_what_they_did_before() -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: came.append(number))
    try:
        with signals_wait():
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            assert not came
        assert came == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)
