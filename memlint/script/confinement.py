"""The kernel's guards of a script and of all that it starts, in whatever language.

Namespaces, Landlock and a filter of system calls overlap. Each is tried, since one system forbids the first, another is
too old for the second: what none of them keeps is said.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from memlint.script import landlock
from memlint.script.namespaces import Isolation, drop_privileges, isolate
from memlint.script.seccomp import Filter, Network, filter_calls

DEVICES = tuple(
    Path("/dev") / name for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
)
"""Parts of /dev that a script may write to: nothing of the machine's changes."""


@dataclass(frozen=True)
class Confinement:
    """The guards that there are."""

    isolation: Isolation
    landlock: int
    """Its version; 0 without one."""
    is_filtered: bool
    keeps_files: bool
    """Files are kept, rather than written where the script wants."""

    @property
    def is_offline(self) -> bool:
        """True if started programs, and code that is not Python's, reach nothing but what the run itself has opened."""
        return self.isolation.network or self.is_filtered

    @property
    def reaches_itself(self) -> bool:
        """True if the script can speak with itself by TCP and UDP: it has a network of its own, or none is refused."""
        return self.isolation.network or not (self.is_filtered or self.landlock >= landlock.OF_TCP)

    def not_guarded(self) -> tuple[str, ...]:
        """Name what Python's own calls alone are kept from."""
        return tuple(name for name, is_guarded in self._guards() if not is_guarded)

    def _guards(self) -> tuple[tuple[str, bool], ...]:
        isolation, filtered, kept = self.isolation, self.is_filtered, not self.keeps_files
        refuses_tcp = self.landlock >= landlock.OF_TCP
        return (
            ("files", kept or isolation.files or self.landlock >= 1),
            ("cutting files", kept or isolation.files or not 1 <= self.landlock < landlock.OF_TRUNCATION),
            ("modes, owners, times and attributes of files", kept or filtered),
            ("the network", self.is_offline or refuses_tcp),
            ("UDP, TCP Fast Open and other protocols", self.is_offline or not refuses_tcp),
            ("being called by TCP", isolation.network or not refuses_tcp),
            ("sockets of other programs on this machine", isolation.sockets),
            ("files left in /dev/shm", isolation.shared_memory),
            ("segments of System V and queues", isolation.network or filtered),
            ("terminals of other programs", isolation.terminals),
            ("signals to other processes", self.landlock >= landlock.OF_SIGNALS),
            ("memory of other processes", isolation.network or self.landlock >= 1),
            ("priorities and limits of other processes", filtered),
        )


def confine(writable: Sequence[Path] | None) -> Confinement:
    """Confine this process and what it starts, for good, to files beneath `writable` and to a network of its own.

    None leaves files as they are. Where there is no such network, there is none.
    """
    isolation = isolate(writable, DEVICES)
    drop_privileges()
    places = None if writable is None else (*writable, *DEVICES)
    version = landlock.restrict(places, refuse_tcp=not isolation.network)
    network: Network = "own" if isolation.network else "tcp" if version >= landlock.OF_TCP else "none"
    wanted = Filter(
        network=network,
        keeps_files=writable is not None,
        keeps_segments=not isolation.network,
        protected=_protected(),
    )
    return Confinement(isolation, version, filter_calls(wanted), writable is not None)


def confine_files(writable: Sequence[Path]) -> None:
    """Keep this process, which is confined but for its files, to those beneath `writable`, where Landlock can."""
    landlock.restrict((*writable, *DEVICES), refuse_tcp=False)


def _protected() -> tuple[int, ...]:
    """This process's parents, their groups, and all processes at once, as kill() calls them."""
    found = {-1, 1}
    if sys.platform != "win32":
        with suppress(psutil.Error):
            for parent in psutil.Process().parents():
                found.add(parent.pid)
                with suppress(OSError):
                    found.add(-os.getpgid(parent.pid))
    return tuple(sorted(found))
