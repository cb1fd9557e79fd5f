"""Namespaces for this process and its children: a network that reaches nothing, and files that stay unchanged.

Linux grants them to a process with a user namespace, if that is allowed: a container's own filter, AppArmor or a
setting of the kernel may forbid it. They disappear with their last process. Numbers are those of linux/sched.h,
linux/mount.h, linux/capability.h, linux/prctl.h and linux/if.h.
"""

import ctypes
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_NEW_USER, _NEW_NETWORK, _NEW_IPC, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x08000000, 0x00020000
_NO_SUID, _NO_DEVICES, _NO_PROGRAMS, _BIND, _RECURSIVE, _PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x40000
_MOUNT_SETATTR = 442  # the same on every architecture
_HERE, _WITH_CHILDREN = -100, 0x8000  # AT_FDCWD, AT_RECURSIVE
_READ_ONLY, _WITHOUT_DEVICES = 0x1, 0x4  # MOUNT_ATTR_RDONLY, MOUNT_ATTR_NODEV
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDS = 38, 24  # PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP
_CAPABILITIES_VERSION, _NUM_CAPABILITIES = 0x20080522, 64
_OF_FILES = 0xFF
"""CAP_CHOWN to CAP_SETUID: root needs them to read, and to own the files that it writes."""
_SHARED_MEMORY, _TERMINALS, _NEW_TERMINAL = "/dev/shm", "/dev/pts", "/dev/ptmx"
_NAMES_OF_USERS = ("/run/nscd/", "/var/run/nscd/", "/var/lib/sss/pipes/", "/run/systemd/userdb/")
"""Sockets by which the C library looks up users."""

_library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Isolation:
    """The namespaces in force."""

    network: bool = False
    """The network is the process's own and contains only the process itself; segments of System V are its own too."""
    shared_memory: bool = False
    """/dev/shm is its own as well."""
    terminals: bool = False
    """Terminals are its own as well."""
    sockets: bool = False
    """Sockets at which other programs of this machine listen answer nobody."""
    files: bool = False
    """All files except the permitted ones are read-only."""


def isolate(writable: Sequence[Path] | None, devices: Sequence[Path]) -> Isolation:
    """Give this process, which must have one thread, and its children namespaces of their own, as far as possible.

    They can then change only files beneath `writable`, and write only to `devices`; None leaves files unrestricted. A
    copy of this process tries it first, because a half-finished change cannot be undone.
    """
    if _library is None or not hasattr(os, "fork"):
        return Isolation()
    trial = os.fork()
    if trial == 0:
        status = 1
        try:
            status = int(not _enter())
        finally:
            os._exit(status)
    if os.waitpid(trial, 0)[1] != 0 or not _has_one_thread():
        return Isolation()
    sockets = _sockets_of_others()  # those of the network that is about to be left
    if not _enter():
        return Isolation()
    _private_mounts()
    return Isolation(
        network=True,
        shared_memory=_tried(_mount_shared_memory),
        terminals=_tried(_mount_terminals),
        sockets=_tried(lambda: _cover(sockets, writable or ())),
        files=writable is not None and _tried(lambda: _only_writable(writable, devices)),
    )


def drop_privileges() -> None:
    """Keep only those of root's privileges that files need, and gain none through other programs such as sudo."""
    if _library is None:
        return
    _library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    kept = _OF_FILES if os.geteuid() == 0 else 0
    for number in range(_NUM_CAPABILITIES):
        if not kept >> number & 1:
            _library.prctl(_DROP_FROM_BOUNDS, number, 0, 0, 0)
    held = (ctypes.c_uint32 * 6)()
    header = struct.pack("=Ii", _CAPABILITIES_VERSION, 0)
    if _library.capget(header, held) == 0:
        effective, permitted = held[0] & kept, held[1] & kept
        _library.capset(header, (ctypes.c_uint32 * 6)(effective, permitted, 0, 0, 0, 0))


def _has_one_thread() -> bool:
    return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208


def _tried(function: Any) -> bool:
    with suppress(OSError):
        function()
        return True
    return False


def _enter() -> bool:
    """Enter the namespaces as the same user, with a network whose loopback is up."""
    flags = _NEW_USER | _NEW_NETWORK | _NEW_IPC | _NEW_MOUNTS
    try:
        if os.geteuid() == 0:
            _unshare_with_all_users(flags)
        else:
            user, group = os.geteuid(), os.getegid()
            _check(_library.unshare(flags))
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        _raise_loopback()
    except OSError:
        return False
    return True


def _unshare_with_all_users(flags: int) -> None:
    """For root, who may own anybody's files: a process that stays outside maps all users to themselves."""
    maps = {name: _same(Path(f"/proc/self/{name}").read_text()) for name in ("uid_map", "gid_map")}
    this = os.getpid()
    ready, begin = os.pipe()
    helper = os.fork()
    if helper == 0:
        status = 1
        try:
            os.close(begin)
            os.read(ready, 1)
            for name, text in maps.items():
                _write(f"/proc/{this}/{name}", text)
            status = 0
        finally:
            os._exit(status)
    os.close(ready)
    try:
        _check(_library.unshare(flags))
    finally:
        os.close(begin)
        status = os.waitpid(helper, 0)[1]
    if status != 0:
        raise PermissionError("the users of the namespace were not set")


def _same(ranges: str) -> str:
    lines = (line.split() for line in ranges.splitlines())
    return "\n".join(f"{first} {first} {number}" for first, _outside, number in lines)


def _raise_loopback() -> None:
    import fcntl  # noqa: PLC0415 -- not on Windows

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack_from("16sH", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


# --- mounts


def _private_mounts() -> None:
    _tried(lambda: _mount("none", "/", flags=_RECURSIVE | _PRIVATE))


def _mount_shared_memory() -> None:
    """Mount an empty /dev/shm over the present one, whose entries stay readable."""
    handles = {}
    for entry in os.scandir(_SHARED_MEMORY):
        if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
            with suppress(OSError):
                handles[entry] = os.open(entry.path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _mount("tmpfs", _SHARED_MEMORY, "tmpfs", _NO_SUID | _NO_DEVICES, "mode=1777")
        for entry, handle in handles.items():
            with suppress(OSError):
                (Path.mkdir if stat.S_ISDIR(os.fstat(handle).st_mode) else Path.touch)(Path(entry.path))
                _mount(f"/proc/self/fd/{handle}", entry.path, flags=_BIND)
                _set_attributes(entry.path, _READ_ONLY)
    finally:
        for handle in handles.values():
            os.close(handle)


def _mount_terminals() -> None:
    _mount("devpts", _TERMINALS, "devpts", _NO_SUID | _NO_PROGRAMS, "newinstance,ptmxmode=0666,mode=620")
    if not Path(_NEW_TERMINAL).is_symlink():
        _mount(f"{_TERMINALS}/ptmx", _NEW_TERMINAL, flags=_BIND)


def _cover(sockets: Iterable[str], but: Iterable[Path]) -> None:
    """Make `sockets` unreachable, except those beneath the folders `but`."""
    _mount(os.devnull, os.devnull, flags=_BIND)  # if this cannot be mounted, nothing can
    for path in sockets:
        if not any(Path(path).is_relative_to(folder.resolve()) for folder in but):
            with suppress(OSError):  # it was removed, or is in another user's folder
                _mount(os.devnull, path, flags=_BIND)


def _only_writable(folders: Iterable[Path], devices: Iterable[Path]) -> None:
    """Make all files read-only except those beneath `folders`, and allow no devices except `devices`."""
    places = {str(path.resolve()) for path in (*folders, *devices) if path.exists()}
    for place in sorted(places):
        if not os.path.ismount(place):
            _mount(place, place, flags=_BIND | _RECURSIVE)
    _set_attributes("/", _READ_ONLY | _WITHOUT_DEVICES, flags=_WITH_CHILDREN)
    for place in places:
        _set_attributes(place, cleared=_READ_ONLY | _WITHOUT_DEVICES)
    with suppress(OSError):  # it was removed
        os.chdir(os.getcwd())  # noqa: PTH109 -- into what was mounted over it, if so


def _sockets_of_others() -> list[str]:
    """Return the paths at which programs of this machine listen, except the sockets that look up users."""
    with suppress(OSError):
        lines = os.fsdecode(Path("/proc/net/unix").read_bytes()).splitlines()[1:]
        paths = {line.split(maxsplit=7)[7] for line in lines if len(line.split(maxsplit=7)) == 8}
        return sorted(path for path in paths if path.startswith("/") and not path.startswith(_NAMES_OF_USERS))
    return []


def _mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(_library.mount(*texts, ctypes.c_ulong(flags), None if options is None else options.encode()))


def _set_attributes(path: str, added: int = 0, cleared: int = 0, flags: int = 0) -> None:
    attributes = struct.pack("=QQQQ", added, cleared, 0, 0)
    _check(_library.syscall(_MOUNT_SETATTR, _HERE, os.fsencode(path), flags, attributes, len(attributes)))


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _check(status: int) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
