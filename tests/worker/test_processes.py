"""How much the processes of a child take is measured again and again, and that takes little itself."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest

from memlint.base import own_process
from memlint.worker.processes import Measurement, ProcessTree

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a child is a session of its own")
SLEEPING_TWICE = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"


def test_the_child_and_what_it_starts_count_and_what_was_there_before_does_not() -> None:
    other = subprocess.Popen([sys.executable, "-c", SLEEPING_TWICE])
    try:
        while not psutil.Process(other.pid).children():
            time.sleep(0.01)
        with ProcessTree() as tree:
            child = subprocess.Popen([sys.executable, "-c", SLEEPING_TWICE], start_new_session=True)
            tree.grow_from(child)
            while not psutil.Process(child.pid).children():
                time.sleep(0.01)
            count, nbytes = tree.usage()
            assert count == 2
            assert nbytes > 2**20
            (started,) = psutil.Process(child.pid).children()
        assert not started.is_running()
        assert other.poll() is None
    finally:
        for process in (*psutil.Process(other.pid).children(), other):
            process.kill()
        other.wait()


SHARING = "import os, time; data = bytearray(2**26); [os.fork() for _ in range(2)]; time.sleep(60)"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells how many share a page")
def test_pages_that_copies_of_a_process_share_can_be_counted_once() -> None:
    with ProcessTree() as tree:
        child = subprocess.Popen([sys.executable, "-c", SHARING], start_new_session=True)
        tree.grow_from(child)
        while len(psutil.Process(child.pid).children(recursive=True)) < 3:
            time.sleep(0.01)
        count, nbytes = tree.usage()
        assert (count, nbytes > 4 * 2**26) == (4, True)
        assert 2**26 < tree.shared_once() < 2 * 2**26


def test_a_child_whose_lock_an_interrupt_has_left_taken_is_ended_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_process, "_PATIENCE", 0.1)
    with ProcessTree() as tree:
        child = subprocess.Popen([sys.executable, "-c", SLEEPING_TWICE], start_new_session=True)
        tree.grow_from(child)
        child._waitpid_lock.acquire()  # type: ignore[attr-defined]
    assert not psutil.pid_exists(child.pid)


def test_measuring_takes_a_fiftieth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    now, spent, measured = [100.0], [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", lambda: spent[0])

    def measure() -> int:
        measured.append(now[0])
        spent[0] += 0.01
        return len(measured)

    measurement = Measurement(measure, 0)
    for tenth in range(20):
        now[0] = 100 + tenth / 10
        assert measurement.now() == len(measured)
    assert measured == [100.0, 100.5, 101.0, 101.5]
