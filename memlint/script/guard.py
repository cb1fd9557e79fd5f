"""Guard against a script's changes to files outside the Overlay, connections to other machines, and signals to others.

An audit hook sees every such call of Python, and refuses it with a reason; it only notes the programs that are started.
The kernel's restrictions (`memlint.script.confinement`) hold without it. The hook stays until the process ends, but
does nothing once it is inactive.
"""

import errno
import ipaddress
import json
import mmap
import os
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from memlint.memory.records import Frame
from memlint.workloads.notes import script_frame

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGED = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod"), (0,)),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
"""Python's audit events that change files, and the positions of the changed paths among their arguments."""
_OF_ENTRIES = frozenset(
    {"os.remove", "os.rmdir", "os.rename", "os.link", "os.symlink", "os.mkdir", "os.mkfifo", "os.mknod"}
)
"""Events that change a folder, and nothing that its entry links to."""
_STARTING = frozenset(
    ("system", "popen", "execl", "execle", "execlp", "execv", "execve", "execvp", "execvpe", "posix_spawn")
)
"""Functions of the C library that start programs."""
_STARTED: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "subprocess.Popen": lambda arguments: arguments[1],
    "os.posix_spawn": lambda arguments: arguments[1],
    "os.spawn": lambda arguments: arguments[2],
    "os.exec": lambda arguments: arguments[1],
    "os.system": lambda arguments: ("sh", "-c", arguments[0]),
    "pty.spawn": lambda arguments: arguments[0],
    "ctypes.dlsym": lambda arguments: ("ctypes", arguments[1]) if arguments[1] in _STARTING else None,
}
"""Events that start a program, and its command."""
_MOST_PROGRAMS = 100
"""Maximum number of programs to note."""
_NUM_NOTES, _NOTE_NBYTES = 128, 1024
"""Number of notes of processes that the script forked, and the maximum length of each."""
_ADDRESSED = ("socket.connect", "socket.sendto", "socket.sendmsg")
_NAMED = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyname_ex")


@dataclass(frozen=True)
class Program:
    """Another program that the script started."""

    command: tuple[str, ...]
    frame: Frame | None
    """The line that first started it."""
    folder: str = ""
    """Its working directory, if it is given one."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that the script has set for it."""


@dataclass(frozen=True)
class Connection:
    """Another machine that the script tried to reach."""

    host: str
    frame: Frame | None
    """The line that first tried."""


def _text(word: Any) -> str:
    """Return a word of a command line as text that can be written down."""
    return os.fsdecode(word).encode(errors="replace").decode()


class Guard:
    """The audit hook."""

    def __init__(self, may_write: Callable[[str], bool] | None) -> None:
        """`may_write` says of an absolute path without links whether it may be changed; None allows every path."""
        self.active = False
        self.reaches_itself = True
        """True if the kernel lets the script reach itself by TCP and UDP."""
        self.hosts: dict[str, Frame | None] = {}
        """The line that first tried to reach each other machine."""
        self.commands: dict[tuple[str, ...], Frame | None] = {}
        """The line that first started each other program."""
        self._settings: dict[tuple[str, ...], tuple[str, tuple[tuple[str, str], ...]]] = {}
        """The working directory and the variables of each."""
        self._environment = {_text(name): _text(value) for name, value in os.environ.items()}
        self.segments: dict[str, None] = {}
        """Names of the created segments of shared memory."""
        self._may_write = may_write
        self._process, self._folder = os.getpid(), str(Path.cwd())
        self._notes = mmap.mmap(-1, _NUM_NOTES * _NOTE_NBYTES)
        """Shared with the processes that the script forks, without a descriptor that one of them could close."""
        sys.addaudithook(self._audit)

    def connections(self) -> tuple[Connection, ...]:
        """Return the other machines that the script tried to reach, in the order of the first attempts."""
        self._gather()
        return tuple(Connection(host, frame) for host, frame in self.hosts.items())

    def programs(self) -> tuple[Program, ...]:
        """Return the other programs that the script started, in the order of the first starts."""
        self._gather()
        settings = self._settings
        return tuple(Program(command, frame, *settings.get(command, ())) for command, frame in self.commands.items())

    def note_host(self, host: str) -> None:
        """Note a machine, an address on one or the path of a socket that the script tries to reach."""
        if host not in self.hosts:
            self.hosts[host] = script_frame()
            self._pass_on("host", host, self.hosts[host])

    def note_program(self, words: Any, folder: Any = None, environment: Mapping[Any, Any] | None = None) -> None:
        """Note the command of a program that the script starts, with its working directory and environment."""
        words = [words] if isinstance(words, str | bytes | os.PathLike) else words
        command = tuple(map(_text, words))
        if command not in self.commands and len(self.commands) < _MOST_PROGRAMS:
            self.commands[command] = script_frame()
            given = {_text(name): _text(value) for name, value in (environment or os.environ).items()}
            variables = ((name, value) for name, value in given.items() if self._environment.get(name) != value)
            here = str(Path.cwd())
            self._settings[command] = _text(folder or ("" if here == self._folder else here)), tuple(variables)
            self._pass_on("program", command, self.commands[command])

    def note_segment(self, name: str) -> None:
        """Note the name of a segment of shared memory that the script creates."""
        self.segments[name] = None
        self._pass_on("segment", name, None)

    def made_segments(self) -> tuple[str, ...]:
        """Return the names of the segments that the script, or processes that it forked, have created."""
        self._gather()
        return tuple(self.segments)

    def _pass_on(self, kind: str, what: object, frame: Frame | None) -> None:
        """Pass a note to the answering process, if this one was forked by the script."""
        if os.getpid() == self._process:
            return
        text = json.dumps([kind, what, frame and [frame.path, frame.line, frame.function]]).encode()
        if len(text) > _NOTE_NBYTES and kind == "program" and isinstance(what, tuple):
            text = json.dumps([kind, [what[0][:100], "..."], None]).encode()
        free = (i for i in range(0, len(self._notes), _NOTE_NBYTES) if not self._notes[i])
        if len(text) <= _NOTE_NBYTES and (start := next(free, None)) is not None:
            self._notes[start : start + len(text)] = text

    def _gather(self) -> None:
        """Collect the notes of processes that the script forked; they may have written anything there."""
        for start in range(0, len(self._notes), _NOTE_NBYTES):
            with suppress(ValueError, TypeError):
                kind, what, place = json.loads(self._notes[start : start + _NOTE_NBYTES].rstrip(b"\0"))
                frame = place and Frame(str(place[0]), int(place[1]), str(place[2]))
                if kind == "host":
                    self.hosts.setdefault(str(what), frame)
                elif kind == "segment":
                    self.segments[str(what)] = None
                else:
                    self.commands.setdefault(tuple(map(str, what)), frame)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in _STARTED:
            if (words := _STARTED[event](arguments)) is not None:
                self.note_program(words, *(arguments[2:4] if event == "subprocess.Popen" else ()))
        elif event in ("os.kill", "os.killpg"):
            self._refuse_process(*arguments)
        elif event in _ADDRESSED or event in _NAMED:
            self._refuse_network(event, arguments)
        elif self._may_write is not None and event == "open":
            path, _mode, flags = arguments
            if flags & _WRITING and not isinstance(path, int):
                self._refuse_path(path)
        elif self._may_write is not None:
            for position in _CHANGED.get(event, ()):
                self._refuse_path(arguments[position], follow=event not in _OF_ENTRIES)

    def _refuse_network(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ADDRESSED:
            self._refuse_host(arguments[1], OSError(errno.ENETUNREACH, "Network is unreachable"))
        elif _address(arguments[0]) is None:  # an address is found without a network
            number = getattr(socket, "EAI_AGAIN", socket.EAI_NONAME)
            self._refuse_host(arguments, socket.gaierror(number, "Temporary failure in name resolution"))

    def _refuse_host(self, address: Any, error: OSError) -> None:
        if isinstance(address, str | bytes):
            self._refuse_socket(os.fsdecode(address))
            return
        host = address[0] if isinstance(address, tuple) and address else None
        host = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else host
        if not isinstance(host, str):
            return
        if not _is_here(host):
            self.note_host(host)
            error.strerror = f"{error.strerror}: memlint run allows no connection to another machine, such as {host}"
            raise error
        if not self.reaches_itself and not isinstance(error, socket.gaierror):
            self.note_host(host)
            raise PermissionError(
                errno.EACCES,
                f"memlint run allows no connection to another machine, and cannot verify here that {host} is this one",
            )

    def _refuse_socket(self, path: str) -> None:
        """Refuse a connection to a program that listens at `path`, unless the run itself created the socket."""
        if path.startswith("\0") or not path or self._may_write is None:
            return  # the kernel checks whose socket it is, if it can
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
        if not self._may_write(place):
            self.note_host(place)
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, "memlint run lets a script connect only to its own programs", path
            )

    def _refuse_process(self, process: int, number: int) -> None:
        if number and not is_own(process, self._process):
            raise PermissionError(errno.EPERM, "memlint run lets a script signal only its own processes")

    def _refuse_path(self, path: Any, *, follow: bool = True) -> None:
        assert self._may_write is not None, "paths are asked for only then"
        text = _path_of(path) if isinstance(path, int) else os.path.abspath(os.fsdecode(path))  # noqa: PTH100
        if path is None or text is None:
            return
        folder, name = os.path.split(text)
        place = os.path.realpath(text) if follow else os.path.join(os.path.realpath(folder), name)  # noqa: PTH118
        if not self._may_write(place):
            raise PermissionError(
                errno.EACCES, "memlint run changes none of your files and cannot redirect this: see --keep-writes", text
            )


def _path_of(handle: int) -> str | None:
    """Return the path of the file that is open as `handle`, if it has one."""
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115
        return path if path.startswith(os.sep) else None
    return None


def is_own(number: int, script: int) -> bool:
    """Return True if a process or, if negative, a group was started by the process `script` or is in its session."""
    if number in (0, script, -script):
        return True
    number = abs(number)
    if number == 1:  # -1 stands for all processes
        return False
    with suppress(OSError):
        if os.getsid(number) == script:
            return True
    with suppress(psutil.Error):
        return any(parent.pid == script for parent in psutil.Process(number).parents())
    return False


def _is_here(host: str) -> bool:
    """Return True if `host` is this machine."""
    if host in ("", "localhost", "localhost.localdomain", "ip6-localhost", socket.gethostname()):
        return True
    address = _address(host)
    return host.endswith(".localhost") if address is None else address.is_loopback or address.is_unspecified


def _address(host: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that `host` spells out, None for a name that must be looked up."""
    try:
        return ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return None
