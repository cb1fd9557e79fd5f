"""A filter of system calls for this process and its children: the kernel runs it before each call.

It is a program for the virtual machine of linux/filter.h, assembled here for x86_64 and aarch64 in 64 bits. It sees
numbers, but no path or address that one of them points to. Nothing can revoke it, and it needs no privileges. Numbers
of calls are those of arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h, others those of
linux/seccomp.h, linux/audit.h, linux/socket.h, linux/fs.h and asm-generic/ioctls.h.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_SET_FILTER, _FOR_ALL_THREADS, _AS_FAST_AS_BEFORE = 1, 1, 4
_OFFSET_OF_NUMBER, _OFFSET_OF_ARCHITECTURE, _OFFSET_OF_ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
"""Call numbers from here on belong to the x32 ABI, a third kind of programs on x86_64."""

_UNIX, _INTERNET, _INTERNET_6, _NETLINK = 1, 2, 10, 16
_STREAM, _TYPE, _TCP = 1, 0xF, 6
_FAST_OPEN = 0x20000000
"""MSG_FASTOPEN: connects without connect(), which Landlock does not see."""

_NUMBERS = {  # of x86_64, and of aarch64, which has no second name for what another call does as well
    "socket": (41, 198),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "setns": (308, 268),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "reboot": (169, 142),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "bpf": (321, 280),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""AUDIT_ARCH_X86_64 and AUDIT_ARCH_AARCH64, and the column of `_NUMBERS`."""

_OF_ADMINISTRATORS = (
    *("mount", "umount2", "pivot_root", "setns", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "open_by_handle_at", "reboot", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module", "swapon", "swapoff", "acct", "settimeofday", "clock_settime"),
    *("sethostname", "setdomainname", "bpf"),
)
_OF_KEYS = ("add_key", "request_key", "keyctl")
_OF_DEBUGGERS = ("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd")
_OF_FILES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
)
_OF_ATTRIBUTES = (
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *("setxattrat", "removexattrat", "file_setattr"),
)
_OF_MEMORY_LEFT_BEHIND = ("shmget", "semget", "msgget", "mq_open", "mq_unlink")
_SIGNALLED = {"kill": 0, "tkill": 0, "tgkill": 0, "rt_sigqueueinfo": 0, "rt_tgsigqueueinfo": 0, "pidfd_open": 0}
_OF_PROCESSES = {
    **dict.fromkeys(("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr"), 0),
    **dict.fromkeys(("migrate_pages", "move_pages"), 0),
}
"""Calls that change how a process runs, and the argument with its number; 0 means the calling process."""
_OF_SEVERAL = {"setpriority": 0, "ioprio_set": 1}
"""Calls whose first argument selects one or several processes, with its value for one; the second says which."""
_FLAGS = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
"""The argument of a call with its MSG_ flags."""
_KIND, _OF_FILE_SYSTEMS = 0xFF00, tuple(ord(letter) << 8 for letter in ("f", "v", "X", "\x94", "\xf5"))
"""Requests of file systems: flags, versions and attributes of inodes, those of XFS, of Btrfs and of F2FS."""
_OF_TERMINALS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: type into another program's terminal."""

Network = Literal["own", "tcp", "none"]
"""The allowed sockets: all (in a network of its own), TCP (something else blocks connections), none."""

_library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Filter:
    """The calls to refuse."""

    network: Network
    keeps_files: bool
    """Refuse changes of modes, owners, times (silently, since many programs copy them) and attributes of files."""
    keeps_segments: bool
    """Refuse segments of System V and queues of POSIX, which outlive their creators."""
    protected: tuple[int, ...]
    """Processes and, negative, groups that get no signal."""


def filter_calls(wanted: Filter) -> bool:
    """Restrict this process and its children as `wanted` says; False if this system cannot.

    The process must not be able to gain privileges any more (`drop_privileges`).
    """
    machine = _ARCHITECTURES.get(platform.machine())
    if _library is None or machine is None or struct.calcsize("P") != 8:
        return False
    program = assembled(wanted, *machine, os.getpid())
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    number = 317 if machine[1] == 0 else 277  # seccomp
    flags = _FOR_ALL_THREADS | _AS_FAST_AS_BEFORE
    return bool(_library.syscall(number, _SET_FILTER, flags, header) == 0)


def assembled(wanted: Filter, architecture: int, column: int, process: int) -> bytes:
    """Return the program, for the process with this number: 8 bytes for each instruction."""
    code = [_load(_OFFSET_OF_ARCHITECTURE), _jump(_EQUAL, architecture, 1, 0), _refuse(errno.ENOSYS)]
    code.append(_load(_OFFSET_OF_NUMBER))
    if column == 0:
        code += [_jump(_AT_LEAST, _X32, 0, 1), _refuse(errno.ENOSYS)]
    for name, block in _blocks(wanted, process):
        number = _NUMBERS[name][column]
        if number is not None:
            code += [_jump(_EQUAL, number, 0, len(block)), *block]
    return b"".join([*code, _RETURNS])


def _blocks(wanted: Filter, process: int) -> Iterable[tuple[str, list[bytes]]]:
    """Return the program's blocks: every block ends with an answer."""
    yield "io_uring_setup", [_refuse(errno.ENOSYS)]  # by which other calls are made that no filter sees
    yield from ((name, [_refuse(errno.EPERM)]) for name in (*_OF_ADMINISTRATORS, *_OF_KEYS, *_OF_DEBUGGERS))
    yield "socket", _socket(wanted.network)
    if wanted.network == "tcp":
        refused = [_jump(_EQUAL, 0, 1, 0), _refuse(errno.EOPNOTSUPP), _RETURNS]
        yield from ((name, [_argument(at), _mask(_FAST_OPEN), *refused]) for name, at in _FLAGS.items())
    unprotected = _none_of(wanted.protected, errno.EPERM)
    yield from ((name, [_argument(at), *unprotected]) for name, at in _SIGNALLED.items())
    itself = _one_of((0, process), errno.EPERM)
    yield from ((name, [_argument(at), *itself]) for name, at in _OF_PROCESSES.items())
    for name, single in _OF_SEVERAL.items():
        yield name, [_argument(0), _jump(_EQUAL, single, 1, 0), _refuse(errno.EPERM), _argument(1), *itself]
    if wanted.keeps_segments:
        yield from ((name, [_refuse(errno.EACCES)]) for name in _OF_MEMORY_LEFT_BEHIND)
    if wanted.keeps_files:
        yield from ((name, [_refuse(0)]) for name in _OF_FILES)
        yield from ((name, [_refuse(errno.EOPNOTSUPP)]) for name in _OF_ATTRIBUTES)
    kinds = _OF_FILE_SYSTEMS if wanted.keeps_files else ()
    typing = [_jump(_EQUAL, _OF_TERMINALS[0], 1, 0), _jump(_EQUAL, _OF_TERMINALS[1], 0, 1), _refuse(errno.EPERM)]
    yield "ioctl", [_argument(1), *typing, _mask(_KIND), *_none_of(kinds, errno.ENOTTY)]


def _socket(network: Network) -> list[bytes]:
    if network == "own":
        return [_argument(0), *_one_of((_UNIX, _INTERNET, _INTERNET_6, _NETLINK), errno.EACCES)]
    family = [_argument(0), _jump(_EQUAL, _UNIX, 0, 1), _RETURNS]
    route = [_argument(2), *_one_of((0,), errno.EACCES)]  # NETLINK_ROUTE: lists the interfaces
    routes = [_jump(_EQUAL, _NETLINK, 0, len(route)), *route]
    if network == "none":
        return [*family, *routes, _refuse(errno.EACCES)]
    internet = [_jump(_EQUAL, _INTERNET, 2, 0), _jump(_EQUAL, _INTERNET_6, 1, 0), _refuse(errno.EACCES)]
    stream = [_argument(1), _mask(_TYPE), _jump(_EQUAL, _STREAM, 1, 0), _refuse(errno.EACCES)]
    return [*family, *routes, *internet, *stream, _argument(2), *_one_of((0, _TCP), errno.EACCES)]


def _one_of(values: Sequence[int], number: int) -> list[bytes]:
    """Allow if the loaded value is one of `values`, refuse with this error if not."""
    tests = [_jump(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [*tests, _refuse(number), _RETURNS]


def _none_of(values: Sequence[int], number: int) -> list[bytes]:
    """Refuse with this error if the loaded value is one of `values`, allow if not."""
    tests = [_jump(_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [*tests, _RETURNS, _refuse(number)]


def _load(offset: int) -> bytes:
    return struct.pack("HBBI", _LOAD, 0, 0, offset)


def _argument(position: int) -> bytes:
    """Load the lower half of an argument, which comes first on both machines; all checked arguments have 32 bits."""
    return _load(_OFFSET_OF_ARGUMENTS + 8 * position)


def _mask(bits: int) -> bytes:
    return struct.pack("HBBI", _AND, 0, 0, bits)


def _jump(test: int, value: int, then: int, otherwise: int) -> bytes:
    """Skip `then` instructions if the loaded value passes the test, else `otherwise` instructions."""
    return struct.pack("HBBI", test, then, otherwise, value & 0xFFFFFFFF)


def _refuse(number: int) -> bytes:
    return struct.pack("HBBI", _RETURN, 0, 0, _ERRNO | number)


_RETURNS = struct.pack("HBBI", _RETURN, 0, 0, _ALLOW)
