"""Restrictions by the kernel for a script and every program that it starts, in any language.

Namespaces, Landlock and a filter of system calls overlap. memlint tries each, because one system forbids the first and
another is too old for the second; it reports whatever none of them covers.
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
"""Parts of /dev that a script may write to: writing there changes nothing on the machine."""


@dataclass(frozen=True)
class Confinement:
    """The restrictions in force."""

    isolation: Isolation
    landlock: int
    """Version of Landlock; 0 without it."""
    is_filtered: bool
    keeps_files: bool
    """True if files are kept as they are, instead of being written where the script wants."""

    @property
    def is_offline(self) -> bool:
        """True if started programs, and code outside Python, reach only sockets that the run itself has opened."""
        return self.isolation.network or self.is_filtered

    @property
    def reaches_itself(self) -> bool:
        """True if the script can reach itself by TCP and UDP: it has a network of its own, or nothing is refused."""
        return self.isolation.network or not (self.is_filtered or self.landlock >= landlock.OF_TCP)

    def not_guarded(self) -> tuple[str, ...]:
        """Name the operations that are only guarded in Python's own calls."""
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
            ("incoming TCP connections", isolation.network or not refuses_tcp),
            ("sockets of other programs on this machine", isolation.sockets),
            ("files left in /dev/shm", isolation.shared_memory),
            ("segments of System V and queues", isolation.network or filtered),
            ("terminals of other programs", isolation.terminals),
            ("signals to other processes", self.landlock >= landlock.OF_SIGNALS),
            ("memory of other processes", isolation.network or self.landlock >= 1),
            ("priorities and limits of other processes", filtered),
        )


def confine(writable: Sequence[Path] | None) -> Confinement:
    """Confine this process and its children, permanently, to files beneath `writable` and to a network of its own.

    None leaves files unrestricted. If the system cannot create such a network, the process has no network.
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
    """Restrict the files of this process, which is otherwise confined already, to `writable`, if Landlock can."""
    landlock.restrict((*writable, *DEVICES), refuse_tcp=False)


def _protected() -> tuple[int, ...]:
    """Return this process's parents, their groups, and all processes at once, by their numbers for kill()."""
    found = {-1, 1}
    if sys.platform != "win32":
        with suppress(psutil.Error):
            for parent in psutil.Process().parents():
                found.add(parent.pid)
                with suppress(OSError):
                    found.add(-os.getpgid(parent.pid))
    return tuple(sorted(found))
