"""Ways by which a hostile script leaves its place, with each guard of the kernel and without: what gets out is said.

Every way is aimed at something that the test itself has put there: a listener of 127.0.0.1, a file, a process.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from tests.script.isolated import Ran, run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these guards are Linux's")

HOSTILE = Path(__file__).with_name("hostile")
SHARED_MEMORY = Path("/dev/shm")
TEXT = "mine"
SYSTEMS = {
    "all guards": (),
    "no namespaces": ("namespaces",),
    "no Landlock": ("landlock",),
    "filter alone": ("namespaces", "landlock"),
    "Landlock alone": ("namespaces", "filter"),
    "none": ("namespaces", "landlock", "filter"),
}
"""Systems, and the guards that each of them lacks."""
FILES = (
    *("open of C", "truncate of C", "unlink of C", "a shell", "/proc/self/root", "through a link of its own"),
    *("chmod", "chown", "utimes", "setxattr", "ioctl"),
)
"""Ways that are aimed at a file of their own."""
_NETWORK, _OTHERS, _SEGMENTS = (
    "the network",
    "UDP, TCP Fast Open and other protocols",
    "segments of System V and queues",
)
_CALLED, _SOCKETS, _LEFT = (
    "incoming TCP connections",
    "sockets of other programs on this machine",
    "files left in /dev/shm",
)
_FILES, _MODES, _TERMINALS = "files", "modes, owners, times and attributes of files", "terminals of other programs"
_SIGNALS, _PROCESSES = "signals to other processes", "priorities and limits of other processes"
_MEMORY = "memory of other processes"
GUARD_OF = {
    **dict.fromkeys(("subprocess", "os.system", "ctypes", "posix_spawn", "os.spawnv", "pty.spawn"), _NETWORK),
    **dict.fromkeys(("fork and exec", "system of C", "spawn of multiprocessing"), _NETWORK),
    **dict.fromkeys(("fast open", "UDP of a program", "ctypes UDP"), _OTHERS),
    **dict.fromkeys(("unix socket", "abstract socket"), _SOCKETS),
    **dict.fromkeys(FILES, _FILES),
    "a device": _FILES,
    **dict.fromkeys(("chmod", "chmod of Python", "chown", "utimes", "setxattr", "ioctl"), _MODES),
    **dict.fromkeys(("shm_open of C", "shared_memory", "sem_open"), _LEFT),
    **dict.fromkeys(("shmget", "mq_open"), _SEGMENTS),
    **dict.fromkeys(("kill", "signal to memlint"), _SIGNALS),
    **dict.fromkeys(("renice", "prlimit", "sched_setaffinity"), _PROCESSES),
    "ptrace": _MEMORY,
}
"""Ways, and what is said not to be guarded where one leads out."""
HELD_BY_PYTHON = {"/proc/self/root", "through a link of its own", "shared_memory"}
HELD_BY_RIGHTS = {"a device", "chmod of Python", "chown", "renice", "sched_setaffinity", "ptrace"}
"""Rights that a user has or lacks, by settings of the kernel."""
LACKING = {
    "all guards": set(),
    "no namespaces": {_CALLED, _SOCKETS, _LEFT, _TERMINALS},
    "no Landlock": {_SIGNALS},
    "filter alone": {_FILES, _SOCKETS, _LEFT, _TERMINALS, _SIGNALS, _MEMORY},
    "Landlock alone": {_MODES, _OTHERS, _CALLED, _SOCKETS, _LEFT, _SEGMENTS, _TERMINALS, _PROCESSES},
    "none": {_FILES, _MODES, _NETWORK, _SOCKETS, _LEFT, _SEGMENTS, _TERMINALS, _SIGNALS, _PROCESSES, _MEMORY},
}
"""The report about a system with Linux 6.12 or later that lacks no other guard."""
WORK = {
    **dict.fromkeys(("a socket of its own", "a pair of sockets", "itself by TCP", "a queue", "a manager"), "here"),
    **dict.fromkeys(("modes of its own files", "a terminal"), "here"),
    **dict.fromkeys(("a free port", "tensors in shared memory", "names of users"), "True"),
    **dict.fromkeys(("what lies there", "what lies in shared memory"), TEXT),
    "whether a folder may be written": "True",
    "its own priority": "None",
}
REFUSED = {
    "no namespaces": {"itself by TCP"},
    "Landlock alone": {"itself by TCP"},
    "filter alone": {"itself by TCP", "a free port"},
}
"""Uses that do not work: Landlock tells ports, and no addresses; the filter tells neither."""
TOLD = ("sched_setaffinity", "signal to memlint", "ptrace", "ioctl", "a device")
"""Ways that led out if the call gave no error."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a script that tries all ways."""

    reached: frozenset[str]
    """The ways that led out."""
    works: dict[str, str]
    """The outcome of uses that have to work."""
    ran: Ran


class Listeners:
    """Sockets that keep the words that they are sent."""

    def __init__(self, folder: Path, name: str) -> None:
        """Two of 127.0.0.1, one in a folder, and one that has a name alone."""
        self.words: set[str] = set()
        tcp, udp = socket.create_server(("127.0.0.1", 0)), socket.socket(type=socket.SOCK_DGRAM)
        tcp.setsockopt(socket.IPPROTO_TCP, 23, 5)  # TCP_FASTOPEN: take what comes with the first packet
        udp.bind(("127.0.0.1", 0))
        self.tcp, self.udp = tcp.getsockname()[1], udp.getsockname()[1]
        self.unix, self.abstract = str(folder / "u"), name
        self._sockets = [tcp, udp]
        for address in (self.unix, f"\0{name}"):
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(address)
            listening.listen()
            self._sockets.append(listening)
        for each in self._sockets:
            threading.Thread(target=self._listen, args=(each,), daemon=True).start()

    def _listen(self, listening: socket.socket) -> None:
        while True:
            try:
                if listening.type == socket.SOCK_DGRAM:
                    if word := listening.recv(100).decode():  # nothing comes as it is closed
                        self.words.add(word)
                else:
                    with listening.accept()[0] as accepted:
                        accepted.settimeout(5)
                        self.words.add(accepted.recv(100).decode())
            except OSError:
                return

    def close(self) -> None:
        """Listen no more."""
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # which wakes who waits there
            each.close()


def tried(folder: Path, name: str, without: tuple[str, ...]) -> Outcome:
    """Give what the script reaches on a system that lacks these guards."""
    files = {way: folder / "files" / way.replace("/", "-") for way in FILES}
    (folder / "files").mkdir()
    for file in files.values():
        file.write_text(TEXT)
    stats = {way: _state(file) for way, file in files.items()}
    with suppress(PermissionError):
        os.mknod(folder / "files" / "a device", stat.S_IFCHR | 0o600, os.makedev(1, 3))  # another /dev/null
    interpreter = Path(sys.executable).resolve()
    changed = interpreter.stat().st_ctime_ns
    key = 0x6D000000 + os.getpid()
    left = {f"{name}-c": "shm_open of C", f"{name}-python": "shared_memory", f"sem.{name}": "sem_open"}
    listeners = Listeners(folder, name)
    victim, prey = (subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) for _ in range(2))
    process = psutil.Process(victim.pid)
    before = SHARED_MEMORY / f"{name}-before"
    before.mkdir()
    try:
        (before / "file").write_text(TEXT)
        targets: dict[str, Any] = {
            **{each: getattr(listeners, each) for each in ("tcp", "udp", "unix", "abstract")},
            "files": str(folder / "files"),
            "victim": victim.pid,
            "prey": prey.pid,
            "key": key,
            "name": name,
            "reach": str(HOSTILE / "reach.py"),
        }
        text = (HOSTILE / "ways.py").read_text(encoding="utf-8")
        ran = run(folder / "project", text, json.dumps(targets), without=without)
        answer = json.loads(ran.stdout.splitlines()[-1])
        time.sleep(0.5)  # for what was sent last
        reached = listeners.words | (set(TOLD) - answer["raised"].keys())
        reached |= {way for way, file in files.items() if _state(file) != stats[way]}
        reached |= {left[entry.name] for entry in SHARED_MEMORY.iterdir() if entry.name in left}
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()
        reached |= {"shmget" for line in segments if line.split()[0] == str(key)}
        reached |= {"chmod of Python"} if interpreter.stat().st_ctime_ns != changed else set()
        reached |= {"mq_open"} if _has_queue(name) else set()
        reached |= {"kill"} if prey.poll() is not None else set()
        reached |= {"renice"} if process.nice() == 19 else set()
        reached |= {"prlimit"} if process.rlimit(psutil.RLIMIT_NOFILE) == (64, 64) else set()
        return Outcome(frozenset(reached), answer["works"], ran)
    finally:
        for each in (victim, prey):
            each.kill()
            each.wait()
        listeners.close()
        subprocess.run(["ipcrm", "-M", str(key)], check=False, stderr=subprocess.DEVNULL)
        for entry in left:
            (SHARED_MEMORY / entry).unlink(missing_ok=True)
        shutil.rmtree(before)


def _has_queue(name: str) -> bool:
    """Say whether there is a queue of POSIX of this name, which is removed."""
    return ctypes.CDLL(None).mq_unlink(f"/{name}".encode()) == 0


def _state(file: Path) -> tuple[Any, ...]:
    if not file.exists():
        return ()
    about = file.stat()
    return about.st_mode, about.st_uid, about.st_mtime_ns, about.st_size, os.listxattr(file)


@functools.cache
def outcome_on(system: str) -> Outcome:
    """Give what comes of the script on one of `SYSTEMS`."""
    with TemporaryDirectory(prefix="ways-") as folder:  # shorter than pytest's: paths of sockets are
        return tried(Path(folder), f"ways-{os.getpid()}-{list(SYSTEMS).index(system)}", SYSTEMS[system])


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_gets_out_is_said(system: str) -> None:
    outcome = outcome_on(system)
    said = {*outcome.ran.not_guarded, *([_OTHERS] if _NETWORK in outcome.ran.not_guarded else [])}
    assert {way: GUARD_OF[way] for way in outcome.reached if GUARD_OF[way] not in said} == {}
    assert not outcome.reached & HELD_BY_PYTHON


@pytest.fixture
def whole() -> None:
    """Skip a test on a system that lacks a guard, of which `SYSTEMS` are not true."""
    if lacking := outcome_on("all guards").ran.not_guarded:
        pytest.skip(f"not guarded by this system: {lacking}")


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("system", SYSTEMS)
def test_each_guard_that_there_is_holds(system: str) -> None:
    assert set(outcome_on(system).ran.not_guarded) == LACKING[system]


def test_all_ways_lead_out_where_nothing_guards() -> None:
    assert outcome_on("none").reached >= GUARD_OF.keys() - HELD_BY_PYTHON - HELD_BY_RIGHTS


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("system", SYSTEMS)
def test_what_scripts_do_works(system: str) -> None:
    works = dict(outcome_on(system).works)
    refused = {name for name, text in works.items() if text.startswith("PermissionError")}
    assert refused == REFUSED.get(system, set())
    assert {name: text for name, text in works.items() if name not in refused} == {
        name: text for name, text in WORK.items() if name not in refused
    }


def test_programs_are_listed_however_they_were_started() -> None:
    commands = outcome_on("all guards").ran.programs
    for way in ("subprocess", "os.system", "posix_spawn", "os.spawnv", "pty.spawn", "fork and exec"):
        assert [command for command in commands if command.endswith(f" {way}")], way
    assert "ctypes system" in commands
    assert [command for command in commands if command.endswith("--multiprocessing-fork")]


@pytest.mark.usefixtures("whole")
def test_files_that_are_written_where_the_script_wants_open_nothing_else(tmp_path: Path) -> None:
    listeners = Listeners(tmp_path, f"ways-{os.getpid()}-kept")
    text = """
        import subprocess, sys
        subprocess.run([sys.executable, "-S", *sys.argv[1:], "kept"])
        open("kept.txt", "w").write("kept")
    """
    try:
        reach = str(HOSTILE / "reach.py"), str(listeners.tcp)
        ran = run(tmp_path / "project", text, *reach, kept=True, unchanged=False)
    finally:
        listeners.close()
    assert ran.not_guarded == []
    assert not listeners.words
    assert (tmp_path / "project" / "kept.txt").read_text() == "kept"
