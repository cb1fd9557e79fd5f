"""What a script may not do: change files past the Overlay, speak with other machines, and end others' processes.

An audit hook sees every such call of Python and refuses it; programs that are started it only notes. It stays until the
process ends, but does nothing more once it is not active.
"""

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psutil

from memlint.script.place import script_frame
from memlint.tracing.records import Frame

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGED = {
    **dict.fromkeys(("os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.utime"), (0,)),
    **dict.fromkeys(("os.setxattr", "os.removexattr", "os.mkfifo", "os.mknod"), (0,)),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
"""Events of Python's audit that change files, and which of their arguments are the paths that are changed."""
_MOST_PROGRAMS = 100
"""Of which one is noted."""
_ADDRESSED = ("socket.connect", "socket.sendto", "socket.sendmsg")
_NAMED = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyname_ex")


@dataclass(frozen=True)
class Program:
    """Another program that the script started."""

    command: tuple[str, ...]
    frame: Frame | None
    """The line that first did."""


@dataclass(frozen=True)
class Connection:
    """Another machine that the script wanted to speak with."""

    host: str
    frame: Frame | None
    """The line that first did."""


class Guard:
    """The audit hook."""

    def __init__(self, may_write: Callable[[str], bool] | None) -> None:
        """`may_write` says of an absolute path whether it may be changed; None lets every path be."""
        self.active = False
        self.hosts: dict[str, Frame | None] = {}
        """The line that first wanted to speak with each other machine."""
        self.commands: dict[tuple[str, ...], Frame | None] = {}
        """The line that first started each other program."""
        self._may_write = may_write
        self._process = os.getpid()
        sys.addaudithook(self._audit)

    def connections(self) -> tuple[Connection, ...]:
        """The other machines that the script wanted to speak with, the first first."""
        return tuple(Connection(host, frame) for host, frame in self.hosts.items())

    def programs(self) -> tuple[Program, ...]:
        """The other programs that the script started, the first first."""
        return tuple(Program(command, frame) for command, frame in self.commands.items())

    def note_host(self, host: str) -> None:
        """Note a machine, or an address on one, that the script wants to speak with."""
        self.hosts.setdefault(host, script_frame())

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "subprocess.Popen":
            self._note_program(arguments[1])
        elif event in ("os.kill", "os.killpg"):
            self._refuse_process(*arguments)
        elif event in _ADDRESSED or event in _NAMED:
            self._refuse_network(event, arguments)
        elif self._may_write is not None and event == "open":
            path, _mode, flags = arguments
            if flags & _WRITING:
                self._refuse_path(path)
        elif self._may_write is not None:
            for position in _CHANGED.get(event, ()):
                self._refuse_path(arguments[position])

    def _refuse_network(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _ADDRESSED:
            self._refuse_host(arguments[1], OSError(errno.ENETUNREACH, "Network is unreachable"))
        elif _address(arguments[0]) is None:  # an address is found without a network
            number = getattr(socket, "EAI_AGAIN", socket.EAI_NONAME)
            self._refuse_host(arguments, socket.gaierror(number, "Temporary failure in name resolution"))

    def _refuse_host(self, address: Any, error: OSError) -> None:
        host = address[0] if isinstance(address, tuple) and address else None
        host = host.decode(errors="replace") if isinstance(host, bytes | bytearray) else host
        if not isinstance(host, str) or _is_here(host):
            return  # a socket of this machine
        self.note_host(host)
        error.strerror = f"{error.strerror}: memlint run lets nothing leave this machine, and {host} is another"
        raise error

    def _note_program(self, arguments: Any) -> None:
        words = [arguments] if isinstance(arguments, str | bytes | os.PathLike) else arguments
        command = tuple(os.fsdecode(word).encode(errors="replace").decode() for word in words)
        if command not in self.commands and len(self.commands) < _MOST_PROGRAMS:
            self.commands[command] = script_frame()

    def _refuse_process(self, process: int, number: int) -> None:
        if number and not is_own(process, self._process):
            raise PermissionError(errno.EPERM, "memlint run lets a script end none but its own processes")

    def _refuse_path(self, path: Any) -> None:
        if isinstance(path, int) or path is None:
            return
        text = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 -- links are not followed
        assert self._may_write is not None, "paths are asked for only then"
        if not self._may_write(text):
            raise PermissionError(
                errno.EACCES, "memlint run changes no file of yours, and cannot redirect this (see --keep-writes)", text
            )


def is_own(number: int, script: int) -> bool:
    """Whether a process or, if negative, a group was started by the process `script` or is in its session."""
    if number in (0, script, -script):
        return True
    number = abs(number)
    if number == 1:  # -1 stands for all processes there are
        return False
    with suppress(OSError):
        if os.getsid(number) == script:
            return True
    with suppress(psutil.Error):
        return any(parent.pid == script for parent in psutil.Process(number).parents())
    return False


def _is_here(host: str) -> bool:
    """Whether `host` is this machine."""
    if host in ("", "localhost", "localhost.localdomain", "ip6-localhost", socket.gethostname()):
        return True
    address = _address(host)
    return host.endswith(".localhost") if address is None else address.is_loopback or address.is_unspecified


def _address(host: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `host` spells out, if it is none that has to be looked up."""
    try:
        return ipaddress.ip_address(str(host).partition("%")[0])
    except ValueError:
        return None
